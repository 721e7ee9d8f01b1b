"""Methods of `Dataset` that write to, empty or delete a whole table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.arguments import checks_arguments, takes_keywords
from lance_spark.dataset.changes.write_options import REFUSED, UNUSED, InsertKeywords
from lance_spark.dataset.history import HistoryMethods
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedError,
    naming,
)
from lance_spark.progress import reports_progress
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore

if TYPE_CHECKING:
    from lance_spark.table.commit.write_job import Mode


class WholeTableMethods(HistoryMethods):
    """Methods of `Dataset` that change a whole table."""

    @takes_keywords(unused=UNUSED, refused=REFUSED)
    @reports_progress
    def insert(
        self,
        data: Any,
        *,
        mode: Mode = "append",
        **keywords: Unpack[InsertKeywords],
    ) -> Self:
        """Write rows to this table in one commit; see `write_dataset`.

        Parameters
        ----------
        data : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The rows, as `write_dataset` takes them.
        mode : str
            ``append`` or ``overwrite``; ``create`` is an error, because the table exists.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        SchemaMismatchError, CommitConflictError, InvalidInputError, InvalidOptionError,
        UnsupportedTypeError, StorageError

        Examples
        --------
        >>> dataset = dataset.insert(pa.table({"id": [4]}))
        """
        from lance_spark.dataset.changes.writing import write_rows

        keywords.setdefault("storage_options", self._storage_options)
        return self._committed(write_rows(data, self.uri, mode, **keywords))

    def truncate_table(self) -> Self:
        """Delete all rows in one commit. Columns, indexes and old versions stay.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.delete import delete_rows
        from lance_spark.table.commit.options import CommitOptions

        options = CommitOptions()
        return self._committed(delete_rows(self._table, [], None, options, text="true"))

    @classmethod
    @checks_arguments
    def drop(
        cls,
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a table: all files below its root, with all branches, tags and other files there.

        Files below base paths stay, and so do those of other tables that refer to this one.

        Parameters
        ----------
        base_uri : str or path
            The root of a table with a version that can be read.
        storage_options : mapping, optional
            Settings of the store.
        ignore_not_found : bool, optional
            Whether a `base_uri` without files is accepted.

        Raises
        ------
        TableNotFoundError
            `base_uri` has no files.
        InvalidInputError
            `base_uri` has files, but it is not the root of a table that can be read.
        StorageError

        Examples
        --------
        >>> lance_spark.Dataset.drop("/data/old.lance", ignore_not_found=True)
        """
        store = ObjectStore.from_uri(os.fspath(base_uri), storage_options)
        with naming(store.display):
            _drop(store, ignore_not_found=bool(ignore_not_found))


def _drop(store: ObjectStore, *, ignore_not_found: bool) -> None:
    from lance_spark.dataset.facts.files import files_below
    from lance_spark.table.open import OpenTable, open_table
    from lance_spark.table.refs.branch_store import read_branches
    from lance_spark.table.refs.names import branch_store
    from lance_spark.table.removal import delete_files

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
