"""Children of structs that some fragments lack: changes of them keep the nulls of the struct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError

STRUCTS = [{"a": 1}, None, {"a": 3}]


@pytest.fixture(params=["with nulls", "without"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Write a struct without its child `c`, and then rows of it with one."""
    uri = str(tmp_path / "t")
    values = STRUCTS if request.param == "with nulls" else [value or {"a": 2} for value in STRUCTS]
    structs = pa.array(values, pa.struct([("a", pa.int64())]))
    lance.write_dataset(
        pa.table({"i": range(3), "s": structs}),
        uri,
        data_storage_version="2.2",
        max_rows_per_file=2,
    )
    lance.dataset(uri).add_columns(pa.field("s", pa.struct([("c", pa.int32())])))
    appended = pa.array(
        [{"a": 4, "c": 40}, None], pa.struct([("a", pa.int64()), ("c", pa.int32())])
    )
    lance.write_dataset(pa.table({"i": [3, 4], "s": appended}), uri, mode="append")
    return uri


def cast(child: str, dtype: pa.DataType) -> dict[str, Any]:
    return {"path": f"s.{child}", "data_type": dtype}


def check(uri: str, expected: list[Any]) -> None:
    assert open_dataset(uri).to_table(["s"])["s"].to_pylist() == expected
    assert lance.dataset(uri).to_table(["s"])["s"].to_pylist() == expected


def test_casts_one_after_the_other(path: str) -> None:
    expected = lance.dataset(path).to_table()["s"].to_pylist()
    open_dataset(path).alter_columns(cast("c", pa.int64()))
    check(path, expected)
    open_dataset(path).alter_columns(cast("a", pa.int32()))
    check(path, expected)
    open_dataset(path).compact_files()
    check(path, expected)


def test_a_file_that_takes_all_structs_for_null(path: str) -> None:
    """A file of one child can store nulls of the struct; other files of the fragment decide."""
    expected = lance.dataset(path).to_table()["s"].to_pylist()

    open_dataset(path).alter_columns(cast("c", pa.int64()))
    fragment = lance.dataset(path).get_fragments()[0]
    name = Path(path) / "data" / fragment.metadata.files[-1].path
    field = fragment.metadata.files[-1].fields
    dtype = pa.struct([("c", pa.int64())])
    with lance.file.LanceFileWriter(
        str(name.with_name("other.lance")), pa.schema([("s", dtype)]), version="2.2"
    ) as writer:
        writer.write_batch(pa.table({"s": pa.nulls(fragment.metadata.physical_rows, dtype)}))
    replacement = lance.fragment.DataFile("other.lance", field, [0], 2, 2)
    group = lance.LanceOperation.DataReplacementGroup(0, replacement)
    operation = lance.LanceOperation.DataReplacement([group])
    dataset = lance.dataset(path)
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)
    check(path, expected)
    open_dataset(path).alter_columns(cast("a", pa.int32()))
    check(path, expected)


def test_values_that_are_missing_are_nulls(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"'s.c' has nulls"):
        open_dataset(path).alter_columns({"path": "s.c", "nullable": False})
    with pytest.raises(OSError, match="NULL"):
        lance.dataset(path).alter_columns({"path": "s.c", "nullable": False})
    altered = open_dataset(path).alter_columns({"path": "s.a", "nullable": False})
    assert not altered.schema.field("s").type.field("a").nullable


def test_reads_of_only_a_missing_child(path: str) -> None:
    """Reads of only this child show which structs are null."""
    table = open_dataset(path)
    rows = range(table.count_rows())
    expected = lance.dataset(path).take(rows, columns=["s.c"])["s"].to_pylist()
    assert {"c": None} in expected
    assert table.take(rows, ["s.c"])["s"].to_pylist() == expected
    values = [row and row["c"] for row in expected]
    assert table.to_table(["s.c"])["s.c"].to_pylist() == values
    assert table.to_table(["s.c"], filters=[("i", "<", 9)])["s.c"].to_pylist() == values


@pytest.mark.parametrize("inner", [{"c": 1}, None])
def test_missing_children_of_structs_in_structs(tmp_path: Path, inner: Any) -> None:
    uri = str(tmp_path / "t")
    dtype = pa.struct([("x", pa.int32()), ("t", pa.struct([("c", pa.int32())]))])
    structs = pa.array([{"x": 1, "t": inner}, None, {"x": None, "t": {"c": None}}], dtype)
    lance.write_dataset(pa.table({"s": structs}), uri, data_storage_version="2.2")
    new = pa.struct([("t", pa.struct([("d", pa.string())]))])
    lance.dataset(uri).add_columns(pa.field("s", new))
    for columns in (["s.t.d"], ["s.x", "s.t.d"], ["s.t"], ["s"]):
        structs_read = open_dataset(uri).take([0, 1, 2], columns)["s"].to_pylist()
        assert structs_read == lance.dataset(uri).take([0, 1, 2], columns=columns)["s"].to_pylist()
