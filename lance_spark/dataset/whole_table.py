"""The deletion of a whole table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from lance_spark.dataset.listing import files_below
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedError,
    error_context,
)
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.refs.branch_store import read_branches
from lance_spark.table.refs.names import branch_store
from lance_spark.table.removal import delete_files


def drop_table(
    base_uri: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    *,
    ignore_not_found: bool,
) -> None:
    """Delete a table; see `Dataset.drop`.

    Raises TableNotFoundError, InvalidInputError, UnsupportedError, StorageError.
    """
    store = ObjectStore.from_uri(os.fspath(base_uri), storage_options)
    with error_context(store.display):
        _drop(store, ignore_not_found=ignore_not_found)


def _drop(store: ObjectStore, *, ignore_not_found: bool) -> None:
    def opened() -> OpenTable | TableNotFoundError | CorruptTableError:
        try:
            return open_table(store.uri, storage_options=store.options)
        except (TableNotFoundError, CorruptTableError) as error:
            return error

    files, table = call_all((partial(files_below, store), opened), local=store.is_local)
    if isinstance(table, TableNotFoundError):
        if not files and ignore_not_found:
            return
        if not files:
            raise table
        raise InvalidInputError(
            f"{store.display} is not the root of a table, but it has files; delete them by other "
            "means if they are not needed"
        )
    if isinstance(table, CorruptTableError):
        raise InvalidInputError(
            f"{store.display} has no version that can be read, so it is not deleted: {table}"
        )
    if table.main is not table.store:
        raise InvalidInputError(
            f"{store.display} is the branch {table.manifest.branch!r}; use branches.delete"
        )
    folder = store.object_uri.rstrip("/").rpartition("/")[2]
    parent = store.above(folder)
    if parent is None:
        raise UnsupportedError(
            f"{store.display} has no folder above it, so it is not deleted; delete its files"
        )
    roots = [store]
    if store.manifest_store is not None:
        roots += [branch_store(store, name) for name in read_branches(store)]
    paths = [f"{folder}/{file.path}" for file in files]
    delete_files(parent, folder, paths, roots, manifests_first=True)
