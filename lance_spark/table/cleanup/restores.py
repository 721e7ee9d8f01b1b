"""Versions that somebody is about to restore: what cleanup asks before it removes any.

A restore writes its transaction to `_transactions/` first, as every commit does, and then looks whether the version that it brings back stays
(`marks`). So cleanup looks for such files that no version refers to, once the marks are gone: of two that meet, one sees the other. A file stays
behind if its writer was killed; it counts until it is as old as whatever else nobody refers to has to be to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from google.protobuf.message import DecodeError

from lance_spark.errors import MissingFileError
from lance_spark.proto import transaction_pb2
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.local import check_size
from lance_spark.storage.read.parallel_reads import read_all
from lance_spark.storage.store import ObjectStore

#: Transactions of a restore are a few hundred bytes, and what the caller says of it.
_LARGEST = 1024 * 1024


def restored_versions(store: ObjectStore, files: Sequence[FileInfo]) -> frozenset[int]:
    """Return the versions that transactions restore.

    Parameters
    ----------
    store : ObjectStore
    files : sequence of FileInfo
        Of transactions. Those that are gone, or no transactions, are passed over.

    Raises
    ------
    CorruptFileError
        The store does not give a file as a whole.
    StorageError
    """
    some = [info for info in files if info.size <= _LARGEST]
    found = read_all(partial(_restored, store), some, local=store.is_local)
    return frozenset(version for version in found if version is not None)


def _restored(store: ObjectStore, info: FileInfo) -> int | None:
    try:
        data = store.read_bytes(info.path)
    except MissingFileError:
        return None
    check_size(store.name(info.path), len(data), info.size or None)
    message = transaction_pb2.Transaction()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message.restore.version if message.HasField("restore") else None
