"""Google Cloud Storage: requests that gcsfs has no call for, and uploads.

An upload is one session, whose parts are sent in sequence:

| item | size |
| --- | --- |
| a file of up to one part | one put |
| all parts but the last | `lance_initial_upload_size`, 8 MiB by default; multiples of 256 KiB |
| parallel parts | one: a session receives its bytes in order |

An open file holds two parts in memory. After a lost answer, the store reports which bytes it has,
and receives the others. (gcsfs itself would send all of them again.)

An aborted file is not visible, and its session is cancelled. The session of a killed process
expires after a week.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

from lance_spark.errors import StorageError
from lance_spark.storage.kept_ranges import Tagged, tag_of
from lance_spark.storage.multipart import INITIAL_UPLOAD_SIZE, PartSizes, PartsOutput, whole_number
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.retry import Retries

_GRAIN = 256 * 1024
_DEFAULT_SIZE = 8 * 1024 * 1024
_GREATEST = 1024**3
_TYPE = "application/octet-stream"
_UNFINISHED = 308
#: Tokens of gcsfs that name a way to get credentials.
_METHODS = frozenset({"google_default", "cache", "cloud", "anon", "browser"})


def is_google(fs: Any) -> bool:
    """Return whether a file system is from gcsfs."""
    return hasattr(fs, "_set_session") and hasattr(fs, "_location")


def is_zonal(fs: Any, path: str) -> bool:
    """Return whether the bucket of a path is zonal: gcsfs does not use HTTP for it."""
    return hasattr(fs, "_is_zonal_bucket") and _is_zonal_bucket(fs, fs.split_path(path)[0])


@lru_cache(maxsize=64)
def _is_zonal_bucket(fs: Any, bucket: str) -> bool:
    # Cached, as gcsfs asks Google again each time if it was not allowed to know.
    from fsspec.asyn import sync

    return bool(sync(fs.loop, fs._is_zonal_bucket, bucket))


def token_object(token: Any) -> Any:
    """Return a bearer token as gcsfs takes it without asking Google about it."""
    from google.oauth2.credentials import Credentials

    if isinstance(token, str) and token not in _METHODS and not os.path.exists(token):
        return Credentials(token)  # type: ignore[no-untyped-call]
    return token


def renew(fs: Any, arguments: RenewedArguments) -> None:
    """Send each request with the newest token, also the requests of running uploads."""
    original, used = fs._set_session, arguments().get("token")

    async def set_session(*args: Any, **kwargs: Any) -> Any:
        nonlocal used
        session = await original(*args, **kwargs)
        token = (await arguments.of_loop()).get("token")
        if token != used:
            fs.credentials.connect(token_object(token))
            used = token
        return session

    fs._set_session = set_session


def first_files(fs: Any, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
    """Return the first objects in a folder, usually by one request.

    - `folder`: URI of the folder.
    - `limit`: Most names to return, up to 1,000.
    - `after`: Only names after this one, in the order of their bytes.
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    parameters: dict[str, Any] = {
        "prefix": prefix,
        "delimiter": "/",
        "fields": "nextPageToken,items(name,etag,generation,size,updated)",
    }
    if after:
        # This offset is inclusive; the name itself is skipped below.
        parameters["startOffset"] = prefix + after
    files: list[Tagged] = []
    while True:
        parameters["maxResults"] = limit - len(files) + bool(after)
        page = retries.call(fs.call, "GET", "b/{}/o", bucket, json_out=True, **parameters)
        listed = (
            Tagged(entry["name"][len(prefix) :], tag_of(entry)) for entry in page.get("items", ())
        )
        files += [file for file in listed if file.name.encode() > after.encode()]
        # A page can have fewer names than the limit, even none, although more names follow.
        if len(files) >= limit or "nextPageToken" not in page:
            return files[:limit]
        parameters["pageToken"] = page["nextPageToken"]


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]


