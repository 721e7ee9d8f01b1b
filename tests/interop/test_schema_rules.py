"""Changes of a schema after which pylance could not read the table, or would read other values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset, Fragment, LanceOperation
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedTypeError
from lance_spark.mutations.columns import alter
from lance_spark.table.commit import write
from lance_spark.table.manifest import builder
from lance_spark.table.operations import metadata as update_config

PAIR = pa.struct([("x", pa.int64()), ("y", pa.int64())])
PACKED = {"lance-encoding:packed": "true"}
ROWS = [{"x": 1, "y": 100}, {"x": 2, "y": 200}]
TABLE = pa.table(
    [
        pa.array(ROWS, PAIR),
        pa.array(ROWS, PAIR),
        pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
        pa.array([b"a", b"b"]),
    ],
    schema=pa.schema(
        [
            pa.field("p", PAIR, metadata=PACKED),
            pa.field("s", PAIR),
            pa.field("m", pa.map_(pa.string(), pa.int32())),
            pa.field("b", pa.binary()),
        ]
    ),
)
Change = Callable[[Dataset], Any]
CHANGES: dict[str, tuple[Change, str]] = {
    "drop values of a map": (
        lambda dataset: dataset.drop_columns(["m.entries.value"]),
        "'m' is a map, which needs keys and values",
    ),
    "drop keys of a map": (
        lambda dataset: dataset.drop_columns(["m.entries.key"]),
        "'m' is a map, which needs keys and values",
    ),
    "nullable keys": (
        lambda dataset: dataset.alter_columns({"path": "m.entries.key", "nullable": True}),
        "'m' is a map, whose entries and keys cannot be nullable",
    ),
    "nullable entries": (
        lambda dataset: dataset.alter_columns({"path": "m.entries", "nullable": True}),
        "'m' is a map, whose entries and keys cannot be nullable",
    ),
    "drop below a packed struct": (
        lambda dataset: dataset.drop_columns(["p.x"]),
        "'p' is a packed struct",
    ),
    "add below a packed struct": (
        lambda dataset: dataset.add_columns(pa.field("p", pa.struct([("z", pa.int64())]))),
        "'p' is a packed struct",
    ),
    "cast below a packed struct": (
        lambda dataset: dataset.alter_columns({"path": "p.x", "data_type": pa.int32()}),
        "'p' is a packed struct",
    ),
    "pack": (
        lambda dataset: dataset.update_field_metadata({"s": PACKED}),
        "a packed struct instead of stored in pages",
    ),
    "unpack": (
        lambda dataset: dataset.update_field_metadata({"p": {"lance-encoding:packed": None}}),
        "stored in pages instead of a packed struct",
    ),
    "unpack by replacement": (
        lambda dataset: dataset.update_field_metadata({"p": {"comment": "c"}}, replace=True),
        "stored in pages instead of a packed struct",
    ),
    "blob": (
        lambda dataset: dataset.update_field_metadata({"b": {"lance-encoding:blob": "true"}}),
        "a blob instead of stored in pages",
    ),
    "field id": (
        lambda dataset: dataset.update_field_metadata({"b": {"lance:field_id": "x"}}),
        "'b' cannot have the metadata 'lance:field_id'",
    ),
}


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def patch() -> None:
        for module in (write, builder, update_config, alter):
            monkeypatch.setattr(module, "check_fields", lambda *arguments: None)

    return patch


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str, tmp_path: Path, unchecked: Callable[[], None]) -> None:
    change, message = CHANGES[name]
    path = str(tmp_path / "t")
    lance_spark.write_dataset(TABLE, path, data_storage_version="2.2")
    before = sorted(file for file in (tmp_path / "t").rglob("*") if file.is_file())
    with pytest.raises(InvalidInputError, match=message):
        change(lance_spark.open_dataset(path))
    assert sorted(file for file in (tmp_path / "t").rglob("*") if file.is_file()) == before
    assert lance.dataset(path).to_table().to_pylist() == TABLE.to_pylist()
    unchecked()
    change(lance_spark.open_dataset(path))
    try:
        rows = lance.dataset(path).to_table().to_pylist()
    except (OSError, ValueError):
        return
    # Nulls, or the values of the other child.
    assert rows[0]["p"] != {"y": 100}
    assert rows[0]["s"] is None or rows[0]["p"] in (None, {"y": 1})


def test_changes_that_pylance_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance_spark.write_dataset(TABLE, path, data_storage_version="2.2")
    dataset = lance_spark.open_dataset(path).alter_columns(
        {"path": "p.x", "name": "q"}, {"path": "m.entries.value", "nullable": True}
    )
    dataset = dataset.update_field_metadata({"p": {"comment": "c"}, "b": {"comment": "d"}})
    dataset = dataset.drop_columns(["s.x"]).add_columns(
        pa.field("s", pa.struct([("z", pa.int64())]))
    )
    rows = lance.dataset(path).to_table().to_pylist()
    assert rows == dataset.to_table().to_pylist()
    assert rows[0]["p"] == {"q": 1, "y": 100}
    assert rows[0]["s"] == {"y": 100, "z": None}
    assert dataset.drop_columns(["m", "p"]).to_table().column_names == ["s", "b"]


@pytest.mark.parametrize("key", ["packed", "lance-encoding:packed"])
@pytest.mark.parametrize("value", ["1", "yes", "On"])
def test_packed_structs_by_another_word(key: str, value: str, tmp_path: Path) -> None:
    """pylance writes a packed struct, and cannot read it."""
    schema = pa.schema([pa.field("s", PAIR, metadata={key: value}), pa.field("z", pa.int64())])
    rows = pa.table([pa.array(ROWS, PAIR), [7, 8]], schema=schema)
    with pytest.raises(LanceError, match=f"metadata '{key}'"):
        lance_spark.write_dataset(rows, str(tmp_path / "ours"), data_storage_version="2.2")
    assert not (tmp_path / "ours").exists()
    lance.write_dataset(rows, str(tmp_path / "theirs"), data_storage_version="2.2")
    assert lance_spark.open_dataset(str(tmp_path / "theirs")).to_table().equals(rows)


def test_field_ids_in_metadata(tmp_path: Path) -> None:
    """Schemas that come from pylance have them; new fields have ids of their own."""
    path = str(tmp_path / "t")
    metadata = {"lance:field_id": "0", "comment": "c"}
    schema = pa.schema([pa.field(name, pa.int64(), metadata=metadata) for name in "ab"])
    lance_spark.write_dataset(pa.table([[1], [2]], schema=schema), path)
    table = lance.dataset(path).to_table()
    assert table.to_pylist() == [{"a": 1, "b": 2}]
    assert table.schema.field("a").metadata == {b"comment": b"c"}


def test_an_extension_type_that_values_do_not_have(tmp_path: Path) -> None:
    tags = {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}
    wrong = pa.table([[1]], schema=pa.schema([pa.field("x", pa.int64(), metadata=tags)]))
    with pytest.raises(UnsupportedTypeError, match=r"names the extension type arrow\.uuid"):
        lance_spark.write_dataset(wrong, str(tmp_path / "t"))
    fine = pa.schema([pa.field("x", pa.binary(16), metadata=tags)])
    lance_spark.write_dataset(pa.table([[b"0" * 16]], schema=fine), str(tmp_path / "t"))
    assert lance.dataset(str(tmp_path / "t")).to_table().schema.field("x").type == pa.uuid()


def test_a_fragment_without_files(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(pa.table({"a": [1]}), path)
    with pytest.raises(InvalidInputError, match="a new fragment has no data files"):
        Dataset.commit(dataset, LanceOperation.Append([Fragment(0, [], 5)]), dataset.version)
    assert lance.dataset(path).to_table().to_pylist() == [{"a": 1}]
