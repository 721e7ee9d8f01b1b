"""Changes of tables, and queries of their changes, while one file of the table is damaged."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import lance_spark
from lance_spark.change_feed.diff import changes_between
from lance_spark.change_feed.tasks import FeedColumns, plan_changes
from lance_spark.errors import CommitConflictError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.cleanup.automatic import PREFIX, requested_cleanup
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import open_table
from tests.hostile import corpus, tables
from tests.hostile.files import worse_legacy
from tests.hostile.guard import worse_of
from tests.hostile.mutate import Mutate, worse_bytes, worse_message
from tests.hostile.tables import Step, TableTarget, largest, older, one_of, tried

#: Changes rewrite each of the indexes that a manifest names.
SECONDS = 20.0


def changing(*steps: Step) -> Step:
    """Return one step that runs several steps, and raises their worst error. New files are removed
    after each step.
    """

    def run(root: str) -> None:
        failed: Exception | None = None
        for step in steps:
            before = set(Path(root).rglob("*"))
            try:
                step(root)
            except Exception as error:
                failed = worse_of(failed, error)
            finally:
                for path in set(Path(root).rglob("*")) - before:
                    if path.is_file():
                        path.unlink()
        if failed is not None:
            raise failed

    return run


def changed(root: str) -> None:
    """Delete, append and compact."""
    tried(lambda: lance_spark.open_dataset(root).delete([("i", "==", 3)]))
    more = pa.table({"i": pa.array([9], pa.int64()), "s": ["x"]})
    lance_spark.write_dataset(more, root, mode="append")
    lance_spark.open_dataset(root).compact_files()


def compacted(root: str) -> None:
    """Merge fragments, and write indexes anew."""
    lance_spark.open_dataset(root).compact_files(defer_index_remap=False)


def deferred(root: str) -> None:
    """Rewrite a fragment, and defer the update of indexes."""
    dataset = lance_spark.open_dataset(root).delete([("i", "<", 20)])
    _, metrics = dataset.compact_files(defer_index_remap=True)
    assert metrics.fragments_removed


def updated(root: str) -> None:
    """Change values of rows, in new rows."""
    lance_spark.open_dataset(root).update({"s": "new"}, [("i", "==", 3)])


def patched(root: str) -> None:
    """Change values of rows, in new files of the column."""
    lance_spark.open_dataset(root).update({"s": "new"}, [("i", "==", 3)], mode="columns")


def deleted(root: str) -> None:
    """Delete a row of each fragment."""
    lance_spark.open_dataset(root).delete([("i", "in", [3, 7_000, 1_001])])


def late_settings(root: str) -> None:
    """Change a version that is not the newest: the changes of other writers are read from their
    transactions.
    """
    lance_spark.open_dataset(root, version=1).update_config({"a": "c"})


def late_delete(root: str) -> None:
    """Delete rows of an old version."""
    lance_spark.open_dataset(root, version=1).delete([("i", "==", 2)])


def late_columns(root: str) -> None:
    """Change rows of an old version in place."""
    oldest = lance_spark.open_dataset(root, version=1)
    oldest.update({"s": "new"}, [("i", "==", 4)], mode="columns")


def late_compaction(root: str) -> None:
    """Compact fragments of an old version, which conflicts with a delete."""
    with contextlib.suppress(CommitConflictError):
        lance_spark.open_dataset(root, version=1).compact_files()


def read_changes(root: str) -> None:
    """Read the changes of each version."""
    table = open_table(root)
    result = list(changes_between(table, 1, table.version))
    columns = FeedColumns.of(table.manifest, None)
    # The number of tasks is bounded, also if fragments claim many rows.
    target = max(500, table.manifest.num_rows // 1_000)
    tasks = plan_changes(root, result, columns, target_rows=target)
    tables.check_first(batch for task in tasks for batch in task.batches(batch_size=200))


def cleanups(data: bytes) -> None:
    """Parse the settings of cleanups in a configuration: lines of name and value."""
    lines = data.decode("utf-8", "replace").split("\n")
    config = {PREFIX + name: value for name, _, value in (line.partition("=") for line in lines)}
    requested_cleanup(config, 20)


def configurations() -> list[bytes]:
    """Return configurations that ask for cleanups."""
    return [
        b"interval=20\nolder_than=14d\nretain_versions=3\nreferenced_branch=true",
        b"interval=1\nolder_than=1h 30.5m\ndelete_rate_limit=100\ndelete_concurrency=4",
        b"interval=0\nolder_than=0",
    ]


def _worse_transaction(data: bytes, rng: random.Random) -> bytes:
    """Damage the transaction in a manifest, or the manifest."""
    if rng.random() < 0.3:
        return tables.worse_manifest(data, rng)
    result = decode(data, "m")
    worse = worse_message(transaction_pb2.Transaction)(result.transaction_section or b"", rng)
    return encode(result.to_proto(), result.index_section, worse)


def _reuse_file(data: bytes, rng: random.Random) -> bytes:
    message_class = table_pb2.FragmentReuseIndexDetails.InlineContent
    return worse_message(message_class)(data, rng)


def targets() -> Iterator[TableTarget]:
    """Yield a target for each kind of file that changes read."""

    def made(
        name: str,
        table: str,
        file: Callable[[Path], Path],
        mutate: Mutate,
        steps: tuple[Step, ...],
        weight: int = 1,
    ) -> TableTarget:
        session = tables.Session(table, file, steps)
        return TableTarget(f"table_{name}", session.run, session.seeds, mutate, weight, SECONDS)

    manifest = tables.worse_manifest
    every = changing(changed, updated, patched)
    yield made("manifest_changed", "stable", corpus.newest, manifest, (changing(changed),), 2)
    yield made(
        "manifest_rewritten", "plain", corpus.newest, manifest, (every, changing(compacted)), 2
    )
    yield made("manifest_told", "stable", corpus.newest, manifest, (read_changes,))
    yield made("update_told", "patched", corpus.newest, _worse_transaction, (read_changes,), 2)
    for operation_name in ("delete", "create_index", "append"):
        file = _transaction(operation_name)
        worse = worse_message(transaction_pb2.Transaction)
        changes = changing(late_settings, late_delete, late_columns, late_compaction)
        yield made(
            f"transaction_{operation_name}",
            "old",
            file,
            worse,
            (tables.look, read_changes, changes),
        )
    moves = (tables.look, changing(deferred))
    yield made("reuse_file", "reused", one_of("_indices/*/details.binpb"), _reuse_file, moves)
    rewrites = (changing(compacted, updated, patched),)
    yield made("data_changed", "plain", largest("data/*.lance"), older, rewrites)
    data = one_of("data/*.lance")
    yield made("early_changed", "early", data, worse_legacy, rewrites)
    for name in ("lookup", "data"):
        file = one_of(f"_indices/*/page_{name}.lance")
        yield made(f"btree_{name}_moved", "old", file, older, (changing(compacted),))
    dropped = (changing(deleted, compacted),)
    yield made("deletions_changed", "plain", one_of("_deletions/*.arrow"), worse_bytes, dropped)
    yield made("bitmap_changed", "plain", one_of("_deletions/*.bin"), worse_bytes, dropped)
    overlays = (changing(compacted),)
    yield made("overlay_changed", "overlaid", one_of("data/o*.lance"), older, overlays)


def _transaction(operation_name: str) -> Callable[[Path], Path]:
    """Return a function that finds the file of a transaction."""

    def find(root: Path) -> Path:
        names = sorted((root / "_transactions").iterdir(), reverse=True)
        messages = {
            name: transaction_pb2.Transaction.FromString(name.read_bytes()) for name in names
        }
        return next(
            file_name for file_name, message in messages.items() if message.HasField(operation_name)
        )

    return find
