"""Columns that cannot be in a primary key: pylance does not read a table that has such a key."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.table.commit import write
from lance_spark.table.manifest import builder

NAME = "lance-schema:unenforced-primary-key"
KEY = {NAME: "true"}
INT = pa.field("x", pa.int64(), False)
WRONG = {
    "nullable": (pa.field("k", pa.int64(), True, KEY), [1, 2], "'k' .* field 'k' is nullable"),
    "another word": (
        pa.field("k", pa.int64(), True, {NAME: "ON"}),
        [1, 2],
        "'k' .* field 'k' is nullable",
    ),
    "position": (
        pa.field("k", pa.int64(), True, {f"{NAME}:position": "1"}),
        [1, 2],
        "'k' .* field 'k' is nullable",
    ),
    "struct": (
        pa.field("k", pa.struct([INT]), False, KEY),
        [{"x": 1}, {"x": 2}],
        "'k' .* it has fields below it",
    ),
    "child": (
        pa.field("k", pa.struct([INT.with_metadata(KEY)])),
        [{"x": 1}, {"x": 2}],
        "'k.x' .* field 'k' is nullable",
    ),
    "list": (
        pa.field("k", pa.list_(INT.with_metadata(KEY)), False),
        [[1], [2]],
        "'k.x' .* it is in a list or a map",
    ),
    "map": (
        pa.field("k", pa.map_(pa.field("key", pa.string(), False, KEY), pa.int32()), False),
        [{"a": 1}, {"b": 2}],
        "'k.entries.key' .* it is in a list or a map",
    ),
}


def rows_of(field: pa.Field, values: list[object]) -> pa.Table:
    return pa.table({"k": values, "v": [1, 2]}, pa.schema([field, pa.field("v", pa.int32())]))


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write tables with any key."""
    for module in (write, builder):
        monkeypatch.setattr(module, "check_fields", lambda *arguments: None)


@pytest.mark.parametrize("case", WRONG)
def test_a_new_table_with_a_wrong_key(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, values, reason = WRONG[case]
    rows = rows_of(field, values)
    with pytest.raises(InvalidInputError, match=f"column {reason}: pylance could not read"):
        lance_spark.write_dataset(rows, str(tmp_path / "checked"))
    assert not (tmp_path / "checked").exists()
    unchecked(monkeypatch)
    lance_spark.write_dataset(rows, str(tmp_path / "unchecked"))
    with pytest.raises(ValueError, match="Primary key column"):
        lance.dataset(str(tmp_path / "unchecked")).to_table()


@pytest.mark.parametrize(
    "field",
    [
        pa.field("k", pa.int64(), False, KEY),
        pa.field("k", pa.struct([INT.with_metadata(KEY)]), False),
    ],
)
def test_keys_that_pylance_reads(field: pa.Field, tmp_path: Path) -> None:
    values = [1, 2] if field.type == pa.int64() else [{"x": 1}, {"x": 2}]
    rows = rows_of(field, values)
    lance_spark.write_dataset(rows, str(tmp_path / "t"))
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(rows)


@pytest.mark.parametrize("metadata", [KEY, {f"{NAME}:position": "1"}])
def test_metadata_of_a_column_that_cannot_be_in_a_key(
    metadata: dict[str, str], tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    rows = rows_of(pa.field("k", pa.list_(INT), False), [[1], [2]])
    dataset = lance_spark.write_dataset(rows, path)
    for name in ("v", "k", "k.x"):
        with pytest.raises(InvalidInputError, match="cannot be in the primary key"):
            dataset.update_field_metadata({name: metadata})
    assert lance.dataset(path).version == 1


def test_a_column_of_the_key_stays_not_nullable(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = rows_of(pa.field("k", pa.struct([INT.with_metadata(KEY)]), False), [{"x": 1}, {"x": 2}])
    dataset = lance_spark.write_dataset(rows, path)
    for name in ("k", "k.x"):
        with pytest.raises(InvalidInputError, match=r"'k.x' .*is nullable"):
            dataset.alter_columns({"path": name, "nullable": True})
    with pytest.raises(InvalidInputError, match="field 'new' is nullable"):
        dataset.add_columns(pa.field("new", pa.int64(), True, KEY))
    assert lance.dataset(path).to_table().equals(rows)


def test_a_wrong_key_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of an older writer can be changed, so that pylance can read it again."""
    path = str(tmp_path / "t")
    rows = rows_of(pa.field("k", pa.int64(), True, KEY), [1, 2])
    with monkeypatch.context() as context:
        unchecked(context)
        lance_spark.write_dataset(rows, path)
    lance_spark.write_dataset(rows, path, mode="append")
    dataset = lance_spark.open_dataset(path)
    dataset.add_columns(pa.field("w", pa.int64()))
    with pytest.raises(ValueError, match="Primary key column"):
        lance.dataset(path).to_table()
    lance_spark.open_dataset(path).alter_columns({"path": "k", "nullable": False})
    assert lance.dataset(path).to_table()["k"].to_pylist() == [1, 2, 1, 2]
