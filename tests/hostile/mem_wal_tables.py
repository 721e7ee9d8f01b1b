"""Tables with a MemWAL and one damaged file: fresh reads, compactions, claims and other changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

import lance_spark
from lance_spark.indexes.cache import CACHE
from lance_spark.proto import table_pb2
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.read.reader import unread_rows
from tests.hostile import corpus, tables, texts
from tests.hostile.mutate import Mutate, worse_bytes, worse_message
from tests.hostile.tables import Step, TableTarget, older, one_of, tried

#: A step copies the table, compacts it or writes an SSTable.
_SECONDS = 8.0
_SHARD = "_mem_wal/*-*"
_KEY = {"lance-schema:unenforced-primary-key": "true"}
_SCHEMA = pa.schema([pa.field("i", pa.int64(), False, _KEY), pa.field("s", pa.string())])


def write_fresh(path: Path) -> None:
    """Two SSTables with repeated keys and tombstones, and a log of two entries."""
    lance_spark.write_dataset(_rows(0, 40), str(path))
    dataset = lance_spark.open_dataset(str(path)).initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer() as writer:
        writer.put(_rows(2, 12, "first"))
        writer.put(_rows(5, 3, "second"))
        writer.delete(_rows(20, 2).select(["i"]))
    writer = dataset.mem_wal_writer()
    writer.put(_rows(38, 6, "third"))
    writer.close()
    writer = dataset.mem_wal_writer()
    writer.put(_rows(50, 3, "log"))
    writer.delete(_rows(3, 1).select(["i"]))
    writer.close(flush=False)
    corpus.without_sizes(path)
    for sstable in path.glob(f"{_SHARD}/*_gen_*"):
        corpus.without_sizes(sstable)


def _rows(first: int, count: int, text: str = "base") -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"i": ids, "s": [f"{text} {number}" for number in ids]}, _SCHEMA)


def fresh(root: str) -> None:
    """Read fresh rows in several ways."""
    CACHE.clear()
    rows = lance_spark.open_dataset(root).fresh()
    tables.check_first(rows.to_batches())
    rows.count_rows()
    rows.to_table(["s"], filter="i IN (3, 7, 51)")
    rows.to_table(filter="s = 'third 39'")


def lookups(root: str) -> None:
    """Look for a key, and describe the shards."""
    dataset = lance_spark.open_dataset(root)
    repr(dataset.mem_wal_shards())
    dataset.lsm_scanner().filter("i = 7").to_table()


def plain(root: str) -> None:
    """Read the base table, and warn of rows that are not in it."""
    dataset = lance_spark.open_dataset(root)
    tables.check_first(dataset.to_batches())
    unread_rows(dataset, ReadOptions.parse({"path": root}))


def if_few_rows(*steps: Step) -> Step:
    """Return a step that runs some steps if the base table has few rows.

    They read the keys of all rows. A fragment without files may have 2^32 rows, all of them null.
    """

    def run(root: str) -> None:
        if lance_spark.open_dataset(root).count_rows() <= tables.MOST_ROWS:
            for step in steps:
                step(root)

    return run


def on_copy(*steps: Step) -> Step:
    """Return a step that runs each of some steps on a copy of the table."""

    def run(root: str) -> None:
        for step in steps:
            # Below the root, because files outside of it must not be opened.
            copy = Path(root) / "copy"
            shutil.copytree(root, copy, ignore=shutil.ignore_patterns("copy"))
            try:
                tried(partial(step, str(copy)))
            finally:
                shutil.rmtree(copy)

    return run


def compacted(root: str) -> None:
    """Flush and compact, then clean up."""
    dataset = lance_spark.open_dataset(root).compact_mem_wal(flush=True)
    dataset.clean_mem_wal()
    dataset.fresh().count_rows()


def claimed(root: str) -> None:
    """Continue the shard, and put a row."""
    with lance_spark.open_dataset(root).mem_wal_writer() as writer:
        writer.put(_rows(60, 1, "new"))


def changed(root: str) -> None:
    """Change rows of the base table, or find that this is refused; remove the MemWAL."""
    tried(lambda: lance_spark.open_dataset(root).delete("i = 1"))
    lance_spark.open_dataset(root).disable_mem_wal()


def targets() -> Iterator[TableTarget]:
    """Yield a target for each kind of file of a MemWAL."""
    read = (fresh, lookups, plain)
    change = on_copy(compacted, claimed, changed)
    every = (*read, change)
    few = tuple(if_few_rows(step) for step in (fresh, lookups, change))
    shard = worse_message(table_pb2.ShardManifest)
    sstable = f"{_SHARD}/*_gen_1"
    yield _made("manifest", corpus.newest, tables.worse_manifest, (plain, *few))
    yield _made("shard", _last(f"{_SHARD}/manifest/*.binpb"), shard, every)
    yield _made("hint", one_of(f"{_SHARD}/manifest/*.json"), texts.worse_json, (fresh,))
    yield _made("log", _last(f"{_SHARD}/wal/*.arrow"), worse_bytes, every)
    sstable_manifest = one_of(f"{sstable}/_versions/*.manifest")
    yield _made("sstable", sstable_manifest, tables.worse_manifest, every)
    yield _made("sstable_rows", one_of(f"{sstable}/data/*.lance"), older, every)
    deletions = one_of(f"{sstable}/_deletions/*")
    yield _made("sstable_deletions", deletions, worse_bytes, every)
    yield _made("sstable_filter", one_of(f"{sstable}/bloom_filter.bin"), worse_bytes, read)


def _last(pattern: str) -> Callable[[Path], Path]:
    """Return a function that finds the file with the greatest number in its name."""
    return lambda root: max(root.glob(pattern), key=lambda path: path.stem[::-1])


def _made(
    name: str, file: Callable[[Path], Path], mutate: Mutate, steps: tuple[Step, ...]
) -> TableTarget:
    session = tables.Session("fresh", file, steps)
    return TableTarget(
        f"fresh_{name}", session.run, session.seeds, mutate, weight=1, seconds=_SECONDS
    )
