"""What an exception of a store says: the status of its answer, and the code in the answer's body.

Packages of stores make exceptions of answers in their own ways, by the code in the body of the
answer. Servers differ in their bodies: some have codes of their own, other formats, or no body. The
HTTP status is the same everywhere. So it decides what an error means, for all stores:

| status | meaning |
| --- | --- |
| 401, 403 | the store forbids the request |
| 404 | the file does not exist |
| 412 | the file exists: the condition of a put does not hold |
| 409 | on Azure, the file exists; on S3, another request is about to create it: try again |
| 400, 405, 501 | the store may not know a part of the request |

An exception without a status, such as that of a local disk, is what its class says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: The condition of a put does not hold. Servers that compare entity tags in one way for all
#: requests answer 304, as they do for reads.
_EXISTS = frozenset({304, 412})
_DENIED = frozenset({401, 403})
_UNKNOWN = frozenset({400, 405, 501})
_CONFLICT = 409
_DEEPEST = 8
#: Codes of Azure that a put gets, whatever the status, if the blob exists.
_EXISTING_CODES = frozenset(
    (
        "BlobAlreadyExists", "BlobImmutableDueToPolicy", "PathAlreadyExists",
        "ResourceAlreadyExists", "UnauthorizedBlobOverwrite",
    )
)  # fmt: skip
_PRECONDITION_FAILED = "PreconditionFailed"
#: Exceptions of requests that got no answer. An earlier answer in their context is of another
#: request.
_WITHOUT_ANSWER = (ConnectionError, TimeoutError)
#: The key of an error of botocore under which `storage/s3` adds what the user can do.
ADVICE = "Advice"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, newest first."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the answer that an exception is about; None without an answer."""
    answer = _answered(error)
    return None if answer is None else _status(answer)


def code_of(error: BaseException) -> str:
    """Return the code in the body of the answer, such as `NoSuchBucket`; "" without one."""
    answer = _answered(error)
    if answer is None:
        return ""
    details = _details(answer)
    # An error of botocore, or of Azure's library. The latter has an enumeration.
    code = getattr(answer, "error_code", None) if details is None else details.get("Code")
    code = getattr(code, "value", code)
    text = code if isinstance(code, str) else ""
    # Without a code in the body, botocore repeats the status.
    return "" if text.isdecimal() else text


def advice_of(error: BaseException) -> str:
    """Return what the user can do about an answer, if that is known; else ""."""
    answer = _answered(error)
    details = None if answer is None else _details(answer)
    return str((details or {}).get(ADVICE, ""))


def kind_of(error: BaseException) -> type[OSError] | None:
    """Return the class of Python that an exception amounts to, if callers distinguish it.

    That is FileNotFoundError, FileExistsError or PermissionError.
    """
    status, code = status_of(error), code_of(error)
    if status is None:
        if type(error) is OSError and str(error).startswith("Forbidden:"):
            # gcsfs raises this for 403.
            return PermissionError
        if _is_of_azure(error):
            return FileExistsError
        classes = (FileNotFoundError, FileExistsError, PermissionError)
        return next((cls for cls in classes if isinstance(error, cls)), None)
    if status in _EXISTS or code in _EXISTING_CODES:
        return FileExistsError
    if code == _PRECONDITION_FAILED:
        # S3 may find out after it has begun an answer of status 200.
        return FileExistsError
    if status == _CONFLICT:
        exists = _is_of_azure(error) or any(isinstance(c, FileExistsError) for c in causes(error))
        return FileExistsError if exists and not code else None
    if status == 404:
        return FileNotFoundError
    if status in _DENIED or isinstance(error, PermissionError):
        # Some servers answer 400 to expired credentials: s3fs knows their codes.
        return PermissionError
    return FileNotFoundError if isinstance(error, FileNotFoundError) else None


def is_missing(error: BaseException) -> bool:
    """Return whether the store answers that the file does not exist."""
    return kind_of(error) is FileNotFoundError


def is_conflict(error: BaseException) -> bool:
    """Return whether the answer is 409 and does not say why: another request is being served."""
    return status_of(error) == _CONFLICT and not code_of(error) and kind_of(error) is None


def is_not_understood(error: BaseException) -> bool:
    """Return whether the store may not know a part of the request."""
    return status_of(error) in _UNKNOWN


def _is_of_azure(error: BaseException) -> bool:
    """Return whether Azure's library says that something exists. Some releases of adlfs pass this
    exception on.
    """
    return any(type(cause).__name__ == "ResourceExistsError" for cause in causes(error))


def _answered(error: BaseException) -> BaseException | None:
    """Return the newest of the causes that has a status."""
    for cause in causes(error):
        if _status(cause) is not None:
            return cause
        if isinstance(cause, _WITHOUT_ANSWER):
            return None
    return None


def _status(error: BaseException) -> int | None:
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        # An error of botocore.
        return _number((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
    # Errors of aiohttp, Azure's library, gcsfs, and of packages of Google above requests.
    for name in ("status", "status_code", "code"):
        number = _number(getattr(error, name, None))
        if number is not None:
            return number
    return _number(getattr(response, "status_code", None))


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    return int(value) if isinstance(value, int) and 100 <= value < 600 else None


def _details(error: BaseException) -> Mapping[str, Any] | None:
    response = getattr(error, "response", None)
    return (response.get("Error") or {}) if isinstance(response, Mapping) else None
