"""Where a single file is: the store of its folder, and its name there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.namespace import table_entry
from lance_spark.storage.store import ObjectStore


def store_of(
    folder: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    namespace_client: object | None,
    table_id: Sequence[str] | None,
) -> ObjectStore:
    """Return the store of a folder, with the settings that the namespace of a table gives.

    Raises
    ------
    InvalidOptionError, TableNotFoundError, StorageError
    """
    options = dict(storage_options or {})
    if namespace_client is not None or table_id is not None:
        with table_entry(None, namespace_client, table_id, options) as entry:
            options = dict(entry.storage_options)
    return ObjectStore.from_uri(os.fspath(folder), options)


def folder_and_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the folder of a file, and its name in it.

    Raises
    ------
    InvalidInputError
        The path has no name of a file.
    """
    folder, slash, name = os.fspath(path).rpartition("/")
    if not name:
        raise InvalidInputError(f"path must name a file, not {os.fspath(path)!r}")
    return (folder or slash or "."), name
