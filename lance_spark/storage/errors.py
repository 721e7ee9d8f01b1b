"""What stores raise, as errors of this package, without the secrets that some of them repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, unquote

from lance_spark.errors import LanceError, MissingFileError, StorageError

#: Parts of option names whose values are never shown.
_SECRET = (
    "secret", "key", "token", "pass", "sas", "credential", "account", "connection", "signature", "auth", "private", "bearer",
)  # fmt: skip
#: Ends of names with such a part whose values are no secrets, and help to understand an error.
_SHOWN = ("account_name", "account_host", "connection_timeout")
#: No secret is as short as this.
_SHORT = 3
_DENIED = (401, 403)
#: Errors that callers tell apart.
_KINDS = (FileExistsError, FileNotFoundError, PermissionError, ConnectionError, TimeoutError)


@contextmanager
def translated(name: str, options: Mapping[str, object] | None = None) -> Iterator[None]:
    """Turn whatever a store raises about the file `name` into StorageError or MissingFileError.

    Parameters
    ----------
    name : str
        What the error calls the file.
    options : mapping, optional
        Storage options; values that may be secrets are blotted out where the store repeats them in its message.
    """
    try:
        yield
    except (LanceError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: there is no such file") from _shown(error, options)
    except PermissionError as error:
        raise StorageError(f"{name}: permission denied") from _shown(error, options)
    except OSError as error:
        reason = scrub(error.strerror or str(error) or type(error).__name__, options)
        if _is_denied(error):
            raise StorageError(f"{name}: permission denied") from PermissionError(reason)
        raise StorageError(f"{name}: {reason}") from _shown(error, options)
    except Exception as error:
        # Every cloud library has its own root exception; none of them is a bug of the caller.
        reason = f"{type(error).__name__}: {scrub(str(error), options)}"
        if type(error).__name__ == "ResourceExistsError":
            # Older adlfs hands on what Azure's package calls a file that exists.
            raise StorageError(f"{name}: {reason}") from FileExistsError(reason)
        if _is_denied(error):
            raise StorageError(f"{name}: permission denied") from PermissionError(reason)
        raise StorageError(f"{name}: {reason}") from _shown(error, options)


def _is_denied(error: Exception) -> bool:
    """Tell whether it is a refusal of Azure or Google Cloud Storage, whose packages have no PermissionError."""
    one: BaseException | None = error
    while one is not None:
        # adlfs wraps what Azure's package raises.
        if getattr(one, "status_code", None) in _DENIED or getattr(one, "code", None) in _DENIED:
            return True
        one = one.__cause__
    return type(error) is OSError and str(error).startswith("Forbidden:")


def _shown(error: Exception, options: Mapping[str, object] | None) -> Exception:
    """Return an error that tells no secret, and has none that does among those that it came from."""
    secrets = secret_values(options)
    one: BaseException | None = error
    seen: list[BaseException] = []
    while one is not None and one not in seen:
        text = f"{one} {one.args!r}"
        if any(secret in text for secret in secrets):
            break
        seen.append(one)
        one = one.__cause__ or one.__context__
    else:
        return error
    # There is always a cause: an error without one says that nothing was done.
    text = scrub(str(error), options)
    kind = next((one for one in _KINDS if isinstance(error, one)), None)
    clean = OSError(f"{type(error).__name__}: {text}") if kind is None else kind(text)
    # Whether trying again makes sense is told from these.
    for name in ("status", "code", "status_code", "errno"):
        number = getattr(error, name, None)
        if isinstance(number, int):
            setattr(clean, name, number)
    return clean


def is_refusal(error: StorageError) -> bool:
    """Tell whether the store certainly did nothing: it has no way to do it, or forbids it."""
    return error.__cause__ is None or isinstance(error.__cause__, PermissionError)


def scrub(text: str, options: Mapping[str, object] | None) -> str:
    """Return `text` with the values of secret options replaced by asterisks."""
    for value in secret_values(options):
        text = text.replace(value, "***")
    return text


def secret_values(options: Mapping[str, object] | None) -> list[str]:
    """Return the texts among the values of options that may be secrets, as they are and as URLs have them, the longest first."""
    found: set[str] = set()
    _collect(options or {}, found)
    return sorted((value for value in found if len(value) > _SHORT), key=len, reverse=True)


def _collect(options: Mapping[str, object], found: set[str]) -> None:
    for name, value in options.items():
        if isinstance(value, Mapping):
            _collect(value, found)
        elif isinstance(value, str) and is_secret(str(name)):
            found |= {value, quote(value, safe=""), unquote(value), repr(value)[1:-1]}
            if value.lstrip().startswith("{"):
                # The content of a service account's file.
                try:
                    inner = json.loads(value)
                except (ValueError, RecursionError):
                    continue
                if isinstance(inner, Mapping):
                    _collect(inner, found)
            elif "sig=" in value:
                # A shared access signature of Azure, of which a server repeats parts.
                signature = value.rpartition("sig=")[2].partition("&")[0].partition(";")[0]
                found |= {signature, unquote(signature)}
            if ";" in value:
                # A connection string of Azure.
                pairs = (part.partition("=") for part in value.split(";"))
                _collect({key: text for key, _, text in pairs}, found)


def is_secret(option: str) -> bool:
    """Tell whether an option of that name may hold a secret."""
    name = option.lower()
    return not name.endswith(_SHOWN) and any(part in name for part in _SECRET)
