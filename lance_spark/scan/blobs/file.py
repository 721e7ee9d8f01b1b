"""The file object of one blob. It is opened at the first read, and read in ranges."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.storage.source import ByteRange, ByteSource

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
