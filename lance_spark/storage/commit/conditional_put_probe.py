"""Finding out whether a store honours what commits rely on.

Some servers that speak the language of a cloud take the condition of a put, and replace what is
there all the same. So a process that is about to write to a server that it does not know creates a
small object twice, before anything else: the second time has to be refused. That is three requests,
once in a process for each server and bucket. The servers of AWS, Google and Microsoft are known,
and not asked.

The object is called like a transaction that nobody refers to: no Lance client reads it, and if a
crash leaves it, cleanup takes it away.
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
#: What stores say of a request that they do not know.
_UNKNOWN = ("not implemented", "notimplemented")
_lock = threading.Lock()
_honours: dict[tuple[str, str, str], bool] = {}


def is_probed(scheme: str, fs: Any) -> bool:
    """Tell whether a store has to be asked."""
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
    """Refuse a store that replaces files which are to be created only if they are absent.

    Parameters
    ----------
    scheme : str
    fs : fsspec file system
    uri : str
        The root of the files.
    name : str
        What messages call it.
    put : callable
        Puts a file below the root if there is none; tells whether it did, whatever became of the
        answers. Raises StorageError.
    put_bare : callable
        Does the same, and tells what the store answers, without a look at what is there. Raises
        StorageError.
    delete : callable
        Deletes one. Raises StorageError.

    Raises
    ------
    StorageError
        The store is such a one; or it failed, and nothing was done but this.
    """
    if not is_probed(scheme, fs):
        return
    server = endpoint_of(scheme, fs)
    place = (scheme, server or "", uri.partition("://")[2].partition("/")[0])
    with _lock:
        honours = _honours.get(place)
        if honours is None:
            honours = _honours[place] = _try(name, put, put_bare, delete)
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
    """Forget what was found out."""
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
                # Nobody else has that name: an answer that is not true is no better than none.
                return False
            # After a request without an answer the first file may be there because nothing was
            # done: only an answer counts.
            return not put_bare(path, b"second")
        except StorageError as error:
            if any(text in str(error).lower() for text in _UNKNOWN):
                return False
            if is_refusal(error):
                raise
            # From nothing: the table is as it was.
            raise StorageError(
                f"{error}; that was when the store was asked whether commits on it are safe, "
                "before anything was written"
            ) from None
    finally:
        # Otherwise cleanup finds it.
        with suppress(StorageError):
            delete(path)
