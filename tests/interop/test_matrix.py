"""Every type x pattern x nulls x size, both ways between this package and pylance."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from tests.interop.conftest import Pylance
from tests.interop.tables import (
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

#: What pylance itself refuses to write in 2.0: nulls of structs.
STRUCTS = {name for name, kind in ALL.items() if "struct" in str(kind)}


def matrix_table(pattern: str, nulls: str, rows: int, version: str) -> pa.Table:
    names = [n for n in ALL if not (version == "2.0" and nulls != "none" and n in STRUCTS)]
    return pa.table(
        {name: column(ALL[name], pattern, nulls, rows, zlib.crc32(name.encode())) for name in names}
    )


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_we_read_pylance(
    pylance: Pylance, tmp_path: Path, version: str, pattern: str, nulls: str, rows: int
) -> None:
    table = matrix_table(pattern, nulls, rows, version)
    pylance.write(table, tmp_path / "t.lance", version)
    got = lance_spark.open_dataset(str(tmp_path / "t.lance")).to_table()
    # 2.0 does not keep everything (an empty list of nulls, for one): what pylance reads is what is there.
    expected = pylance.read(tmp_path / "t.lance") if version == "2.0" else table
    assert_same(got, expected, f"{version} {pattern} {nulls} {rows}")


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pylance_reads_us(
    pylance: Pylance, tmp_path: Path, version: str, pattern: str, nulls: str, rows: int
) -> None:
    table = matrix_table(pattern, nulls, rows, version)
    path = tmp_path / "t.lance"
    lance_spark.write_dataset(table, str(path), data_storage_version=version)
    assert_same(pylance.read(path), table, f"{version} {pattern} {nulls} {rows}")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), table, "our own")
