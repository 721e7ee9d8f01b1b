"""Each type of docs/reference/types.md, both ways, in files of each version."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError
from tests.support.interop.type_table import COLUMNS, FIRST, NOT_STORED, named_on_the_page

VERSIONS = ("2.0", "2.1", "2.2", "2.3")


def test_the_page_names_each_type() -> None:
    names = named_on_the_page("From Lance to Spark, and back") + named_on_the_page(
        "Extension types and other types of Arrow"
    )
    stored = [name for name in names if name not in NOT_STORED]
    assert sorted(stored) == sorted(COLUMNS)
    assert set(NOT_STORED) <= set(names)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways(tmp_path: Path, version: str) -> None:
    """One table has all types, so that a column cannot change its neighbours."""
    names = [name for name in COLUMNS if FIRST.get(name, "") <= version]
    fields = [COLUMNS[name][0].with_name(name) for name in names]
    table = pa.table([COLUMNS[name][1] for name in names], schema=pa.schema(fields))
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    lance.write_dataset(table, theirs, data_storage_version=version)
    lance_spark.write_dataset(table, ours, data_storage_version=version)
    lance.dataset(ours).validate()
    for options in ({}, {"blob_handling": "all_binary"}):
        expected = lance.dataset(theirs).to_table(**options)
        for path in (theirs, ours):
            read = lance_spark.open_dataset(path).to_table(**options)
            # The bytes of blobs have the metadata of the column, which pylance leaves out.
            assert read.schema.equals(expected.schema, check_metadata=not options)
            by_pylance = lance.dataset(path).to_table(**options)
            for name in names:
                # Descriptions of blobs say where in the file they are.
                if options or name != "blob":
                    values = expected[name].to_pylist()
                    assert read[name].to_pylist() == values, name
                    assert by_pylance[name].to_pylist() == values, name
    for name in names:
        column = COLUMNS[name][1]
        if name not in ("string_view", "binary_view"):
            assert expected.schema.field(name).type == column.type
        assert expected[name].to_pylist() == column.to_pylist(), name


@pytest.mark.parametrize("name", NOT_STORED)
def test_types_that_no_file_has(tmp_path: Path, name: str) -> None:
    table = pa.table({"c": NOT_STORED[name]})
    with pytest.raises(OSError, match="Unsupported data type"):
        lance.write_dataset(table, str(tmp_path / "theirs"))
    with pytest.raises(UnsupportedTypeError, match=r"field 'c': type .* cannot be stored"):
        lance_spark.write_dataset(table, str(tmp_path / "ours"))
