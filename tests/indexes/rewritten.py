"""Index files of a table, read and written again by pylance."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter


def index_file(path: Path) -> Path:
    """Return the only index file of a table."""
    (file,) = path.glob("_indices/*/*")
    return file


def content(path: Path) -> pa.Table:
    """Return the rows of the only index file of a table."""
    return LanceFileReader(str(index_file(path))).read_all().to_table()


def rewrite(path: Path, rows: pa.Table) -> None:
    """Replace the only index file of a table."""
    file = index_file(path)
    file.unlink()
    with LanceFileWriter(str(file), rows.schema, version="2.1") as writer:
        writer.write_batch(rows)
