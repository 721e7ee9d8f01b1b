"""Whole tables with one damaged file: public functions read them, and must not open files outside
of them.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pyarrow as pa

import lance_spark
from lance_spark.indexes.aggregates import min_max_from_metadata, value_count
from lance_spark.indexes.cache import CACHE
from lance_spark.inspect.collect import facts_of
from lance_spark.inspect.html import as_html
from lance_spark.inspect.text import as_text
from lance_spark.proto import table_pb2
from lance_spark.scan import prefetch
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import decode, encode
from tests.hostile import corpus, texts
from tests.hostile.files import worse_fields, worse_file, worse_legacy
from tests.hostile.guard import fault, worse_of
from tests.hostile.mutate import Mutate, worse_bytes, worsen
from tests.support.tables.hostile_session import Watch

Step = Callable[[Any], object]
#: No seed has so many rows.
MOST_ROWS = 100_000


@dataclass(frozen=True)
class TableTarget:
    """A file of a table; see `targets.Target`."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    weight: int
    seconds: float | None = None


class Session:
    """Reads a table again and again, each time with other bytes in one of its files."""

    def __init__(self, table: str, file: Callable[[Path], Path], steps: Sequence[Step]) -> None:
        self._table = table
        self._file = file
        self._steps = steps
        self._root: Path | None = None
        self._watch: Watch | None = None

    def path(self) -> Path:
        """Return the damaged file, in a copy of the table that belongs to this session."""
        if self._root is None:
            made = corpus.table(self._table)
            self._root = made.parent / f"copy-{id(self)}"
            shutil.copytree(made, self._root)
            self._watch = watch(str(self._root))
        return self._file(self._root)

    def seeds(self) -> list[bytes]:
        """Return the content of the file."""
        return [self._file(corpus.table(self._table)).read_bytes()]

    def run(self, data: bytes) -> None:
        """Read the table with these bytes in the file."""
        path = self.path()
        whole = path.read_bytes()
        path.write_bytes(data)
        CACHE.clear()
        assert self._watch is not None
        self._watch.accesses.clear()
        self._watch.on = True
        failed: Exception | None = None
        try:
            for step in self._steps:
                try:
                    step(str(self._root))
                except Exception as error:
                    failed = worse_of(failed, error)
        finally:
            self._watch.on = False
            path.write_bytes(whole)
        assert not self._watch.accesses, sorted(self._watch.accesses)
        if failed is not None:
            raise failed


_WATCHES: dict[str, Watch] = {}


def watch(root: str) -> Watch:
    """Return an object that notes opened files outside of a root. Hooks stay for ever, so each root
    has one object.
    """
    if root not in _WATCHES:
        _WATCHES[root] = Watch((root,))
    return _WATCHES[root]


def scan(root: str) -> None:
    """Read rows in several ways; read all rows if they are few."""
    dataset = lance_spark.open_dataset(root)
    repr(dataset), dataset.schema, dataset.count_rows()
    check_first(dataset.to_batches(with_row_id=True, with_row_address=True))
    dataset.take([0, 3])


def check_first(batches: Iterator[pa.RecordBatch]) -> None:
    """Check some batches: a fragment without files may have 2^32 rows, all of them null."""
    rows = 0
    for batch in batches:
        batch.validate()
        rows += batch.num_rows
        if rows > MOST_ROWS:
            return


def far(root: str) -> None:
    """Read rows from a store that fetches files ahead."""
    files = fsspec.filesystem("memory")
    files.pipe({f"/hostile/{item.relative_to(root)}": item.read_bytes() for item in below(root)})
    try:
        # Threads have stacks, which count as memory.
        options = {"io_threads": "2"}
        with mock.patch.object(prefetch, "_MAX_DELETED", 1):
            dataset = lance_spark.open_dataset("memory://hostile", storage_options=options)
            check_first(dataset.to_batches())
    finally:
        files.rm("/hostile", recursive=True)


def below(root: str) -> Iterator[Path]:
    """Yield the files of a folder."""
    return (path for path in Path(root).rglob("*") if path.is_file())


def hinted(root: str) -> None:
    """Open a table in a store with delayed listings."""
    with mock.patch.object(ObjectStore, "is_consistent", False):
        lance_spark.open_dataset(root)


def filtered(root: str) -> None:
    """Read with conditions that indexes can answer."""
    dataset = lance_spark.open_dataset(root)
    dataset.to_table(filters=[("i", "==", 3)])
    dataset.to_table(filters=[("i", ">", 11_990), ("s", "==", "w7")])
    dataset.to_table(filters=[("s", ">", "w9998")])


def ends(root: str) -> None:
    """Read the minimum, the maximum and the count from indexes."""
    dataset = lance_spark.open_dataset(root)
    table = dataset._table
    for name in ("i", "s"):
        min_max_from_metadata(table, dataset.fragments, [name])
        value_count(table, dataset.fragments, [name])


def look(root: str) -> None:
    """Read all metadata of a table."""
    dataset = lance_spark.open_dataset(root)
    for ask in (
        dataset.list_indices,
        dataset.describe_indices,
        dataset.tags.list,
        dataset.branches.list,
        dataset.versions,
        dataset.get_transactions,
        dataset.base_paths,
        lambda: pickle.loads(pickle.dumps(dataset.plan())),
        lambda: (dataset.config, dataset.metadata, dataset.schema_metadata),
    ):
        tried(ask)


def validated(root: str) -> None:
    """Check a table."""
    lance_spark.open_dataset(root).validate()


def shown(root: str) -> None:
    """Format a table for people."""
    facts = facts_of(lance_spark.open_dataset(root))
    as_text(facts, pages=True), as_html(facts)


