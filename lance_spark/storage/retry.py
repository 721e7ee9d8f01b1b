"""Repeats requests after temporary failures.

Such failures are status 429, a fault of the server, a broken connection, and an answer that comes
too late or incomplete.

| storage option | default | meaning |
| --- | --- | --- |
| `client_max_retries` | 10 | how often a request is repeated |
| `client_retry_timeout` | 180 | seconds after the first attempt; no request is repeated later |

Waits double from 0.1 s up to 15 s; each is a random length between half and all of that. Names and
meaning are as in other Lance clients, whose default for the first option is 3. If the answer has
the header `Retry-After`, and the package of the store passes it on, no request is repeated sooner,
except the last one, which is sent when the timeout ends.

The packages below repeat requests as well:

- s3fs and botocore would each repeat, up to 25 requests for one. For tables they send each request
  once, so a request is sent at most `client_max_retries` + 1 times. With `retries` in
  `config_kwargs`, botocore repeats each of these.
- gcsfs sends a request up to 6 times, Azure's library up to 4 times. Their failures are not
  repeated here, except timeouts and short answers, which gcsfs does not repeat. Parts of written
  files bypass this: they are sent once and repeated here (`write/multipart`).
- A commit whose put failed looks for its own manifest and starts again up to 3 times
  (`table/commit/commit.py`).

A request with the same effect when it is carried out twice can be repeated. Creating a file only if
it is absent is different: see `create_once`.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, ParamSpec, TypeVar

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.errors import causes, code_of, is_conflict, is_refusal, kind_of, status_of

P = ParamSpec("P")
T = TypeVar("T")

MAX_RETRIES = "client_max_retries"
RETRY_TIMEOUT = "client_retry_timeout"
DEFAULT_MAX_RETRIES = 10
DEFAULT_RETRY_TIMEOUT = 180.0
_LOOKS = 4
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 15.0
#: Seconds between checks whether a wait was cancelled.
LOOK_SECONDS = 0.25
#: Protocols whose packages repeat each request themselves.
_REPEATING = frozenset({"gs", "gcs", "abfs", "abfss", "az"})
_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
#: Codes in the text of an answer, of any status.
_CODES = frozenset(
    (
        "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InternalError",
        "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
        "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
    )
)  # fmt: skip
#: Errors of the libraries, by name, as they are not imported here.
_TRANSIENT_CLASSES = frozenset(
    (
        "ClientConnectionError", "ClientPayloadError", "HTTPClientError", "IncompleteRead",
        "IncompleteReadError", "ProxyError", "ResponseParserError", "ServerDisconnectedError",
        "ServiceRequestError", "ServiceResponseError",
    )
)  # fmt: skip
#: Connections that cannot succeed later either.
_LASTING_CLASSES = frozenset(
    ("SSLError", "SSLCertVerificationError", "ClientSSLError", "InvalidURL")
)
_ERRNOS = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
_LASTING = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
)


@dataclass(frozen=True)
class Retries:
    """How often requests are repeated.

    - `timeout`: Seconds.
    - `below`: Whether the package below repeats requests itself, so that only failures which it
      does not repeat are repeated here.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    timeout: float = DEFAULT_RETRY_TIMEOUT
    below: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], fs: Any = None) -> Retries:
        """Return the retries that storage options ask for, for a file system of fsspec.

        Raises InvalidOptionError.
        """
        lower_options = {name.lower(): value for name, value in options.items()}
        return cls(
            int(_number(lower_options, MAX_RETRIES, DEFAULT_MAX_RETRIES, is_integer=True)),
            _number(lower_options, RETRY_TIMEOUT, DEFAULT_RETRY_TIMEOUT),
            below=not _REPEATING.isdisjoint(protocols(fs)),
        )

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a repeatable function until it succeeds. Raises its last error, or a lasting one."""
        tries = self.tries()
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                wait = tries.wait_after(error)
                if wait is None:
                    raise
            time.sleep(wait)

    async def call_async(
        self, request: Callable[[], Awaitable[T]], is_cancelled: Callable[[], bool]
    ) -> T:
        """Do the same in an event loop, until the request is cancelled."""
        tries = self.tries()
        while True:
            try:
                return await request()
            except Exception as error:
                wait = tries.wait_after(error)
                failure = error
            if wait is None or await _cancelled_while_waiting(wait, is_cancelled):
                raise failure

    def tries(self) -> Tries:
        """Return the tries of one request. The first one begins now."""
        return Tries(self)


async def _cancelled_while_waiting(seconds: float, is_cancelled: Callable[[], bool]) -> bool:
    """Wait, and return early and true if the request is cancelled."""
    end = time.monotonic() + seconds
    while not is_cancelled():
        seconds_left = end - time.monotonic()
        if seconds_left <= 0:
            return False
        await asyncio.sleep(min(seconds_left, LOOK_SECONDS))
    return True


class Tries:
    """The tries of one request."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._left = retries.max_retries
        self._end = time.monotonic() + retries.timeout
        self._wait = _FIRST_WAIT

    def wait_after(self, error: BaseException) -> float | None:
        """Return the seconds to wait before the next try; None if the error is final."""
        if self._left <= 0 or not is_transient(error):
            return None
        if self._retries.below and not isinstance(error, TimeoutError):
            return None
        wait = self._wait * random.uniform(0.5, 1)  # noqa: S311 - no secret
        remaining = self._end - time.monotonic()
        if wait > remaining:
            return None
        self._left -= 1
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return max(wait, min(retry_after(error), remaining))


