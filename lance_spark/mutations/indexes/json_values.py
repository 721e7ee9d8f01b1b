"""Values at a path of JSON documents, which a temporary folder keeps until all have been read.

The type of the values is known after the last document. So the documents are read once, a batch
at a time, and their values are written to the local disk in parts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from lance_spark.mutations.indexes.column import ColumnPart, joined
from lance_spark.mutations.indexes.segment_files import local_folder
from lance_spark.scan.indexes import json_path
from lance_spark.table.rows.u64_segments import UInt64Array


@contextmanager
def values_at(
    batches: Iterable[tuple[pa.Array, UInt64Array]], path: str, part_bytes: int
) -> Iterator[tuple[pa.DataType, Iterator[ColumnPart]]]:
    """Lend the values at a path, and the id or address of each, in parts of about some bytes.

    Parameters
    ----------
    batches : iterable of (pa.Array, uint64 array)
        Documents, and the id or address of each.
    path : str
    part_bytes : int

    Yields
    ------
    DataType
        The type of all values.
    iterator of ColumnPart
        One part or more.

    Raises
    ------
    CorruptFileError, InvalidInputError, UnsupportedFeatureError
        As `json_path.extracted`.
    """
    dtype: pa.DataType | None = None
    waiting: list[tuple[pa.Array, UInt64Array]] = []
    size = 0
    files: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="lance-values-", dir=local_folder()) as folder:
        for documents, ids in batches:
            values = json_path.extracted(documents, path)
            dtype = json_path.common_type(dtype, values, path)
            waiting.append((values, ids))
            size += values.nbytes + ids.nbytes
            if size >= part_bytes:
                files.append(Path(folder) / str(len(files)))
                _write(files[-1], _part(waiting, dtype))
                waiting, size = [], 0
        known = dtype or pa.string()
        yield known, _parts(files, waiting, known)


def _parts(
    files: list[Path], waiting: list[tuple[pa.Array, UInt64Array]], dtype: pa.DataType
) -> Iterator[ColumnPart]:
    for file in files:
        with pa.OSFile(str(file)) as source:
            rows = pa.ipc.open_file(source).read_all().combine_chunks()
            values, ids = (column.combine_chunks() for column in rows.columns)
            yield ColumnPart(json_path.as_type(values, dtype), ids.to_numpy(), is_last=False)
    yield _part(waiting, dtype)


def _part(waiting: list[tuple[pa.Array, UInt64Array]], dtype: pa.DataType | None) -> ColumnPart:
    known = dtype or pa.string()
    values = [json_path.as_type(own, known) for own, _ in waiting]
    return ColumnPart(*joined(values, [pa.array(ids) for _, ids in waiting], known), is_last=True)


def _write(file: Path, part: ColumnPart) -> None:
    rows = pa.table([part.values, pa.array(part.ids)], ["values", "ids"])
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
