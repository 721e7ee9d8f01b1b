"""Translates the exceptions of stores to errors of this package, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, unquote

from lance_spark.errors import LanceError, MissingFileError, StorageError
from lance_spark.storage.status import advice_of, code_of, kind_of, status_of

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
