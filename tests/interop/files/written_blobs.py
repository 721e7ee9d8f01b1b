"""Reads of tables with blobs by pylance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

VERSIONS = ("2.0", "2.1", "2.2", "2.3")


def read(path: Path, **options: Any) -> pa.Table:
    dataset = lance.dataset(str(path))
    dataset.validate()
    return dataset.to_table(**options)


def content(path: Path, column: str = "b") -> list[Any]:
    return read(path, blob_handling="all_binary")[column].to_pylist()


def kinds(path: Path, column: str = "b") -> list[Any]:
    """Return the description of each blob, without its position in the data file."""
    return [
        description
        and (
            description["kind"],
            description["kind"] and description["position"],
            description["size"],
            description["blob_id"],
            description["blob_uri"],
        )
        for description in read(path)[column].to_pylist()
    ]


def in_pieces(data: pa.Table, rows: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=rows))
