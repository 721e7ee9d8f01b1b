"""Tables of words that updates change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import lance_spark
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.update import Update
from tests.support.tables.pylance_written import manifests

ROWS = 30
LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows(start: int = 0, count: int = ROWS) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "word": [f"w{i}" for i in numbers]})


def new_table(path: Path, **options: object) -> lance.LanceDataset:
    """Write fragments of 10 rows, ids 0 to 29."""
    return lance.write_dataset(rows(), str(path), max_rows_per_file=10, **options)


def content(path: Path, *, lineage: bool = False) -> list[dict[str, Any]]:
    """Return all rows by id, after both clients agree on them."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    columns = ["id", "word", *(LINEAGE if lineage else [])]
    table = theirs.to_table(columns=columns)
    assert lance_spark.open_dataset(str(path)).to_table(columns) == table
    return sorted(table.to_pylist(), key=lambda row: (row["id"], row["word"]))


def words(path: Path) -> dict[int, str]:
    result = content(path)
    assert len({row["id"] for row in result}) == len(result)
    return {row["id"]: row["word"] for row in result}


def data_files(path: Path) -> set[str]:
    return {file.name for file in (path / "data").iterdir()}


def referred(path: Path) -> set[str]:
    return {f.path for m in manifests(path) for fragment in m.fragments for f in fragment.files}


def shapes(path: Path, version: int = -1) -> list[tuple[object, ...]]:
    """Return the content of a version, without random parts."""
    return [
        (
            fragment.id,
            fragment.physical_rows,
            fragment.num_deleted_rows,
            [(file.fields, file.version) for file in fragment.files],
            fragment.to_proto().inline_created_at_versions,
            fragment.to_proto().inline_last_updated_at_versions,
        )
        for fragment in manifests(path)[version].fragments
    ]


def last_update(path: Path) -> Update:
    result = read_transaction(open_table(str(path)).store, manifests(path)[-1])
    assert result is not None
    assert isinstance(result.operation, Update)
    return result.operation
