"""Changes that were planned before the progress of a compaction was committed, by both clients."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.mem_wal.table.details import compacted_messages, details_of
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.indexes import UpdateMemWalState
from lance_spark.table.operations.update import Update
from tests.interop.mem_wal.test_compaction import new_table

SHARD = uuid.UUID(int=3)
#: Changes that a stale handle of either client makes.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "delete": lambda dataset: dataset.delete("id = 3"),
    "update": lambda dataset: dataset.update({"name": "'z'"}, "id = 3"),
    "index": lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    "drop column": lambda dataset: dataset.drop_columns(["items"]),
    "config": lambda dataset: dataset.update_config({"a": "b"}),
}
#: After `UpdateMemWalState`, these succeed; after an `Update` all do.
_AFTER_STATE = {"update", "config"}


def _record(root: Path, operation: str, generation: int = 1) -> None:
    """Commit the progress of a compaction without rows."""
    table = open_table(str(root))
    messages = tuple(compacted_messages({SHARD: generation}))
    progress: Any = (
        Update(compacted_sstables=messages)
        if operation == "update"
        else UpdateMemWalState(messages)
    )
    commit(table.store, Transaction.new(table.version, progress), table.manifest)


@pytest.mark.parametrize("operation", ["update", "update_mem_wal_state"])
@pytest.mark.parametrize("change", CHANGES)
def test_stale_changes(tmp_path: Path, change: str, operation: str) -> None:
    outcomes = []
    new_table(tmp_path / "t")
    for client in ("theirs", "ours"):
        root = tmp_path / client
        shutil.copytree(tmp_path / "t", root)
        stale: Any = (
            lance.dataset(root) if client == "theirs" else lance_spark.open_dataset(str(root))
        )
        _record(root, operation)
        try:
            CHANGES[change](stale)
            outcomes.append("ok")
        except (LanceError, OSError, RuntimeError) as error:
            text = str(error).lower()
            outcomes.append("incompatible" if "incompatible" in text else text)
        details = details_of(open_table(str(root)).manifest)
        assert details is not None
        assert details.compacted == {SHARD: 1}
        lance.dataset(root).validate()
    expected = "ok" if operation == "update" or change in _AFTER_STATE else "incompatible"
    assert outcomes == [expected, expected]


@pytest.mark.parametrize("operation", ["update", "update_mem_wal_state"])
@pytest.mark.parametrize("generation", [1, 2, 3])
def test_stale_and_later_generations_of_pylance(
    tmp_path: Path, operation: str, generation: int
) -> None:
    """A merge of pylance that was planned before fails if its generation is not greater."""
    root = tmp_path / "t"
    new_table(root)
    stale = lance.dataset(root)
    _record(root, operation, 2)
    rows = lance.dataset(root).to_table(filter="id = 1")
    merge = stale.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    marked = merge.mark_sstables_as_compacted([lance.CompactedSsTable(str(SHARD), generation)])
    if generation > 2:
        marked.execute(rows)
    else:
        with pytest.raises(OSError, match=r"(?i)stale|incompatible"):
            marked.execute(rows)
    details = details_of(open_table(str(root)).manifest)
    assert details is not None
    assert details.compacted == {SHARD: max(generation, 2)}
    assert lance.dataset(root).count_rows() == 20


def test_each_commit_has_another_id(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    ids = set()
    for generation in (1, 2, 7):
        _record(root, "update", generation)
        section = open_table(str(root)).manifest.index_section or b""
        ids.add(section)
    assert len(ids) == 3
    assert lance.dataset(root).count_rows() == 20
