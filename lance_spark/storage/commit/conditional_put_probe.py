"""Tests whether a store honours conditional puts, on which commits rely.

Some servers with the protocol of a cloud accept the condition of a put and replace an existing
object anyway. So before a process writes to an unknown server, it creates a small object twice: the
second put must be refused. That costs three requests, once for each process, server and bucket.
The servers of AWS, Google and Microsoft are known and not probed.

The object has the name of a transaction file that no version refers to. Lance clients do not read
it, and cleanup removes it if a crash leaves it behind.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lance_spark.errors import StorageError
from lance_spark.storage.connect import endpoint_of, is_own_endpoint
from lance_spark.storage.errors import is_refusal

_FOLDER = "_transactions"
#: Texts of stores for a request that they do not support.
_UNKNOWN = ("not implemented", "notimplemented")
_lock = threading.Lock()
_honours: dict[tuple[str, str, str], bool] = {}


def is_probed(scheme: str, fs: Any) -> bool:
    """Tell whether a store must be probed."""
    if fs is None or scheme == "memory":
        return False
    return not is_own_endpoint(scheme, endpoint_of(scheme, fs))


def check(
    scheme: str,
    fs: Any,
    uri: str,
    name: str,
    put: Callable[[str, bytes], bool],
    put_bare: Callable[[str, bytes], bool],
    delete: Callable[[str], None],
) -> None:
    """Refuse a store that replaces an existing file in spite of the condition.

    Parameters
    ----------
    scheme : str
    fs : fsspec file system
    uri : str
        The root of the files.
    name : str
        Name of the root in errors.
    put : callable
        Creates a file below the root if it is absent, even if answers are lost; returns whether it
        did. Raises StorageError.
    put_bare : callable
        Does the same, but returns the plain answer of the store. Raises StorageError.
    delete : callable
        Deletes a file. Raises StorageError.

    Raises
    ------
    StorageError
        The store replaces files; or the probe failed. Nothing else was written.
    """
    if not is_probed(scheme, fs):
        return
    server = endpoint_of(scheme, fs)
    bucket = (scheme, server or "", uri.partition("://")[2].partition("/")[0])
    with _lock:
        honours = _honours.get(bucket)
        if honours is None:
            honours = _honours[bucket] = _try(name, put, put_bare, delete)
    if not honours:
        where = f"the server {server}" if server else f"{scheme}://"
        raise StorageError(
            f"{name}: {where} does not refuse to replace a file that is to be created only if it "
            "is absent, so that two "
            "writers could overwrite each other's version, and commits on it would not be safe. "
            "Name a lock that all writers "
            "use by the storage option commit_lock, or keep the manifests in a database "
            "(s3+ddb://, or the storage option manifest_store), "
            "or keep the table elsewhere; it can be read as it is"
        )


def forget() -> None:
    """Forget the results of all probes."""
    with _lock:
        _honours.clear()


def _try(
    name: str,
    put: Callable[[str, bytes], bool],
    put_bare: Callable[[str, bytes], bool],
    delete: Callable[[str], None],
) -> bool:
    path = f"{_FOLDER}/{uuid.uuid4()}.probe.txn"
    try:
        try:
            if not put(path, b"first"):
                # No other client uses that name, so this answer is wrong.
                return False
            # Only the plain answer counts: a repeated request could meet its own file.
            return not put_bare(path, b"second")
        except StorageError as error:
            if any(text in str(error).lower() for text in _UNKNOWN):
                return False
            if is_refusal(error):
                raise
            # Without a cause: the table is unchanged.
            raise StorageError(
                f"{error}; this was the test whether commits on the store are safe; nothing was "
                "written"
            ) from None
    finally:
        # Otherwise cleanup finds it.
        with suppress(StorageError):
            delete(path)
