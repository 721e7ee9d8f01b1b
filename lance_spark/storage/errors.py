"""Translates the exceptions of stores to errors of this package, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

from lance_spark.errors import LanceError, MissingFileError, StorageError

# --------------------------------------------------------------------------------------------------
# What an exception of a store says: the status of its answer, and the code in the answer's body.
#
# Packages of stores make exceptions of answers in their own ways, by the code in the body of the
# answer. Servers differ in their bodies: some have codes of their own, other formats, or no body.
# The HTTP status is the same everywhere. So it decides what an error means, for all stores:
#
# | status | meaning |
# | --- | --- |
# | 401, 403 | the store forbids the request |
# | 404 | the file does not exist |
# | 412 | the file exists: the condition of a put does not hold |
# | 409 | on Azure, the file exists; on S3, another request is about to create it: try again |
# | 400, 405, 501 | the store may not know a part of the request |
#
# An exception without a status, such as that of a local disk, is what its class says.

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


# --------------------------------------------------------------------------------------------------
# Translates the exceptions of stores to errors of this package, without secrets.

#: Parts of option names whose values are never shown.
_SECRET = (
    "secret", "key", "token", "pass", "sas", "credential", "account", "connection", "signature",
    "auth", "private", "bearer", "headers.",
)  # fmt: skip
#: Ends of names with such a part whose values are not secret, and help to understand an error.
_SHOWN = ("account_name", "account_host", "connection_timeout", "connection.ssl.enabled")
#: Values of at most this length are not taken for secrets.
_SHORT = 3
#: What is missing, by the code of the answer, if that is not the file.
_MISSING = {
    "NoSuchBucket": "the bucket does not exist",
    "ContainerNotFound": "the container does not exist",
}
#: Classes of errors that callers distinguish.
_DISTINGUISHED = (
    FileExistsError,
    FileNotFoundError,
    PermissionError,
    ConnectionError,
    TimeoutError,
)
#: Errors of this kind are faults of the program, if its own code raises them.
_BUGS = (AssertionError, AttributeError, LookupError, NameError, TypeError)


class LockTakenError(StorageError):
    """Another client holds the lock of the user: the store did nothing."""


@contextmanager
def translated(name: str, options: Mapping[str, object] | None = None) -> Iterator[None]:
    """Translate any exception of a store into StorageError or MissingFileError.

    - `name`: Name of the file in the error.
    - `options`: Storage options. Values that may be secrets are masked in the text of the store.
    """
    try:
        yield
    except (LanceError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, _BUGS) and _is_own(error):
            raise
        # Every cloud library has its own root exception. None of them is a bug of the caller.
        cause = _without_secrets(error, options)
        kind, reason = kind_of(error), _reason(error, options)
        if _contradicts(cause, kind):
            # Callers look at the class of the cause.
            new = (kind or OSError)(reason)
            new.__cause__, cause = cause, new
        if kind is FileNotFoundError:
            missing = _MISSING.get(code_of(error), "file not found")
            raise MissingFileError(f"{name}: {missing}") from cause
        if kind is PermissionError:
            code = scrub(code_of(error), options)
            reason = f"permission denied ({code})" if code else "permission denied"
        advice = advice_of(error)
        raise StorageError(f"{name}: {reason}{advice and f'; {advice}'}") from cause


def _is_own(error: BaseException) -> bool:
    """Return whether code of this package raised an error, and not a library of a store."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return str(module).partition(".")[0] == __name__.partition(".")[0]


def _reason(error: Exception, options: Mapping[str, object] | None) -> str:
    status = status_of(error)
    if isinstance(error, OSError):
        code = code_of(error)
        if status is not None and error.errno is not None and not (code and error.strerror):
            # The body of the answer has no code or no text. A start does not need this module.
            from http.client import responses

            return f"the store answers {status} {code or responses.get(status, '')}".rstrip()
        return scrub(error.strerror or str(error) or type(error).__name__, options)
    return f"{type(error).__name__}: {scrub(str(error), options)}"


def _contradicts(error: Exception, kind: type[OSError] | None) -> bool:
    """Return whether the class of an exception says something else than the answer."""
    if kind is None:
        return isinstance(error, FileExistsError | FileNotFoundError | PermissionError)
    return not isinstance(error, kind)


def _without_secrets(error: Exception, options: Mapping[str, object] | None) -> Exception:
    """Return the error, or a copy without secrets if it or one of its causes contains one."""
    secrets = secret_values(options)
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        text = f"{cause} {cause.args!r}"
        if any(secret in text for secret in secrets):
            break
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    else:
        return error
    # The copy becomes a cause: an error without a cause means that the store did nothing.
    text = scrub(str(error), options)
    cls = next((cls for cls in _DISTINGUISHED if isinstance(error, cls)), None)
    clean = OSError(f"{type(error).__name__}: {text}") if cls is None else cls(text)
    # These attributes decide what the error means, and whether a request is repeated.
    status, code, number = status_of(error), code_of(error), getattr(error, "errno", None)
    if status is not None:
        clean.status, clean.error_code = status, scrub(code, options)  # type: ignore[attr-defined]
    if isinstance(number, int):
        clean.errno = number
    return clean


def is_refusal(error: StorageError) -> bool:
    """Return whether the store certainly did nothing: it cannot do it, or forbids it."""
    return error.__cause__ is None or isinstance(error.__cause__, PermissionError)


def scrub(text: str, options: Mapping[str, object] | None) -> str:
    """Return `text` with the values of secret options replaced by asterisks."""
    for value in secret_values(options):
        text = text.replace(value, "***")
    return text


def secret_values(options: Mapping[str, object] | None) -> list[str]:
    """Return the option values that may be secrets, plain and URL-encoded, longest first."""
    secrets: set[str] = set()
    _collect(options or {}, secrets)
    return sorted((value for value in secrets if len(value) > _SHORT), key=len, reverse=True)


def _collect(options: Mapping[str, object], secrets: set[str]) -> None:
    for name, value in options.items():
        if isinstance(value, Mapping):
            _collect(value, secrets)
        elif isinstance(value, str) and is_secret(str(name)):
            secrets |= {value, quote(value, safe=""), unquote(value), repr(value)[1:-1]}
            if value.lstrip().startswith("{"):
                # The content of the key file of a service account.
                try:
                    inner = json.loads(value)
                except (ValueError, RecursionError):
                    continue
                if isinstance(inner, Mapping):
                    _collect(inner, secrets)
            elif "sig=" in value:
                # A shared access signature of Azure: servers repeat parts of it.
                signature = value.rpartition("sig=")[2].partition("&")[0].partition(";")[0]
                secrets |= {signature, unquote(signature)}
            if ";" in value:
                # A connection string of Azure.
                pairs = (part.partition("=") for part in value.split(";"))
                _collect({key: text for key, _, text in pairs}, secrets)


def is_secret(option: str) -> bool:
    """Return whether an option with this name may hold a secret."""
    name = option.lower()
    return not name.endswith(_SHOWN) and any(part in name for part in _SECRET)
