"""What stores raise, as errors of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lance_spark.errors import LanceError, MissingFileError, StorageError

#: Parts of option names whose values are never shown.
_SECRET = ("secret", "key", "token", "pass", "sas", "credential", "account")


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
        raise MissingFileError(f"{name}: there is no such file") from error
    except PermissionError as error:
        raise StorageError(f"{name}: permission denied") from error
    except OSError as error:
        reason = scrub(error.strerror or str(error) or type(error).__name__, options)
        raise StorageError(f"{name}: {reason}") from _shown(error, options)
    except Exception as error:
        # Every cloud library has its own root exception; none of them is a bug of the caller.
        raise StorageError(
            f"{name}: {type(error).__name__}: {scrub(str(error), options)}"
        ) from _shown(error, options)


def _shown(error: Exception, options: Mapping[str, object] | None) -> Exception:
    text = str(error)
    shown = scrub(text, options)
    # There is always a cause: an error without one says that nothing was done.
    return error if shown == text else OSError(f"{type(error).__name__}: {shown}")


def is_refusal(error: StorageError) -> bool:
    """Tell whether the store certainly did nothing: it has no way to do it, or forbids it."""
    return error.__cause__ is None or isinstance(error.__cause__, PermissionError)


def scrub(text: str, options: Mapping[str, object] | None) -> str:
    """Return `text` with the values of secret options replaced by asterisks."""
    for key, value in (options or {}).items():
        if isinstance(value, Mapping):
            text = scrub(text, value)
        elif isinstance(value, str) and len(value) > 3 and is_secret(key):
            text = text.replace(value, "***")
    return text


def is_secret(option: str) -> bool:
    """Tell whether an option of that name may hold a secret."""
    return any(part in option.lower() for part in _SECRET)
