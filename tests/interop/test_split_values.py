"""Structs and lists whose fields are in several files, or in none, after changes of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedFeatureError

INT = pa.int64()
Rows = list[dict[str, Any]]


def struct(*names: str) -> pa.DataType:
    return pa.struct([(name, INT) for name in names])


def write(path: Path, rows: Rows, *fields: pa.Field, mode: str = "create") -> Dataset:
    table = pa.Table.from_pylist(rows, schema=pa.schema([("i", INT), *fields]))
    return lance_spark.write_dataset(table, str(path), mode=mode, data_storage_version="2.2")


def check(path: Path, rows: Rows) -> None:
    """Compare both readers, and what a compaction writes."""
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.to_table().to_pylist() == rows
    dataset.compact_files(target_rows_per_fragment=1_000, max_overlays_per_fragment=0)
    assert lance.dataset(str(path)).to_table().to_pylist() == rows


@pytest.mark.parametrize("how", ["added", "appended"])
def test_overlay_of_a_field_that_no_file_holds(how: str, tmp_path: Path) -> None:
    rows: Rows = [{"i": i, "s": {"a": i} if i else None} for i in range(4)]
    path = tmp_path / "t"
    if how == "added":
        write(path, rows, pa.field("s", struct("a"))).add_columns(
            pa.schema([pa.field("s", struct("b"))])
        )
    else:
        write(path, [], pa.field("s", struct("a", "b")))
        write(path, rows, pa.field("s", struct("a")), mode="append")
    dataset = lance_spark.open_dataset(str(path))
    dataset.update({"s.b": 7}, "i = 2", mode="overlay")
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.to_table(columns=["s.b"]).to_pylist()[2] == {"s.b": 7}
    assert dataset.count_rows("s.b = 7") == 1
    assert dataset.count_rows("s IS NULL") == 1
    check(
        path,
        [{"i": i, "s": {"a": i, "b": 7 if i == 2 else None} if i else None} for i in range(4)],
    )


def test_overlays_of_a_list_in_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pylance casts a field below overlays, which it cannot read then; here it is refused."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t"
    rows: Rows = [{"i": i, "l": [{"a": i, "b": -i}] * i} for i in range(4)]
    dataset = write(path, rows, pa.field("l", pa.list_(struct("a", "b"))))
    dataset.update({"l": [{"a": 8, "b": 9}]}, "i = 3", mode="overlay")
    lance.dataset(str(path)).alter_columns({"path": "l.item.b", "data_type": pa.int16()})
    dataset = lance_spark.open_dataset(str(path))
    dataset.update({"l": [{"a": 18, "b": 19}]}, "i = 2", mode="overlay")
    check(path, [*rows[:2], {"i": 2, "l": [{"a": 18, "b": 19}]}, {"i": 3, "l": [{"a": 8, "b": 9}]}])


def lists(path: Path) -> Dataset:
    """Write a fragment with both fields of the items, and one with `b` alone."""
    write(path, [{"i": 0, "l": [{"a": 1, "b": 1}]}], pa.field("l", pa.list_(struct("a", "b"))))
    more: Rows = [{"i": 1, "l": [{"b": 2}, {"b": 3}]}, {"i": 2, "l": None}]
    return write(path, more, pa.field("l", pa.list_(struct("b"))), mode="append")


def test_a_cast_in_lists_of_a_field_that_a_fragment_lacks(tmp_path: Path) -> None:
    lists(tmp_path / "t").alter_columns({"path": "l.item.a", "data_type": pa.int32()})
    items: list[Any] = [[{"a": 1, "b": 1}], [{"a": None, "b": 2}, {"a": None, "b": 3}], None]
    check(tmp_path / "t", [{"i": i, "l": part} for i, part in enumerate(items)])


def test_nulls_in_lists_of_a_field_that_a_fragment_lacks(tmp_path: Path) -> None:
    dataset = lists(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"'l\.item\.a' has nulls"):
        dataset.alter_columns({"path": "l.item.a", "nullable": False})


@pytest.mark.parametrize("is_nullable", [True, False])
def test_a_drop_of_what_says_where_a_struct_is_null(is_nullable: bool, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows: Rows = [{"i": i, "s": {"b": i or None}} for i in range(3)]
    if is_nullable:
        rows.append({"i": 3, "s": None})
    dataset = write(path, rows, pa.field("s", struct("b"), is_nullable)).add_columns(
        pa.schema([pa.field("s", struct("c"))])
    )
    before = dataset.to_table().to_pylist()
    with pytest.raises(UnsupportedFeatureError, match="nothing would say where it is null"):
        dataset.drop_columns(["s.b"])
    # What the error says.
    dataset.update({"s.c": 1}, "s IS NOT NULL", mode="columns")
    lance_spark.open_dataset(str(path)).drop_columns(["s.b"])
    check(path, [{**row, "s": row["s"] and {"c": 1}} for row in before])


def test_a_drop_of_what_says_how_long_a_list_is(tmp_path: Path) -> None:
    dataset = lists(tmp_path / "t")
    with pytest.raises(UnsupportedFeatureError, match="nothing would say where it is null"):
        dataset.drop_columns(["l.item.b"])
    # Both fragments have it.
    write(
        tmp_path / "u",
        [{"i": 0, "l": [{"a": 1, "b": 1}]}],
        pa.field("l", pa.list_(struct("a", "b"))),
    )
    lance_spark.open_dataset(str(tmp_path / "u")).drop_columns(["l.item.b"])
    check(tmp_path / "u", [{"i": 0, "l": [{"a": 1}]}])


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("change", [{"data_type": pa.int32()}, {"nullable": False}])
def test_alterations_below_a_map(part: str, change: dict[str, Any], tmp_path: Path) -> None:
    dtype = pa.map_(INT, INT)
    rows: Rows = [{"i": 0, "m": [(1, 2)]}, {"i": 1, "m": None}]
    dataset = write(tmp_path / "t", rows, pa.field("m", dtype))
    if part == "key" and "nullable" in change:
        dataset.alter_columns({"path": "m.entries.key", **change})
    else:
        with pytest.raises(LanceError, match="is in a map, so it cannot be"):
            dataset.alter_columns({"path": f"m.entries.{part}", **change})
    check(tmp_path / "t", rows)
