"""The bytes of blobs: as files, whole, or in ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling
from lance_spark.scan.blob_files import BlobFile, blob_addresses, blob_schema, take_blobs
from lance_spark.scan.take import take_addresses

if TYPE_CHECKING:
    from lance_spark.dataset.reader import VersionReader

_SELECTORS = ("ids", "addresses", "indices")


def open_blobs(
    reader: VersionReader, column: str, rows: Mapping[str, Any], buffer_size: int
) -> list[BlobFile | None]:
    """Return blobs as file objects; see `Dataset.take_blobs`.

    Parameters
    ----------
    reader : VersionReader
    column : str
    rows : mapping
        ``ids``, ``addresses`` and ``indices`` of rows; exactly one is given, and not None.
    buffer_size : int
    """
    finder = reader.row_finder()
    return take_blobs(reader.table, reader.fragments, column, rows, buffer_size, finder)


def read_blobs(
    reader: VersionReader, column: str, rows: Mapping[str, Any]
) -> list[tuple[int, bytes | None]]:
    """Return the addresses of rows and the bytes of their blobs; see `Dataset.read_blobs`."""
    table = reader.table
    schema = blob_schema(table, column, Handling.BINARY)
    row_addresses = blob_addresses(table, reader.fragments, rows, reader.row_finder())
    taken = take_addresses(
        table.paths,
        reader.fragments,
        schema,
        row_addresses.astype(np.uint64),
        reader.open_files,
    )
    values: Any = taken.column(0).combine_chunks()
    for field in table.schema.path(column)[1:]:
        values = pc.struct_field(values, field.name)
    return list(zip(row_addresses.tolist(), values.to_pylist(), strict=True))


def read_ranges(
    reader: VersionReader,
    column: str,
    requests: Sequence[tuple[int, int, int]],
    selector: str,
) -> list[tuple[int, int, bytes | None]]:
    """Return ranges of the bytes of blobs; see `Dataset.read_blob_ranges`.

    Raises
    ------
    InvalidInputError
        The selector is unknown, or a range lies outside its blob.
    """
    if selector not in _SELECTORS:
        raise InvalidInputError(
            f"selector must be one of {', '.join(_SELECTORS)}, not {selector!r}"
        )
    parsed = [(int(row), int(offset), int(length)) for row, offset, length in requests]
    rows: dict[str, Any] = {selector: [row for row, _, _ in parsed]}
    row_addresses = blob_addresses(reader.table, reader.fragments, rows, reader.row_finder())
    by_row: dict[int, list[int]] = {}
    for number, address in enumerate(row_addresses.tolist()):
        by_row.setdefault(address, []).append(number)
    parts: list[bytes | None] = [None] * len(parsed)
    files = open_blobs(reader, column, {"addresses": list(by_row)}, 0)
    for file, numbers in zip(files, by_row.values(), strict=True):
        if file is None:
            continue
        with file:
            read = file.read_ranges([parsed[number][1:] for number in numbers])
        for number, data in zip(numbers, read, strict=True):
            parts[number] = data
    return list(zip(range(len(parsed)), row_addresses.tolist(), parts, strict=True))
