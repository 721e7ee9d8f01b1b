"""Structs without fields, alone, in structs, lists and maps, before and after other columns:
pylance reads what we write.

What pylance would misread is refused before anything is written; what pylance itself writes, we
read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError, UnsupportedTypeError

ROWS = 7
EMPTY = pa.struct([])


def struct(*types: pa.DataType) -> pa.StructType:
    return pa.struct([(f"c{index}", dtype) for index, dtype in enumerate(types)])


SHAPES = {
    "{}": EMPTY,
    "{{}}": struct(EMPTY),
    "{{}, i}": struct(EMPTY, pa.int32()),
    "{i, {}}": struct(pa.int32(), EMPTY),
    "{i, {}, i}": struct(pa.int32(), EMPTY, pa.int32()),
    "{{}, {}}": struct(EMPTY, EMPTY),
    "{{{}}}": struct(struct(EMPTY)),
    "{[{}]}": struct(pa.list_(EMPTY)),
    "{[{}], i}": struct(pa.list_(EMPTY), pa.int32()),
    "{[i], {}}": struct(pa.list_(pa.int32()), EMPTY),
    "[{}]": pa.list_(EMPTY),
    "[{{}, i}]": pa.list_(struct(EMPTY, pa.int32())),
    "[[{}]]": pa.large_list(pa.list_(EMPTY)),
    "{} x 2": pa.list_(EMPTY, 2),
    "{{}} x 2": pa.list_(struct(EMPTY), 2),
    "map of {}": pa.map_(pa.string(), EMPTY),
    "map of {i, {}}": pa.map_(pa.string(), struct(pa.int32(), EMPTY)),
    "map of [{}]": pa.map_(pa.string(), pa.list_(EMPTY)),
}
PLACES = {
    "alone": ["c"],
    "first": ["c", "i", "s"],
    "between": ["i", "c", "s"],
    "last": ["i", "s", "c"],
    "twice": ["i", "c", "d"],
    "around": ["c", "i", "d"],
}
VERSIONS = ["2.0", "2.1", "2.2", "2.3"]


def value(dtype: pa.DataType, row: int, nulls: bool) -> Any:
    if nulls and row % 3 == 1:
        return None
    if pa.types.is_struct(dtype):
        return {field.name: value(field.type, row + 1, nulls) for field in dtype}
    if pa.types.is_map(dtype):
        return [
            (f"k{index}", value(dtype.item_type, row + index, nulls)) for index in range(row % 3)
        ]
    if pa.types.is_fixed_size_list(dtype):
        return [value(dtype.value_type, row + index, nulls) for index in range(dtype.list_size)]
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return [value(dtype.value_type, row + index, nulls) for index in range(row % 3)]
    return row


def tables(nulls: bool) -> dict[tuple[str, str], pa.Table]:
    tables_by_case = {}
    for shape, dtype in SHAPES.items():
        array = pa.array([value(dtype, row, nulls) for row in range(ROWS)], dtype)
        number = pa.array(range(ROWS), pa.int32())
        columns = {"c": array, "d": array, "i": number, "s": pa.array(["text"] * ROWS)}
        for place, names in PLACES.items():
            tables_by_case[shape, place] = pa.table({name: columns[name] for name in names})
    return tables_by_case


def reads(dataset: lance.LanceDataset, table: pa.Table) -> bool:
    """Return whether pylance reads all columns together, and each column alone."""
    selections = [table.column_names, *([name] for name in table.column_names)]
    return all(dataset.to_table(names).equals(table.select(names)) for names in selections)


def readable_by_pylance(path: Path, table: pa.Table, version: str) -> bool:
    """Return whether pylance writes the table, and reads the same values."""
    try:
        return reads(lance.write_dataset(table, str(path), data_storage_version=version), table)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return False


@pytest.mark.sample(5)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_only_tables_that_pylance_reads_are_written(
    tmp_path: Path, version: str, nulls: bool
) -> None:
    wrong, written = [], 0
    for index, ((shape, place), table) in enumerate(tables(nulls).items()):
        ours = tmp_path / f"ours{index}"
        expected = readable_by_pylance(tmp_path / f"theirs{index}", table, version)
        try:
            lance_spark.write_dataset(table, str(ours), data_storage_version=version)
        except LanceError:
            assert not ours.exists() or not list(ours.rglob("*.*"))
            # Only the sparse structures of pylance have such vectors.
            if expected and not (version == "2.3" and shape.endswith(" x 2")):
                wrong.append(f"{place} {shape} is refused")
            continue
        written += 1
        if not reads(lance.dataset(str(ours)), table):
            wrong.append(f"{place} {shape} is misread")
        elif not lance_spark.open_dataset(str(ours)).to_table().equals(table):
            wrong.append(f"{place} {shape}: we misread it")
    assert wrong == []
    assert written or nulls


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_files_of_pylance_that_pylance_misreads_are_read(tmp_path: Path, version: str) -> None:
    for shape in ("{}", "{{}, i}"):
        table = tables(False)[shape, "first"]
        path = str(tmp_path / shape)
        lance.write_dataset(table, path, data_storage_version=version)
        assert lance_spark.open_dataset(path).to_table().equals(table)


CHANGES: dict[str, Callable[[lance_spark.Dataset], Any]] = {
    "compact": lambda d: d.compact_files(),
    "update": lambda d: d.update({"i": 0}, [("i", "==", 1)]),
    "append": lambda d: lance_spark.write_dataset(d.to_table(), d.uri, mode="append"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_changes_keep_tables_readable(tmp_path: Path, version: str, change: str) -> None:
    path = str(tmp_path / "t")
    table = tables(False)["{i, {}}", "last"]
    lance.write_dataset(table, path, data_storage_version=version)
    lance.write_dataset(table, path, mode="append")
    CHANGES[change](lance_spark.open_dataset(path))
    after = lance_spark.open_dataset(path).to_table()
    assert reads(lance.dataset(path), after)
    # The new column is in a file of its own. After that, no new file can have all columns.
    lance.dataset(path).add_columns({"x": "i + 1"})
    after = lance_spark.open_dataset(path).to_table()
    assert reads(lance.dataset(path), after)
    version_before = lance_spark.open_dataset(path).version
    with pytest.raises(
        UnsupportedTypeError, match=r"'c\.c1' is a struct without fields and 'x' follows"
    ):
        CHANGES[change](lance_spark.open_dataset(path))
    assert lance.dataset(path).version == version_before
    assert reads(lance.dataset(path), after)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("key", ["lance-encoding:packed", "packed"])
def test_packed_structs_without_fields_are_refused(tmp_path: Path, key: str, version: str) -> None:
    column = pa.Array.from_buffers(EMPTY, ROWS, [None], children=[])
    schema = pa.schema([pa.field("c", EMPTY, metadata={key: "true"})])
    with pytest.raises(UnsupportedTypeError, match=r"'c'.* packed struct"):
        lance_spark.write_dataset(
            pa.table([column], schema=schema), str(tmp_path), data_storage_version=version
        )
    assert not list(tmp_path.rglob("*.*"))