def create_once(
    put: Callable[[], bool], look: Callable[[], bytes | None], data: bytes, retries: Retries
) -> bool:
    """Create a file only if it is absent, even if answers of the store are lost.

    A put that failed may have been carried out. So before the next put, and after the last, the
    file is read: a file with the same bytes counts as created by this call, also if another client
    wrote the same bytes.

    - `put`: Returns whether it created the file. Raises StorageError.
    - `look`: Returns the content of the file, or None if it does not exist. Raises StorageError.
    - `data`: Content that `put` writes.

    False if another client created the file. Raises StorageError: it is unknown whether the file
    was created. If `is_refusal` is true of the error, it certainly was not.
    """
    tries = retries.tries()
    doubt: StorageError | None = None
    while True:
        wait: float | None = None
        try:
            created = put()
            if created or doubt is None:
                return created
            failure = doubt
        except StorageError as error:
            if is_refusal(error):
                if doubt is None:
                    raise
                # The store can still carry out the request before.
                raise StorageError(str(error)) from doubt
            failure = doubt = error
            wait = tries.wait_after(error)
        if wait is not None:
            time.sleep(wait)
        try:
            present = seen_whole(look, data)
        except StorageError:
            # The cause is the failure of the put: a forbidden read does not mean that the put did
            # nothing.
            raise StorageError(str(failure)) from failure
        if present is not None:
            return present == data
        if wait is None:
            raise failure


def seen_whole(look: Callable[[], bytes | None], data: bytes) -> bytes | None:
    """Read the file until the content is not a mere beginning of `data`.

    Otherwise a truncated answer would make the own file look like another client's.
    Raises StorageError.
    """
    for _ in range(_LOOKS):
        present = look()
        if present is None or present == data or not data.startswith(present):
            return present
    raise StorageError("the store returns only a part of the file")


def is_transient(error: BaseException) -> bool:
    """Return whether a request with this error may succeed later.

    That is status 408, 429 or 5xx, a broken connection, a timeout, or a truncated answer.
    """
    if isinstance(error, _LASTING):
        return False
    chain = list(causes(error))
    if any(_has_class(cause, _LASTING_CLASSES) for cause in chain):
        return False
    if kind_of(error) is not None:
        return False
    if status_of(error) in _STATUSES or code_of(error) in _CODES or is_conflict(error):
        return True
    return any(_is_transient(cause) for cause in chain)


def is_beyond_end(answer: object) -> bool:
    """Return whether a store answers that a range begins after the end of the file (416)."""
    if not isinstance(answer, Exception):
        return False
    return status_of(answer) == 416 or code_of(answer) == "InvalidRange"


def retry_after(error: BaseException) -> float:
    """Return the seconds of the header `Retry-After`; 0 without it or if the package drops it."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, Mapping):
            # An error of botocore.
            headers = (response.get("ResponseMetadata") or {}).get("HTTPHeaders")
        else:
            # An error of aiohttp or of Azure's library.
            headers = getattr(cause, "headers", None) or getattr(response, "headers", None)
        for name, value in headers.items() if isinstance(headers, Mapping) else ():
            if str(name).lower() == "retry-after":
                return _seconds(str(value))
    return 0.0


def _seconds(text: str) -> float:
    """Parse the seconds of a header: a number, or an HTTP date."""
    if text.strip().isdecimal() and text.isascii():
        return float(text)
    with suppress(ValueError, TypeError):
        until = parsedate_to_datetime(text)
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
    return 0.0


def protocols(fs: Any) -> tuple[str, ...]:
    """Return the names of the protocol of a file system."""
    names = getattr(fs, "protocol", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError) or _has_class(error, _TRANSIENT_CLASSES):
        return True
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return True
    # Errors of Google's authentication.
    return getattr(error, "retryable", None) is True


def _has_class(error: BaseException, names: frozenset[str]) -> bool:
    return any(cls.__name__ in names for cls in type(error).__mro__)


def _number(
    options: Mapping[str, Any], name: str, default: float, *, is_integer: bool = False
) -> float:
    setting = options.get(name, default)
    try:
        value = int(setting) if is_integer else float(str(setting).removesuffix("s"))
    except (TypeError, ValueError, OverflowError):
        value = -1
    if not 0 <= value <= 1e6:
        expected = "a whole number" if is_integer else "a number of seconds"
        raise InvalidOptionError(
            f"storage option {name} must be {expected} of at least 0, not {setting!r}"
        )
    return value
