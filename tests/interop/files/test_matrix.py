"""Every type x pattern x nulls x size, both ways between this package and pylance.

`make test` tries cells in which each pair of version, pattern, nulls and size occurs;
`make test-long` tries all cells.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from tests.interop.conftest import Pylance
from tests.support.cells import cells
from tests.support.interop.tables import (
    NESTED,
    NULLS,
    PATTERNS,
    SCALARS,
    SIZES,
    VECTORS,
    assert_same,
    column,
)

ALL = {**SCALARS, **VECTORS, **NESTED}

#: Nulls of structs, which pylance refuses to write in version 2.0.
STRUCTS = {name for name, dtype in ALL.items() if "struct" in str(dtype)}

VERSIONS = ("2.0", "2.1", "2.2", "2.3")
CELLS = cells(VERSIONS, list(PATTERNS), list(NULLS), SIZES)


def matrix_table(pattern: str, nulls: str, rows: int, version: str) -> pa.Table:
    names = [n for n in ALL if not (version == "2.0" and nulls != "none" and n in STRUCTS)]
    return pa.table(
        {name: column(ALL[name], pattern, nulls, rows, zlib.crc32(name.encode())) for name in names}
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(("version", "pattern", "nulls", "rows"), CELLS)
def test_tables_of_pylance_are_read(
    pylance: Pylance, tmp_path: Path, version: str, pattern: str, nulls: str, rows: int
) -> None:
    table = matrix_table(pattern, nulls, rows, version)
    pylance.write(table, tmp_path / "t.lance", version)
    table_read = lance_spark.open_dataset(str(tmp_path / "t.lance")).to_table()
    # Version 2.0 does not keep everything, for example lists with only nulls: the expected values
    # are the values that pylance reads.
    expected = pylance.read(tmp_path / "t.lance") if version == "2.0" else table
    assert_same(table_read, expected, f"{version} {pattern} {nulls} {rows}")


@pytest.mark.sample(3)
@pytest.mark.parametrize(("version", "pattern", "nulls", "rows"), CELLS)
def test_pylance_reads_written_tables(
    pylance: Pylance, tmp_path: Path, version: str, pattern: str, nulls: str, rows: int
) -> None:
    table = matrix_table(pattern, nulls, rows, version)
    path = tmp_path / "t.lance"
    lance_spark.write_dataset(table, str(path), data_storage_version=version)
    assert_same(pylance.read(path), table, f"{version} {pattern} {nulls} {rows}")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), table, "our own")
