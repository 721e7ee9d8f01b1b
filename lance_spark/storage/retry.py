"""Requests that are sent again: after 429, a fault of the server, a connection that broke, an answer that came late or not whole.

| storage option | default | meaning |
| --- | --- | --- |
| `client_max_retries` | 10 | how often a request is repeated |
| `client_retry_timeout` | 180 | seconds after its first try from which on it is not |

The waits double from 0.1 s on up to 15 s, each a random length between half of that and all of it. Names and meaning are those of other
Lance clients, whose default for the first one is 3; they slow down besides. Where the answer says how long to wait (`Retry-After`), and the
package of the store hands that on, no request is repeated sooner, but for the last one, which is sent when the time is over.

How that multiplies with what the packages below do:

- s3fs and botocore would each repeat on their own, five times five requests for one. For tables they do not: they are told to send each
  request once, so that `client_max_retries` + 1 is all there is. Who gives `config_kwargs` with `retries` has botocore's tries on top, for
  each of ours.
- gcsfs sends a request up to 6 times, and Azure's library up to 4 times. What they gave up is not begun again here, but for a timeout or a
  short answer, which gcsfs does not repeat. Parts of files that are written are sent past that, once, and repeated here (`parts`).
- A commit whose put failed for good looks for itself and starts again up to 3 times (`table/commit/commit.py`).

Whatever has the same effect when it is done twice can be repeated. Creating a file only if there is none cannot: see `create_once`.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, ParamSpec, TypeVar

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.errors import is_refusal

P = ParamSpec("P")
T = TypeVar("T")

MAX_RETRIES = "client_max_retries"
RETRY_TIMEOUT = "client_retry_timeout"
DEFAULT_MAX_RETRIES = 10
DEFAULT_RETRY_TIMEOUT = 180.0
_LOOKS = 4
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 15.0
#: Between looks whether a wait was given up.
_LOOK_SECONDS = 0.25
#: Protocols whose packages repeat each request themselves.
_REPEATING = frozenset({"gs", "gcs", "abfs", "abfss", "az"})
_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
#: What stores say in the text of an answer, whatever its status.
_CODES = frozenset(
    (
        "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InternalError", "OperationAborted", "RequestTimeout",
        "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
    )
)  # fmt: skip
#: Errors of the libraries, by name: they are not imported here.
_KINDS = frozenset(
    (
        "ClientConnectionError", "ClientPayloadError", "HTTPClientError", "IncompleteRead", "IncompleteReadError",
        "ProxyError", "ResponseParserError", "ServerDisconnectedError", "ServiceRequestError", "ServiceResponseError",
    )
)  # fmt: skip
#: Connections that will never be.
_LASTING_KINDS = frozenset(("SSLError", "SSLCertVerificationError", "ClientSSLError", "InvalidURL"))
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
_LASTING = (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError, IsADirectoryError)  # fmt: skip


@dataclass(frozen=True)
class Retries:
    """How often requests are repeated.

    Attributes
    ----------
    max_retries : int
    timeout : float
        Seconds.
    below : bool
        Whether the package below repeats requests itself, so that only what it leaves alone is repeated here.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    timeout: float = DEFAULT_RETRY_TIMEOUT
    below: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], fs: Any = None) -> Retries:
        """Return what storage options say, for a file system of fsspec.

        Raises
        ------
        InvalidOptionError
        """
        given = {name.lower(): value for name, value in options.items()}
        return cls(
            int(_number(given, MAX_RETRIES, DEFAULT_MAX_RETRIES, whole=True)),
            _number(given, RETRY_TIMEOUT, DEFAULT_RETRY_TIMEOUT),
            below=not _REPEATING.isdisjoint(protocols(fs)),
        )

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may be called twice, until it does not fail as a store does for a while. Raises what it raises."""
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
        self, request: Callable[[], Awaitable[T]], is_given_up: Callable[[], bool]
    ) -> T:
        """Do the same in an event loop, as long as nobody has given it up."""
        tries = self.tries()
        while True:
            try:
                return await request()
            except Exception as error:
                wait = tries.wait_after(error)
                failure = error
            if wait is None or await _waited(wait, is_given_up):
                raise failure

    def tries(self) -> Tries:
        """Return the tries of one request, the first of which begins now."""
        return Tries(self)


async def _waited(seconds: float, is_given_up: Callable[[], bool]) -> bool:
    """Wait, and tell whether it was given up, which ends it."""
    end = time.monotonic() + seconds
    while not is_given_up():
        left = end - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, _LOOK_SECONDS))
    return True


class Tries:
    """The tries of one request."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._left = retries.max_retries
        self._end = time.monotonic() + retries.timeout
        self._wait = _FIRST_WAIT

    def wait_after(self, error: BaseException) -> float | None:
        """Return how many seconds after an error to try again; None if there is to be no other try."""
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
    """Create a file only if there is none, whatever becomes of the answers.

    A put that fails may have been carried out. Before another one, and after the last, we look: a file with these bytes is our own.
    So bytes that somebody else could write, too, count as ours.

    Parameters
    ----------
    put : callable
        Tells whether it created the file. Raises StorageError.
    look : callable
        Returns the content of the file, None if there is none. Raises StorageError.
    data : bytes
        What `put` writes.
    retries : Retries

    Returns
    -------
    bool
        False if there is a file of somebody else.

    Raises
    ------
    StorageError
        Nobody knows whether the file was created; or, if `is_refusal` says so, it certainly was not.
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
                # The request before can still be carried out.
                raise StorageError(str(error)) from doubt
            failure = doubt = error
            wait = tries.wait_after(error)
        if wait is not None:
            time.sleep(wait)
        try:
            present = seen_whole(look, data)
        except StorageError:
            # From the failure of the put: that the look is forbidden does not mean that nothing was done.
            raise StorageError(str(failure)) from failure
        if present is not None:
            return present == data
        if wait is None:
            raise failure


def seen_whole(look: Callable[[], bytes | None], data: bytes) -> bytes | None:
    """Look until what is seen is no beginning of `data`: our own file, if its answer is cut short, would be taken for somebody else's.

    Raises
    ------
    StorageError
    """
    for _ in range(_LOOKS):
        present = look()
        if present is None or present == data or not data.startswith(present):
            return present
    raise StorageError("the file does not come as a whole")


def is_transient(error: BaseException) -> bool:
    """Tell whether a request that failed so may succeed later: 408, 429, 5xx, a broken connection, a timeout, an answer cut short."""
    if isinstance(error, _LASTING):
        return False
    chain = list(_chain(error))
    if any(_is(one, _LASTING_KINDS) for one in chain):
        return False
    return any(_is_transient(one) for one in chain)


def is_beyond_end(answer: object) -> bool:
    """Tell whether a store answers that a file ends before a range of it begins (416)."""
    if not isinstance(answer, Exception):
        return False
    for one in _chain(answer):
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            # As botocore has it.
            if (response.get("Error") or {}).get("Code") == "InvalidRange":
                return True
        elif any(
            str(getattr(one, name, "")) == "416" for name in ("status", "code", "status_code")
        ):
            return True
    return False


def retry_after(error: BaseException) -> float:
    """Return for how many seconds a store does not want to be asked again; 0 if it has not said so, or its package keeps that to itself."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            # As botocore has it.
            headers = (response.get("ResponseMetadata") or {}).get("HTTPHeaders")
        else:
            # As aiohttp and Azure's library have it.
            headers = getattr(one, "headers", None) or getattr(response, "headers", None)
        for name, value in headers.items() if isinstance(headers, Mapping) else ():
            if str(name).lower() == "retry-after":
                return _seconds(str(value))
    return 0.0


