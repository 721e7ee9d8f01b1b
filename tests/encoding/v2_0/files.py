"""Files of version 2.0, as pylance writes and reads them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.field import count_columns, open_field
from lance_spark.file.footer import (
    ALIGNMENT,
    Tail,
    add_page,
    encode_tail,
    new_column,
    read_columns,
    read_footer,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.proto import file_pb2
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange, run_plans


def write(path: Path, table: pa.Table, **options: int) -> str:
    """Write one file of version 2.0 and return its path."""
    with LanceFileWriter(str(path), table.schema, version="2.0", **options) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    return str(path)


def read_theirs(path: str) -> pa.Table:
    return LanceFileReader(path).read_all().to_table()


class File:
    """A file opened with the reader under test; it makes a reader per column and keeps it."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.schema = schema
        self.source = LocalSource(path)
        tail = Tail(self.source)
        footer = read_footer(tail)
        columns = read_columns(tail, footer, range(len(footer.column_metadata)))
        self.columns = {}
        self.readers = {}
        for field in schema:
            count = count_columns(field)
            field_columns, columns = columns[:count], columns[count:]
            self.columns[field.name] = field_columns
            self.readers[field.name] = open_field(field, field_columns, path)

    def read(self, name: str, rows: Rows) -> pa.Array:
        (array,) = run_plans(self.source, [self.readers[name].read(rows)])
        array.validate(full=True)
        return array


def row_choices(count: int, seed: int) -> list[Rows]:
    """Return ranges and sorted rows: all rows, parts, sparse rows, dense rows, and rows with
    runs.
    """
    rng = np.random.default_rng(seed)
    choices: list[Rows] = [range(count), range(0)]
    if count:
        cut = sorted(rng.integers(0, count + 1, 2).tolist())
        choices += [
            range(*cut),
            range(count - 1, count),
            range(min(3, count), count),
            np.array([0]),
            np.array([count - 1]),
            np.flatnonzero(rng.random(count) < 0.5),
            np.flatnonzero(rng.random(count) < 20 / count),
            np.flatnonzero(np.arange(count) // 7 % 3 == 1),
        ]
    return [c if isinstance(c, range) else c.astype(np.int64) for c in choices]


def assert_rows(file: File, name: str, expected: pa.Array | pa.ChunkedArray, seed: int) -> None:
    """Compare all choices of rows of one column with `expected`."""
    chunks = expected.chunks if isinstance(expected, pa.ChunkedArray) else [expected]
    plain = pa.concat_arrays([_plain(chunk) for chunk in chunks or [pa.array([], expected.type)]])
    for rows in row_choices(len(expected), seed):
        values = file.read(name, rows)
        assert values.type == file.schema.field(name).type, name
        wanted = plain[rows.start : rows.stop] if isinstance(rows, range) else plain.take(rows)
        plain_got = _plain(values)
        assert plain_got.equals(wanted), f"{name}, {rows!r}:\n{plain_got}\n{wanted}"


def _plain(array: pa.Array) -> pa.Array:
    # Dictionary arrays are equal only if their dictionaries are equal; here only values count.
    if pa.types.is_dictionary(array.type):
        return array.dictionary.take(array.indices)
    if pa.types.is_list(array.type) and pa.types.is_dictionary(array.type.value_type):
        return pa.ListArray.from_arrays(
            array.offsets, _plain(array.values), mask=array.is_null() if array.null_count else None
        )
    return array


def make(
    path: Path, field: pa.Field, rows: int, buffers: Sequence[bytes], encoding: pb.ArrayEncoding
) -> str:
    """Write a file of one column and one page by hand, for encodings that pylance reads but does
    not write.
    """
    column = new_column()
    at = 0
    body = b""
    ranges = []
    for buffer in buffers:
        ranges.append(ByteRange(at, len(buffer)))
        body += buffer + b"H" * (-len(buffer) % ALIGNMENT)
        at = len(body)
    add_page(column, (2, 0), ranges, rows, 0, encoding.SerializeToString())
    schema = Schema.from_arrow(pa.schema([field]))
    descriptor = file_pb2.FileDescriptor(length=rows)
    descriptor.schema.fields.extend(schema.to_protos())
    tail = encode_tail((0, 3), descriptor, [column.SerializeToString()], at)
    path.write_bytes(body + b"".join(tail))
    return str(path)
