"""Blobs as file objects, each opened at its first read, and the take of the blobs of some rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blobs import EXTERNAL, BlobDescriptors, BlobLoader
from lance_spark.scan.fragment.reader import FragmentReader, live_to_physical
from lance_spark.scan.take import (
    Numbers,
    RowFinder,
    by_fragment,
    parse_numbers,
    parse_positions,
    parse_row_ids,
)
from lance_spark.storage.source import ByteRange, ByteSource
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import check_columns
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.deletions import expect_deletions, read_deletions

#: Bytes that sequential reads ask for at once.
DEFAULT_BUFFER_SIZE = 512 * 1024


class BlobFile(io.BufferedReader):
    """A blob as a seekable, buffered binary file.

    `Dataset.take_blobs` returns it. `read_range` and `read_ranges` neither use the buffer nor move
    the position.

    Parameters
    ----------
    open_source : callable
        Opens the file that holds the blob; returns the file, and the position and size of the blob.
    size : int or None
        Bytes of the blob; None if they are the size of its file, which is not known yet.
    buffer_size : int
        Bytes that a sequential read requests at once; 0 requests only the bytes that the caller
        reads.
    """

    def __init__(
        self,
        open_source: Callable[[], tuple[ByteSource, int, int]],
        size: int | None,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
    ) -> None:
        self._blob = _RawBlob(open_source, size)
        super().__init__(self._blob, max(buffer_size, 1))

    def __repr__(self) -> str:
        return f"<BlobFile size={self.size()}>"

    def size(self) -> int:
        """Return the bytes of the blob."""
        return self._blob.size()

    def readall(self) -> bytes:
        """Return all bytes from the position to the end."""
        return self.read()

    def read_range(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from byte `offset` of the blob on.

        Raises
        ------
        InvalidInputError
            The range lies outside the blob.
        """
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges, in one request where the store can.

        Parameters
        ----------
        ranges : sequence of (int, int)
            Offset in the blob, and length.

        Raises
        ------
        InvalidInputError
            A range lies outside the blob.
        """
        return self._blob.read_ranges(ranges)


class _RawBlob(io.RawIOBase):
    def __init__(
        self, open_source: Callable[[], tuple[ByteSource, int, int]], size: int | None
    ) -> None:
        self._open_source = open_source
        self._size = size
        self._source: ByteSource | None = None
        self._start = 0
        self._position = 0

    def size(self) -> int:
        if self._size is None:
            self._open()
        assert self._size is not None
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        if whence == io.SEEK_SET:
            target = offset
        elif whence == io.SEEK_CUR:
            target = self._position + offset
        elif whence == io.SEEK_END:
            target = self.size() + offset
        else:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        if target < 0:
            raise ValueError(f"position must not be negative, but is {target}")
        self._position = target
        return target

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        length = max(min(len(view), self.size() - self._position), 0)
        if length:
            (data,) = self._open().read([ByteRange(self._start + self._position, length)])
            view[:length] = data.data
            self._position += length
        return length

    def readall(self) -> bytes:
        length = max(self.size() - self._position, 0)
        (data,) = self.read_ranges([(self._position, length)])
        self._position += length
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._check_open()
        size = self.size()
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise InvalidInputError(
                    f"{length} bytes at byte {offset} are out of range in a blob of {size} bytes"
                )
        # An empty blob may have no file.
        if not any(length for _, length in ranges):
            return [b""] * len(ranges)
        parts = self._open().read(
            [ByteRange(self._start + offset, length) for offset, length in ranges]
        )
        return [part.tobytes() for part in parts]

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _open(self) -> ByteSource:
        if self._source is None:
            source, self._start, size = self._open_source()
            if size < 0 or self._start + size > source.size:
                source.close()
                raise CorruptFileError(
                    f"{source.name}: a blob of {size} bytes at byte {self._start} lies outside the "
                    f"file of {source.size} bytes"
                )
            self._source, self._size = source, size
        return self._source


def take_blobs(
    table: OpenTable,
    fragments: Sequence[Fragment],
    column: str,
    rows: Mapping[str, Any],
    buffer_size: int,
    finder: RowFinder,
) -> list[BlobFile | None]:
    """Return the blobs of some rows; see `Dataset.take_blobs`.

    - `fragments`: The table's, with their rows counted.
    - `rows`: Has the keys ``ids``, ``addresses`` and ``indices``; one value is not None.
    - `finder`: Of the same version.
    """
    key = _selector(rows)
    if buffer_size < 0:
        raise InvalidInputError(f"buffer_size must not be negative, but is {buffer_size}")
    schema = blob_schema(table, column, Handling.DESCRIPTIONS)
    numbers = _parse_rows(table, fragments, key, rows[key], finder)
    unique, inverse = np.unique(numbers, return_inverse=True)
    blobs: list[tuple[BlobLoader, BlobDescriptors, int]] = []
    for fragment, offsets in _offsets(table, fragments, key, unique):
        with closing(FragmentReader(table.paths, fragment, schema)) as reader:
            loader, descriptors = reader.blob_descriptors(offsets)
        blobs += [(loader, descriptors, index) for index in range(len(offsets))]
    return [_file(*blobs[int(number)], buffer_size) for number in inverse.tolist()]


def blob_addresses(
    table: OpenTable, fragments: Sequence[Fragment], rows: Mapping[str, Any], finder: RowFinder
) -> Numbers:
    """Return the addresses of live rows, in the given order; see `take_blobs`.

    Raises InvalidInputError: a row does not exist or is deleted.
    """
    key = _selector(rows)
    numbers = _parse_rows(table, fragments, key, rows[key], finder)
    unique, inverse = np.unique(numbers, return_inverse=True)
    addresses = [np.empty(0, np.int64)]
    for fragment, offsets in _offsets(table, fragments, key, unique):
        addresses.append(offsets + (fragment.id << OFFSET_BITS))
    return np.concatenate(addresses)[inverse]


def blob_schema(table: OpenTable, column: str, handling: Handling) -> Schema:
    """Return the schema of a blob column, as a read has it.

    Raises InvalidInputError: the column is not found, or it is not a blob column. Raises
    UnsupportedFeatureError: the files store blobs as other binary values.
    """
    schema = table.schema.select([column])
    check_columns(table.manifest, schema.fields)
    leaf = table.schema.field(column)
    if not leaf.is_blob:
        raise InvalidInputError(
            f"column {column!r} is not a blob column: its type is {leaf.logical_type}"
        )
    version = table.manifest.data_storage_version
    if version < (2, 0):
        raise UnsupportedFeatureError(
            f"column {column!r}: files of version 0.1 store blobs as any other binary value; read "
            "the column instead"
        )
    return handled(schema, handling, version)


def _selector(rows: Mapping[str, Any]) -> str:
    keys = [name for name, value in rows.items() if value is not None]
    if len(keys) != 1:
        raise InvalidInputError(f"give one of ids, addresses and indices, not {len(keys)}")
    return keys[0]


def _file(
    loader: BlobLoader, descriptors: BlobDescriptors, index: int, buffer_size: int
) -> BlobFile | None:
    if not descriptors.live[index]:
        return None
    size = int(descriptors.sizes[index])
    is_whole_object = descriptors.storage_modes[index] == EXTERNAL and not size
    return BlobFile(
        partial(loader.open, descriptors, index), None if is_whole_object else size, buffer_size
    )


def _parse_rows(
    table: OpenTable, fragments: Sequence[Fragment], key: str, numbers: Any, finder: RowFinder
) -> Numbers:
    """Return positions for the key "indices", and addresses for the other keys."""
    if key == "indices":
        return parse_positions(numbers, sum(fragment.num_rows for fragment in fragments))
    if key == "ids" and table.manifest.flags.stable_row_ids:
        ids = parse_row_ids(numbers)
        exists, addresses = finder.find(ids)
        if not exists.all():
            missing = int(ids[~exists][0])
            raise InvalidInputError(f"{table.store.display}: no row has the id {missing}")
        return addresses.astype(np.int64)
    return parse_numbers(numbers, key)


def _offsets(
    table: OpenTable, fragments: Sequence[Fragment], key: str, numbers: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    """Yield each fragment that holds some of the rows, with their offsets."""
    if key == "indices":
        pieces = list(by_fragment(fragments, numbers))
        expect_deletions(table.paths, (fragment for fragment, _ in pieces))
        for fragment, rows in pieces:
            yield fragment, live_to_physical(rows, read_deletions(table.paths, fragment))
        return
    by_id = {fragment.id: fragment for fragment in fragments}
    holders = numbers >> OFFSET_BITS
    for fragment_id in np.unique(holders).tolist():
        addresses = numbers[holders == fragment_id]
        offsets = addresses & ((1 << OFFSET_BITS) - 1)
        holder = by_id.get(fragment_id)
        if holder is None or int(offsets.max()) >= holder.physical_rows:
            raise InvalidInputError(
                f"{table.store.display}: row {int(addresses.max())} not found: fragment "
                f"{fragment_id} has {'no' if holder is None else holder.physical_rows} rows"
            )
        deleted = np.intersect1d(offsets, read_deletions(table.paths, holder))
        if len(deleted):
            address = (fragment_id << OFFSET_BITS) + int(deleted[0])
            raise InvalidInputError(f"{table.store.display}: row {address} is deleted")
        yield holder, offsets