def _seconds(text: str) -> float:
    """Return the seconds that a header tells: a number, or a time in HTTP's words."""
    if text.strip().isdecimal() and text.isascii():
        return float(text)
    with suppress(ValueError, TypeError):
        until = parsedate_to_datetime(text)
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
    return 0.0


def protocols(fs: Any) -> tuple[str, ...]:
    """Return the names of a file system's protocol."""
    names = getattr(fs, "protocol", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(8):
        if one is None:
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError) or _is(error, _KINDS):
        return True
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return True
    if getattr(error, "retryable", None) is True:
        # Google's tokens.
        return True
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        # As botocore has it.
        code = (response.get("Error") or {}).get("Code")
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
        return code in _CODES or status in _STATUSES
    # As aiohttp, gcsfs and Azure's library have it.
    for name in ("status", "code", "status_code"):
        number = getattr(error, name, None)
        if isinstance(number, str) and number.isdecimal() and number.isascii():
            number = int(number)
        if isinstance(number, int) and number in _STATUSES:
            return True
    return False


def _is(error: BaseException, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _number(options: Mapping[str, Any], name: str, default: float, *, whole: bool = False) -> float:
    given = options.get(name, default)
    try:
        value = int(given) if whole else float(str(given).removesuffix("s"))
    except (TypeError, ValueError, OverflowError):
        value = -1
    if not 0 <= value <= 1e6:
        what = "a whole number" if whole else "a number of seconds"
        raise InvalidOptionError(f"storage option {name}: {what} from 0 on, not {given!r}")
    return value
