"""Uploads to S3 in parts that are sent while the next one is being written.

| what | size |
| --- | --- |
| a file of up to one part | one put |
| parts 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| 100 parts further on | 5 MiB more, unless the store wants parts of one size, so that 10,000 parts hold 2.5 TB |
| parts under way | `lance_upload_concurrency`, 10 by default, fewer of greater ones, one at least |

Both are storage options, or variables of the environment in capitals, as other Lance clients have them. A file that is written
holds the part that is being filled and those under way: together no more than 11 parts of 5 MiB, or two parts of a very large file; what
connections have taken over and not sent comes on top, up to as much again.

Whoever writes waits only if as many parts are under way as may be. A part that fails is sent again (`retry`); if it fails for good, the next
`write` or `close` says so. A file that is given up leaves no parts behind: the upload is aborted once none of them is under way. A process
that is killed cannot do that; a lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`) removes such parts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.errors import translated
from lance_spark.storage.retry import Retries
from lance_spark.storage.s3 import size_of

INITIAL_UPLOAD_SIZE = "lance_initial_upload_size"
UPLOAD_CONCURRENCY = "lance_upload_concurrency"
#: S3 takes no smaller parts, but for the last one.
_STEP = 5 * 1024 * 1024
_GREATEST = 5 * 1024**3 - 1
_GROWS_AFTER = 100
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
    """

    first: int = _STEP
    at_once: int = _DEFAULT_CONCURRENCY
    constant: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], fs: Any) -> PartSizes:
        """Return what storage options and the environment say. A size outside of what S3 takes is brought inside.

        Raises
        ------
        InvalidOptionError
        """
        given = {name.lower(): value for name, value in options.items()}
        size = _whole(given, INITIAL_UPLOAD_SIZE, _STEP)
        at_once = _whole(given, UPLOAD_CONCURRENCY, _DEFAULT_CONCURRENCY)
        constant = bool(getattr(fs, "fixed_upload_size", False))
        return cls(min(max(size, _STEP), _GREATEST), min(at_once, _MOST_AT_ONCE), constant)

    def size(self, number: int) -> int:
        """Return the bytes of a part; they are counted from 0."""
        if self.constant:
            return self.first
        return min(max(self.first, (number // _GROWS_AFTER + 1) * _STEP), _GREATEST)

    def under_way(self, size: int) -> int:
        """Return how many parts of a size may be under way."""
        most = (self.at_once + 1) * self.first
        # One more is being filled meanwhile.
        return min(self.at_once, max(1, most // size - 1))


class S3Output:
    """A new object of S3; see `OutputFile`. `replace` tells that there can be one already, which `abort` leaves."""

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
        bucket, key, _ = fs.split_path(path)
        self._object = {"Bucket": bucket, "Key": key}
        self._sizes = sizes
        self._retries = retries
        self._options = options
        self._replace = replace
        self._written = 0
        self._buffer = bytearray()
        self._number = 0
        self._upload: Future[str] | None = None
        self._uploads_unknown = False
        self._pending: dict[Future[dict[str, Any]], int] = {}
        self._parts: list[dict[str, Any]] = []
        self._open = True
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
                with translated(self.name, self._options):
                    self._send()
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
            with translated(self.name, self._options):
                if self._upload is None:
                    self._put_whole()
                else:
                    self._complete(self._upload)
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
        # What cannot be tidied up now is unreferenced, and cleanup, or a rule of the bucket, removes it.
        wait(self._pending)
        self._pending.clear()
        if self._upload is not None:
            with suppress(Exception):
                self._abort_upload(self._upload.result())
            with suppress(Exception):
                self._abort_unknown()
        if not self._replace:
            with suppress(Exception):
                self._retries.call(self._fs.rm_file, self._path)

    def _put_whole(self) -> None:
        size = len(self._buffer)
        self._retries.call(self._fs.pipe_file, self._path, self._buffer, chunksize=size + 1)

    def _send(self) -> None:
        """Begin to send what is in the buffer as the next part."""
        if self._number >= _MOST_PARTS:
            raise StorageError(
                f"{self.name}: the file has more than {_MOST_PARTS} parts of {self._sizes.first} bytes; "
                f"set the storage option {INITIAL_UPLOAD_SIZE} to more bytes, or write smaller files"
            )
        if self._upload is None:
            self._upload = asyncio.run_coroutine_threadsafe(self._begin(), self._fs.loop)
        part, self._buffer = self._buffer, bytearray()
        self._number += 1
        self._wait_for(self._sizes.under_way(len(part)) - 1)
        sent = self._send_part(self._upload, self._number, part)
        self._pending[asyncio.run_coroutine_threadsafe(sent, self._fs.loop)] = len(part)

    def _wait_for(self, left: int) -> None:
        """Wait until no more than some parts are under way. Raises what one of them has failed with."""
        while True:
            for future in [one for one in self._pending if one.done()]:
                del self._pending[future]
                self._parts.append(future.result())
            if len(self._pending) <= left:
                return
            wait(self._pending, return_when=FIRST_COMPLETED)

    async def _begin(self) -> str:
        tries = self._retries.tries()
        while True:
            try:
                begun = await self._fs._call_s3("create_multipart_upload", **self._object)
                return str(begun["UploadId"])
            except Exception as error:
                # It may have been begun, and then nobody has told us its name.
                self._uploads_unknown = True
                pause = tries.wait_after(error)
                if pause is None or self._given_up:
                    raise
            await asyncio.sleep(pause)

    async def _send_part(self, upload: Future[str], number: int, part: bytearray) -> dict[str, Any]:
        asked = {"UploadId": await asyncio.wrap_future(upload), "PartNumber": number}
        tries = self._retries.tries()
        while True:
            try:
                answer = await self._fs._call_s3("upload_part", **self._object, **asked, Body=part)
                break
            except Exception as error:
                pause = tries.wait_after(error)
                if pause is None or self._given_up:
                    raise
            await asyncio.sleep(pause)
        sent = {"PartNumber": number, "ETag": answer["ETag"]}
        algorithm = (self._fs.s3_additional_kwargs or {}).get("ChecksumAlgorithm")
        if algorithm:
            sent[f"Checksum{algorithm}"] = answer[f"Checksum{algorithm}"]
        return sent

    def _complete(self, upload: Future[str]) -> None:
        if self._buffer:
            self._send()
        self._wait_for(0)
        self._parts.sort(key=lambda part: int(part["PartNumber"]))
        asked = {"UploadId": upload.result(), "MultipartUpload": {"Parts": self._parts}}
        tries = self._retries.tries()
        while True:
            try:
                self._fs.call_s3("complete_multipart_upload", **self._object, **asked)
                return
            except FileNotFoundError:
                # There is no such upload any more: an earlier request, whose answer was lost, has completed it.
                if self._retries.call(size_of, self._fs, self._path) != self._written:
                    raise
                return
            except Exception as error:
                pause = tries.wait_after(error)
                if pause is None:
                    raise
            time.sleep(pause)

    def _abort_upload(self, upload: str) -> None:
        # One that is not there any more was aborted by an earlier request.
        with suppress(FileNotFoundError):
            self._retries.call(
                self._fs.call_s3, "abort_multipart_upload", **self._object, UploadId=upload
            )

    def _abort_unknown(self) -> None:
        """Abort the uploads of this object that were begun by requests without an answer."""
        if not self._uploads_unknown:
            return
        key = self._object["Key"]
        answer = self._retries.call(
            self._fs.call_s3, "list_multipart_uploads", Bucket=self._object["Bucket"], Prefix=key
        )
        for found in answer.get("Uploads", ()):
            if found["Key"] == key:
                self._abort_upload(found["UploadId"])


def _whole(options: Mapping[str, Any], name: str, default: int) -> int:
    given = options.get(name, os.environ.get(name.upper()))
    if given is None:
        return default
    try:
        value = int(given)
    except (TypeError, ValueError):
        value = 0
    if value < 1:
        raise InvalidOptionError(
            f"{name}, a storage option or a variable of the environment: a whole number from 1 on, not {given!r}"
        )
    return value
