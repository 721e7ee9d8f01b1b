"""Files that are sent in parts while the next one is being written: what the uploads to S3, Google
Cloud Storage and Azure share.

Both options below are storage options, or variables of the environment in capitals, as other Lance
clients have them. A file that is written holds the part that is being filled and those under way;
what connections have taken over and not sent comes on top, up to as much again.

Whoever writes waits only if as many parts are under way as may be. A part that fails is sent again
(`retry`), whatever the package of the store would do; if it fails for good, the next `write` or
`close` says so. Nothing is visible before the last request of `close`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.errors import translated
from lance_spark.storage.retry import Retries

INITIAL_UPLOAD_SIZE = "lance_initial_upload_size"
UPLOAD_CONCURRENCY = "lance_upload_concurrency"
#: S3 takes no smaller parts, but for the last one.
STEP = 5 * 1024 * 1024
_GREATEST = 4000 * 1024 * 1024
_GROWS_AFTER = 100
#: S3 takes no more.
_MOST_PARTS = 10_000
_DEFAULT_CONCURRENCY = 10
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class PartSizes:
    """How a file is cut into parts.

    Attributes
    ----------
    first : int
        Bytes of the first parts.
    at_once : int
        How many of them may be under way.
    constant : bool
        Whether the store wants parts of one size.
    most : int
        How many parts a file can have.
    """

    first: int = STEP
    at_once: int = _DEFAULT_CONCURRENCY
    constant: bool = False
    most: int = _MOST_PARTS

    @classmethod
    def of(cls, options: Mapping[str, Any], fs: Any) -> PartSizes:
        """Return what storage options and the environment say. A size outside of what stores take
        is brought inside.

        Raises
        ------
        InvalidOptionError
        """
        given = {name.lower(): value for name, value in options.items()}
        size = whole(given, INITIAL_UPLOAD_SIZE, STEP)
        at_once = whole(given, UPLOAD_CONCURRENCY, _DEFAULT_CONCURRENCY)
        constant = bool(getattr(fs, "fixed_upload_size", False))
        return cls(min(max(size, STEP), _GREATEST), min(at_once, _MOST_AT_ONCE), constant)

    def size(self, number: int) -> int:
        """Return the bytes of a part; they are counted from 0."""
        if self.constant:
            return self.first
        return min(max(self.first, (number // _GROWS_AFTER + 1) * STEP), _GREATEST)

    def under_way(self, size: int) -> int:
        """Return how many parts of a size may be under way."""
        most = (self.at_once + 1) * self.first
        # One more is being filled meanwhile.
        return min(self.at_once, max(1, most // size - 1))


class PartsOutput:
    """A new object; see `OutputFile`. What stores do differently is in the methods that raise
    NotImplementedError.

    Parameters
    ----------
    fs : fsspec file system
        One with an event loop.
    path : str
        Its path there.
    name : str
        What errors call it.
    sizes : PartSizes
    retries : Retries
    options : mapping, optional
        Storage options whose values no error shows.
    replace : bool
        Whether there can be an object already, which `abort` leaves.
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
        #: Those of requests that the package below sends once.
        self._own = _alone(retries)
        self._options = options
        self._replace = replace
        self._written = 0
        self._buffer = bytearray()
        #: Parts that were begun.
        self._number = 0
        self._pending: dict[Future[Any], int] = {}
        self._parts: list[Any] = []
        self._open = True
        self._broken = False
        self._given_up = False
        self.name = name

    def write(self, buffer: Any) -> None:
        """Append the bytes of a buffer."""
        assert self._open, f"{self.name} is closed"
        view = memoryview(buffer).cast("B")
        at = 0
        while at < len(view):
            size = self._sizes.size(self._number)
            if len(self._buffer) == size:
                try:
                    with translated(self.name, self._options):
                        self._send()
                except BaseException:
                    # Whoever closes it all the same gets no file that lacks a part.
                    self._broken = True
                    raise
                continue
            step = min(size - len(self._buffer), len(view) - at)
            self._buffer += view[at : at + step]
            at += step
        self._written += len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def close(self) -> None:
        """Finish the upload."""
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
        """Delete the object and its parts unless it is closed."""
        if not self._open:
            return
        self._open, self._given_up = False, True
        self._buffer = bytearray()
        # What cannot be tidied up now is unreferenced, and cleanup, or a rule of the bucket,
        # removes it.
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
        """Send a part; they are counted from 1. What it returns is in `_parts` when the upload is
        completed.
        """
        raise NotImplementedError

    def _complete(self) -> None:
        """Make an object of the parts, all of which are sent."""
        raise NotImplementedError

    def _discard(self) -> None:
        """Remove parts that were sent, none of which is under way any more. Raises nothing."""
        raise NotImplementedError

    def _send(self, *, last: bool = False) -> None:
        """Begin to send what is in the buffer as the next part."""
        if self._number >= self._sizes.most:
            raise StorageError(
                f"{self.name}: the file has more than {self._sizes.most} parts of "
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
        """Is called before each part."""

    def _started(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._fs.loop)

    def _wait_for(self, left: int) -> None:
        """Wait until no more than some parts are under way. Raises what one of them has failed
        with.
        """
        while True:
            for future in [one for one in self._pending if one.done()]:
                del self._pending[future]
                self._parts.append(future.result())
            if len(self._pending) <= left:
                return
            wait(self._pending, return_when=FIRST_COMPLETED)

    def _is_given_up(self) -> bool:
        return self._given_up


def _alone(retries: Retries) -> Retries:
    return replace(retries, below=False)


def whole(options: Mapping[str, Any], name: str, default: int) -> int:
    """Return a number from 1 on: a storage option, a variable of the environment, or the default.

    Raises
    ------
    InvalidOptionError
    """
    given = options.get(name, os.environ.get(name.upper()))
    if given is None:
        return default
    try:
        value = int(given)
    except (TypeError, ValueError):
        value = 0
    if value < 1:
        raise InvalidOptionError(
            f"{name}, a storage option or a variable of the environment: a whole number from 1 on, "
            f"not {given!r}"
        )
    return value
