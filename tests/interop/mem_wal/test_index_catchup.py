"""`index_catchup` after each of some changes, made by pylance and by this package.

Both change copies of one table. The next change is made to the table of pylance.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import CompactedSsTable

import lance_spark
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.table.details import details_of
from lance_spark.table.open import open_table
from tests.interop.mem_wal.test_compaction import new_table, put, some_rows

SHARD = str(uuid.uuid4())
Change = Callable[[Path, str], Any]


def _theirs(root: Path) -> Any:
    return lance.dataset(root)


def _ours(root: Path) -> Any:
    return lance_spark.open_dataset(str(root))


def _compact(root: Path, client: str) -> None:
    if client == "ours":
        compact_mem_wal(open_table(str(root)), drains=False)
        return
    table = open_table(str(root))
    details = details_of(table.manifest)
    assert details is not None
    generation = details.compacted.get(uuid.UUID(SHARD), 0) + 1
    (folder,) = (root / "_mem_wal" / SHARD).glob(f"*_gen_{generation}")
    rows = lance.dataset(folder).to_table().drop_columns(["_tombstone"])
    merge = lance.dataset(root).merge_insert("id").when_matched_update_all()
    merge = merge.when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(SHARD, generation)]).execute(rows)


def _generation(ids: list[int]) -> Change:
    def change(root: Path, client: str) -> None:
        _compact(root, client)

    change.ids = ids  # type: ignore[attr-defined]
    return change


def _append(root: Path, client: str) -> None:
    write: Any = lance.write_dataset if client == "theirs" else lance_spark.write_dataset
    write(some_rows([len(_theirs(root).versions()) + 500], "a"), str(root), mode="append")


def _optimize(*names: str) -> Change:
    def change(root: Path, client: str) -> None:
        if client == "theirs":
            options = {"index_names": list(names)} if names else {}
            _theirs(root).optimize.optimize_indices(**options)
        else:
            _ours(root).optimize_indices(list(names) or None)

    return change


def _index(column: str) -> Change:
    def change(root: Path, client: str) -> None:
        dataset = _theirs(root) if client == "theirs" else _ours(root)
        dataset.create_scalar_index(column, "BTREE", replace=True)

    return change


def _both(name: str, *arguments: Any) -> Change:
    def change(root: Path, client: str) -> None:
        getattr(_theirs(root) if client == "theirs" else _ours(root), name)(*arguments)

    return change


def _compact_files(root: Path, client: str) -> None:
    if client == "theirs":
        _theirs(root).optimize.compact_files()
    else:
        _ours(root).compact_files()


CHANGES: list[Change] = [
    _index("id"),
    _index("name"),
    _generation([1, 30]),
    _append,
    _generation([2]),
    _optimize(),
    _append,
    _generation([3, 31]),
    _both("delete", "id = 5"),
    _both("update", {"name": "'z'"}, "id = 6"),
    _optimize("id_idx"),
    _both("delete", "id = 7"),
    _index("name"),
    _generation([4]),
    _optimize(),
    _compact_files,
    _append,
    _generation([8]),
    _both("drop_index", "name_idx"),
    _both("update_config", {"a": "b"}),
    _index("name"),
    _optimize(),
    _both("drop_columns", ["name"]),
    _both("delete", "true"),
    _both("update_config", {"c": "d"}),
]


def _progress(root: Path) -> tuple[Any, Any]:
    details = details_of(open_table(str(root)).manifest)
    assert details is not None
    return details.compacted, details.index_catchup


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_equal_to_pylance(tmp_path: Path, stable_row_ids: bool) -> None:
    root = tmp_path / "t"
    new_table(root, enable_stable_row_ids=stable_row_ids)
    earned = 0
    for number, change in enumerate(CHANGES):
        if hasattr(change, "ids"):
            put(root, SHARD, [change.ids], text=f"g{number}.")
        copy = tmp_path / f"copy{number}"
        shutil.copytree(root, copy)
        change(copy, "ours")
        change(root, "theirs")
        assert _progress(copy) == _progress(root), number
        earned += bool(_progress(root)[1])
        shutil.rmtree(copy)
    assert earned > 10