def old_versions(root: str) -> None:
    """Plan a cleanup, read a tag and a branch."""
    dataset = lance_spark.open_dataset(root)
    tried(lambda: lance_spark.open_dataset(root, tag="t").count_rows())
    tried(lambda: lance_spark.open_dataset(root, branch="b").count_rows())
    dataset.cleanup_old_versions(
        retain_versions=1, error_if_tagged_old_versions=False, dry_run=True
    )


def by_id(root: str) -> None:
    """Find rows by their ids."""
    dataset = lance_spark.open_dataset(root)
    dataset.take_rows([0, 3, 7_000])


def blobs(root: str) -> None:
    """Read blobs, all and some."""
    dataset = lance_spark.open_dataset(root)
    check_first(dataset.to_batches())
    with contextlib.suppress(lance_spark.LanceError):
        for file in dataset.take_blobs("b", indices=[0, 7, 20]):
            if file is not None:
                file.seek(3)
                file.read(100)
    check_first(dataset.to_batches(blob_handling="all_binary"))


def tried(ask: Callable[[], object]) -> None:
    """Go on after an error of this package."""
    try:
        ask()
    except lance_spark.LanceError as error:
        if fault(error) is not None:
            raise


def worse_manifest(data: bytes, rng: random.Random) -> bytes:
    """Damage a manifest. Base paths may point anywhere, so they stay."""
    result = decode(data, "m")
    proto, index = result.to_proto(), result.index_section
    draw = rng.random()
    if draw < 0.25 and index:
        section = table_pb2.IndexSection.FromString(index)
        worsen(section, rng)
        index = section.SerializeToString()
    elif draw < 0.4:
        worse_fields(proto.fields, rng)
    else:
        for _ in range(rng.choice((1, 1, 2))):
            worsen(proto, rng, ("base_paths", "version"))
    return encode(proto, index, result.transaction_section, result.dictionaries)


def one_of(pattern: str) -> Callable[[Path], Path]:
    """Return a function that finds the first file of a pattern."""
    return lambda root: min(root.glob(pattern))


def largest(pattern: str) -> Callable[[Path], Path]:
    """Return a function that finds the largest file of a pattern."""
    return lambda root: max(root.glob(pattern), key=lambda file: (file.stat().st_size, file.name))


def older(data: bytes, rng: random.Random) -> bytes:
    """Damage a file of version 2.0 or later."""
    return worse_file(data, rng) if rng.random() < 0.9 else worse_bytes(data, rng)


def _made(
    name: str,
    table: str,
    file: Callable[[Path], Path],
    mutate: Mutate,
    steps: Sequence[Step],
    weight: int = 2,
) -> TableTarget:
    session = Session(table, file, steps)
    return TableTarget(f"table_{name}", session.run, session.seeds, mutate, weight)


def targets() -> Iterator[TableTarget]:
    """Yield a target for each kind of file that a table has."""
    every = (scan, filtered, ends, look, shown, old_versions, by_id, validated)
    yield _made("manifest", "plain", corpus.newest, worse_manifest, every, 4)
    yield _made("manifest_stable", "stable", corpus.newest, worse_manifest, every, 4)
    yield _made("manifest_old", "old", corpus.newest, worse_manifest, every, 2)
    yield _made("manifest_moved", "moved", corpus.newest, worse_manifest, every, 2)
    yield _made(
        "manifest_overlaid", "overlaid", corpus.newest, worse_manifest, (scan, shown, validated), 2
    )
    yield _made("overlay", "overlaid", one_of("data/o*.lance"), older, (scan,), 2)
    yield _made("manifest_legacy", "legacy", corpus.newest, worse_manifest, (scan, shown), 2)
    yield _made("legacy", "legacy", one_of("data/*.lance"), worse_legacy, (scan, shown), 2)
    pages = (scan, filtered, shown, validated)
    yield _made("early", "early", one_of("data/*.lance"), worse_legacy, pages, 2)
    known = (filtered, ends, look)
    yield _made("zone_map", "indexed", one_of("_indices/*/zonemap.lance"), older, known)
    yield _made("btree", "indexed", one_of("_indices/*/page_lookup.lance"), older, known)
    yield _made("btree_pages", "indexed", one_of("_indices/*/page_data.lance"), older, known, 1)
    yield _made("filters", "filtered", one_of("_indices/*/bloomfilter.lance"), older, known)
    yield _made("data", "plain", largest("data/*.lance"), older, (scan, filtered, shown))
    yield _made("far", "plain", largest("data/*.lance"), older, (far,), 1)
    yield _made("joined", "old", one_of("data/*.lance"), older, (scan, filtered, shown), 1)
    yield _made(
        "deletions", "plain", one_of("_deletions/*.arrow"), worse_bytes, (scan, validated), 1
    )
    yield _made("bitmap", "plain", one_of("_deletions/*.bin"), worse_bytes, (scan,), 1)
    yield _made("hint", "plain", one_of("_versions/*.json"), texts.worse_json, (hinted,), 1)
    yield _made("manifest_spread", "spread", corpus.newest, worse_manifest, (scan, shown))
    yield _made("spread", "spread", largest("data/*.lance"), older, (scan, shown))
    steps = (look, old_versions)
    yield _made("tag", "plain", one_of("_refs/tags/*.json"), texts.worse_json, steps, 1)
    yield _made("branch", "plain", one_of("_refs/branches/*.json"), texts.worse_json, steps, 1)
    for version in ("2_0", "2_1", "2_2"):
        yield _made(
            f"blobs_{version}", f"blobs_{version}", largest("data/*.lance"), older, (blobs,)
        )