def sizes_of(options: Mapping[str, Any]) -> PartSizes:
    """Return the sizes of parts, rounded up to 256 KiB and limited to 1 GiB.

    Raises InvalidOptionError.
    """
    lower_options = {name.lower(): value for name, value in options.items()}
    size = min(whole_number(lower_options, INITIAL_UPLOAD_SIZE, _DEFAULT_SIZE), _GREATEST)
    return PartSizes(-(-size // _GRAIN) * _GRAIN, 1, constant=True, max_parts=sys.maxsize)


class GoogleOutput(PartsOutput):
    """A new object; see `PartsOutput`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bucket, self._key, _ = self._fs.split_path(self._path)
        self._url = f"{self._fs._location}/upload/storage/v1/b/{bucket}/o"
        self._session: str | None = None
        #: Bytes that the store has confirmed.
        self._stored = 0

    def _put_whole(self, data: bytearray) -> None:
        put = partial(
            self._ask,
            "POST",
            self._url,
            {"Content-Type": _TYPE},
            memoryview(data),
            uploadType="media",
            name=self._key,
        )
        self._started(self._upload_retries.call_async(put, self._is_cancelled)).result()

    async def _send_part(self, number: int, part: bytearray, last: bool) -> None:
        if self._session is None:
            self._session = await self._upload_retries.call_async(
                self._begin_session, self._is_cancelled
            )
        sending = _Sending(self, self._session, memoryview(part), self._stored, last)
        await self._upload_retries.call_async(sending.attempt, self._is_cancelled)
        self._stored += len(part)

    async def _begin_session(self) -> str:
        begun = await self._ask(
            "POST",
            self._url,
            {"Content-Type": "application/json", "X-Upload-Content-Type": _TYPE},
            memoryview(json.dumps({"name": self._key}).encode()),
            uploadType="resumable",
            name=self._key,
        )
        return begun.headers["Location"]

    def _complete(self) -> None:
        """Do nothing: the last part completes the object."""

    def _discard(self) -> None:
        if self._session is None:
            return
        cancel = partial(self._ask, "DELETE", self._session, {}, memoryview(b""))
        with suppress(Exception):
            self._started(self._upload_retries.call_async(cancel, lambda: False)).result()

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], body: memoryview, **query: str
    ) -> _Answer:
        """Send a request once, with the headers and errors of gcsfs."""
        from gcsfs.retry import validate_response

        fs = self._fs
        await fs._set_session()
        async with fs.session.request(
            method,
            url,
            params=fs._get_params(query),
            headers=fs._get_headers({"Content-Length": str(len(body)), **headers}),
            # aiohttp sends a file in memory piece by piece, but copies bytes as a whole.
            data=io.BytesIO(body) if body else None,
            timeout=fs.requests_timeout,
        ) as answer:
            content = await answer.read()
            try:
                validate_response(answer.status, content, url.partition("?")[0])
            except Exception as error:
                # gcsfs drops the headers, `Retry-After` among them, and often the status.
                error.headers = answer.headers  # type: ignore[attr-defined]
                error.status = answer.status  # type: ignore[attr-defined]
                raise
            return _Answer(answer.status, answer.headers)


class _Sending:
    """The upload of one part.

    - `start`: Offset of the part in the file.
    - `last`: Whether it is the last part, which completes the object.
    """

    def __init__(
        self, output: GoogleOutput, session: str, part: memoryview, start: int, last: bool
    ) -> None:
        self._output = output
        self._session = session
        self._part = part
        self._start = start
        self._end = start + len(part)
        self._last = last
        self._total = str(self._end) if last else "*"
        #: Offset that the store expects next, as far as is known.
        self._position = start
        self._in_doubt = False
        self._is_done = False

    async def attempt(self) -> None:
        """Send the bytes that the store lacks, until it has the part or a request fails."""
        if self._in_doubt:
            await self._ask(f"bytes */{self._total}", self._part[:0])
        while not self._is_done:
            before = self._position
            content = f"bytes {self._position}-{self._end - 1}/{self._total}"
            await self._ask(content, self._part[self._position - self._start :])
            if self._position == before and not self._is_done:
                raise ConnectionError("the store has accepted none of the bytes")

    async def _ask(self, content: str, body: memoryview) -> None:
        self._in_doubt = True
        try:
            # POST, as in gcsfs: aiohttp itself repeats a PUT when a connection breaks.
            answer = await self._output._ask(
                "POST", self._session, {"Content-Range": content, "Content-Type": _TYPE}, body
            )
        except FileNotFoundError as error:
            raise StorageError(f"{self._output.name}: the store has ended the upload") from error
        self._in_doubt = False
        if answer.status != _UNFINISHED:
            self._is_done = self._last
            if not self._last:
                raise StorageError(f"{self._output.name}: the store has ended the upload early")
            return
        stored = answer.headers.get("Range")
        self._position = int(stored.rpartition("-")[2]) + 1 if stored else 0
        if not self._start <= self._position <= self._end:
            raise StorageError(
                f"{self._output.name}: the store reports {self._position} bytes, outside of "
                f"{self._start} to {self._end}"
            )
        if self._position == self._end:
            self._is_done = not self._last
            # The next try asks whether the object exists.
            self._in_doubt = self._last
            if self._last:
                raise ConnectionError("the store has all bytes, but created no object")
