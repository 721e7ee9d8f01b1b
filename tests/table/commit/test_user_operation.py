"""Operations of users: their transactions contain less than transactions of our plans."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError
from lance_spark.table.operations.append import Append
from tests.support.tables.pylance_written import new_table, rows, written_by_pylance

LINEAGE = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def lineage(path: Path) -> list[dict[str, Any]]:
    table = lance.dataset(str(path)).to_table(columns=LINEAGE)
    assert lance_spark.open_dataset(str(path)).to_table(LINEAGE) == table
    return sorted(table.to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("change", ["update", "merge_insert"])
@pytest.mark.parametrize("detached", [False, True])
def test_updated_rows_keep_their_created_version(
    tmp_path: Path, change: str, spilled: bool, detached: bool
) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    dataset = new_table(theirs, enable_stable_row_ids=True)
    if spilled:
        values = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}
        dataset.update_config(values)
    dataset = lance.write_dataset(rows(6), str(theirs), mode="append")
    dataset.update({"word": "'moved'"}, "id = 0")
    shutil.copytree(theirs, mine)
    version = dataset.version
    if change == "update":
        dataset.update({"word": "'new'"}, "id in (0, 1, 7)")
    else:
        new = pa.table({"id": pa.array([7, 90, 0, 1], pa.int64()), "word": ["a", "b", "c", "d"]})
        builder = dataset.merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(new)
    for folder in ("data", "_deletions"):
        shutil.copytree(theirs / folder, mine / folder, dirs_exist_ok=True)
    made = lance_spark.open_dataset(str(theirs)).read_transaction(version + 1)
    assert made is not None
    committed = lance_spark.Dataset.commit(str(mine), made, detached=detached)
    expected = lineage(theirs)
    assert len({row["_row_created_at_version"] for row in expected}) > 1
    if not detached:
        assert lineage(mine) == expected
        return
    result = committed.to_table(LINEAGE[:3]).to_pylist()
    for row in expected:
        del row["_row_last_updated_at_version"]
        if row["_row_created_at_version"] > version:
            row["_row_created_at_version"] = committed.version
    assert sorted(result, key=lambda row: int(row["id"])) == expected


def test_append_after_a_change_of_type(tmp_path: Path) -> None:
    """pylance commits this and loses the values, because no field has their id."""
    path = tmp_path / "t"
    dataset = new_table(path)
    fragments = written_by_pylance(path, rows(6))
    dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    with pytest.raises(
        CommitConflictError, match="the type of the column of field 0 was changed"
    ) as e:
        lance_spark.Dataset.commit(str(path), Append(fragments), 1)
    assert e.value.retryable


def test_append_after_a_drop_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = new_table(path)
    fragments = written_by_pylance(path, rows(6))
    dataset.drop_columns(["word"])
    made = lance_spark.Dataset.commit(str(path), Append(fragments), 1)
    assert made.to_table() == pa.table({"id": pa.array(range(9), pa.int64())})
