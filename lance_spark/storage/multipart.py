"""Multipart uploads: parts are sent while the next one is filled. Base of all cloud uploads.

Both options below are storage options, or environment variables in capitals, as in other Lance
clients. An open file holds in memory the part that is being filled and the parts being sent.
Buffers of connections can hold as much again.

A writer waits only while the most parts are being sent. A part that fails is repeated (`retry`). If
it fails for good, the next `write` or `close` raises the error. No object is visible before the
last request of `close`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.errors import translated
from lance_spark.storage.retry import Retries

INITIAL_UPLOAD_SIZE = "lance_initial_upload_size"
UPLOAD_CONCURRENCY = "lance_upload_concurrency"
#: Least bytes of a part on S3, except the last one.
STEP = 5 * 1024 * 1024
_GREATEST = 4000 * 1024 * 1024
_GROWS_AFTER = 100
#: Most parts of an object on S3.
_MOST_PARTS = 10_000
_DEFAULT_CONCURRENCY = 10
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class PartSizes:
    """The sizes of the parts of a file.

    - `first`: Bytes of the first parts.
    - `at_once`: Most parts of this size that are sent in parallel.
    - `constant`: Whether the store requires parts of one size.
    - `max_parts`: Most parts of a file.
    """

    first: int = STEP
    at_once: int = _DEFAULT_CONCURRENCY
    constant: bool = False
    max_parts: int = _MOST_PARTS

    @classmethod
    def of(cls, options: Mapping[str, Any], fs: Any) -> PartSizes:
        """Return the sizes from storage options and the environment, within the limits of the
        stores.

        Raises InvalidOptionError.
        """
        lower_options = {name.lower(): value for name, value in options.items()}
        size = whole_number(lower_options, INITIAL_UPLOAD_SIZE, STEP)
        at_once = whole_number(lower_options, UPLOAD_CONCURRENCY, _DEFAULT_CONCURRENCY)
        constant = bool(getattr(fs, "fixed_upload_size", False))
        return cls(min(max(size, STEP), _GREATEST), min(at_once, _MOST_AT_ONCE), constant)

    def size(self, number: int) -> int:
        """Return the bytes of a part, counted from 0."""
        if self.constant:
            return self.first
        return min(max(self.first, (number // _GROWS_AFTER + 1) * STEP), _GREATEST)

    def under_way(self, size: int) -> int:
        """Return how many parts of a size are sent in parallel at most."""
        max_parts = (self.at_once + 1) * self.first
        # A further part is being filled meanwhile.
        return min(self.at_once, max(1, max_parts // size - 1))


class PartsOutput:
    """A new object; see `OutputFile`.

    Subclasses for each store implement the methods that raise NotImplementedError.

    - `fs`: A file system with an event loop.
    - `path`: Path of the object.
    - `name`: Name of the object in errors.
    - `options`: Storage options whose values no error shows.
    - `replace`: Whether an object can exist already; `abort` leaves it.
    """

    def __init__(
        self,
        fs: Any,
        path: str,
        name: str,
        sizes: PartSizes,
        retries: Retries,
        options: Mapping[str, object] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        self._fs = fs
        self._path = path
        self._sizes = sizes
        self._retries = retries
        #: Retries of requests that the package below sends once.
        self._upload_retries = Retries(retries.max_retries, retries.timeout)
        self._options = options
        self._replace = replace
        self._written = 0
        self._buffer = bytearray()
        #: Number of parts begun.
        self._number = 0
        self._pending: dict[Future[Any], int] = {}
        self._parts: list[Any] = []
        self._open = True
        self._broken = False
        self._cancelled = False
        self.name = name

    def write(self, buffer: Any) -> None:
        assert self._open, f"{self.name} is closed"
        view = memoryview(buffer).cast("B")
        start = 0
        while start < len(view):
            size = self._sizes.size(self._number)
            if len(self._buffer) == size:
                try:
                    with translated(self.name, self._options):
                        self._send()
                except BaseException:
                    # A later `close` must not create a file without this part.
                    self._broken = True
                    raise
                continue
            step = min(size - len(self._buffer), len(view) - start)
            self._buffer += view[start : start + step]
            start += step
        self._written += len(view)

    def tell(self) -> int:
        return self._written

    def close(self) -> None:
        if not self._open:
            return
        try:
            if self._broken:
                raise StorageError(f"{self.name}: a part of the file could not be written")
            with translated(self.name, self._options):
                if not self._number:
                    self._put_whole(self._buffer)
                else:
                    self._send(last=True)
                    self._wait_for(0)
                    self._complete()
        except BaseException:
            self.abort()
            raise
        self._open = False
        self._buffer = bytearray()

    def abort(self) -> None:
        if not self._open:
            return
        self._open, self._cancelled = False, True
        self._buffer = bytearray()
        # No version refers to what cannot be removed now: cleanup or a rule of the bucket removes
        # it.
        wait(self._pending)
        self._pending.clear()
        if self._number:
            self._discard()
        if not self._replace:
            with suppress(Exception):
                self._retries.call(self._fs.rm_file, self._path)

    def _put_whole(self, data: bytearray) -> None:
        """Create the object by one request."""
        raise NotImplementedError

    async def _send_part(self, number: int, part: bytearray, last: bool) -> Any:
        """Send a part, counted from 1. `_parts` collects the results."""
        raise NotImplementedError

    def _complete(self) -> None:
        """Create the object from its parts. All parts have been sent."""
        raise NotImplementedError

    def _discard(self) -> None:
        """Remove the parts that were sent. No part is being sent. Raises nothing."""
        raise NotImplementedError

    def _send(self, *, last: bool = False) -> None:
        """Begin to send the buffer as the next part."""
        if self._number >= self._sizes.max_parts:
            raise StorageError(
                f"{self.name}: the file has more than {self._sizes.max_parts} parts of "
                f"{self._sizes.first} bytes; "
                f"set the storage option {INITIAL_UPLOAD_SIZE} to more bytes, or write smaller "
                "files"
            )
        part, self._buffer = self._buffer, bytearray()
        self._number += 1
        self._begin()
        self._wait_for(self._sizes.under_way(len(part)) - 1)
        self._pending[self._started(self._send_part(self._number, part, last))] = len(part)

    def _begin(self) -> None:
        """Prepare the upload; called before each part."""

    def _started(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._fs.loop)

    def _wait_for(self, max_pending: int) -> None:
        """Wait until at most `max_pending` parts are being sent.

        Raises the error of a failed part.
        """
        while True:
            for future in [part for part in self._pending if part.done()]:
                del self._pending[future]
                self._parts.append(future.result())
            if len(self._pending) <= max_pending:
                return
            wait(self._pending, return_when=FIRST_COMPLETED)

    def _is_cancelled(self) -> bool:
        return self._cancelled


def whole_number(options: Mapping[str, Any], name: str, default: int) -> int:
    """Return a positive number from a storage option, the environment, or the default.

    Raises InvalidOptionError.
    """
    setting = options.get(name, os.environ.get(name.upper()))
    if setting is None:
        return default
    try:
        value = int(setting)
    except (TypeError, ValueError):
        value = 0
    if value < 1:
        raise InvalidOptionError(
            f"{name}, a storage option or environment variable, must be a whole number of at least "
            f"1, not {setting!r}"
        )
    return value
