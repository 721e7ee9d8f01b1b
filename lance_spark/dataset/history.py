"""Methods of `Dataset` for history, tags, branches, clones, and commits of user operations."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.arguments import check_least, checks_arguments, takes_keywords
from lance_spark.dataset.changes.write_options import REFUSED
from lance_spark.errors import naming
from lance_spark.namespace import table_entry
from lance_spark.progress import ProgressCallback, reports_progress
from lance_spark.storage.commit.lock import CommitLock, with_lock
from lance_spark.storage.options.base_paths import with_base_params
from lance_spark.storage.store import ObjectStore
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, check_timeout
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest import history, versions
from lance_spark.table.manifest.history import VersionInfo
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs.names import branch_store

if TYPE_CHECKING:
    from lance_spark.dataset.branches import Branches
    from lance_spark.dataset.files.session import LanceFileSession
    from lance_spark.dataset.tags import Tags
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import Reference
    from lance_spark.table.operations.base import Operation
    from lance_spark.table.refs.branch_repair import BranchRepair


class HistoryMethods:
    """Base of `Dataset`: its identity, and the methods that read no rows.

    Parameters
    ----------
    table : OpenTable
    storage_options : mapping, optional
        Settings of the store.
    """

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str] | None = None) -> None:
        # Internal: other modules of this project use it as well, users must not.
        self._table = table
        self._storage_options = dict(storage_options or {})
        self._io_before = table.store.io_counts.stats()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.store.display!r}, version={self.version})"

    def _committed(self, table: OpenTable) -> Self:
        """Return a version that was committed, as a handle of the same kind."""
        return type(self)(table, self._storage_options)

    @property
    def uri(self) -> str:
        """URI or path of the root of the table, or of the branch."""
        return self._table.store.uri

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._table.version

    @property
    def branch(self) -> str | None:
        """Name of the branch of the version; None for the main branch."""
        return self._table.branch

    @property
    def latest_version(self) -> int:
        """Number of the branch's newest version, which is looked up."""
        return versions.latest(self._table.store).version

    @property
    def tags(self) -> Tags:
        """The tags of the table: list, create, move and delete them."""
        from lance_spark.dataset.tags import Tags

        return Tags(self._table)

    @property
    def branches(self) -> Branches:
        """The branches of the table: list and delete them. `create_branch` creates one."""
        from lance_spark.dataset.branches import Branches

        return Branches(self._table)

    def versions(self) -> list[VersionInfo]:
        """Return all existing versions of the branch, oldest first.

        Returns
        -------
        list of VersionInfo
            Number and commit time of each version. The attributes `metadata` (numbers of fragments,
            files, rows and bytes), `operation`, `message` and `transaction_properties` are read on
            first access.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return history.list_versions(self._table.store)

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created a version of the branch; None if it is not recorded.

        Raises
        ------
        VersionNotFoundError
            The version does not exist.
        CorruptTableError, StorageError
        """
        return history.transaction_of(self._table.store, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the transactions of this version and of its predecessors, newest first.

        Parameters
        ----------
        recent_transactions : int
            Maximum number of transactions.

        Raises
        ------
        CorruptTableError, StorageError
        """
        check_least("recent_transactions", recent_transactions, 0)
        return history.transactions(self._table.store, self.version, recent_transactions)

    def base_paths(self) -> dict[int, BasePath]:
        """Return the base paths of the version, by id."""
        return dict(self._table.manifest.base_paths)

    def with_target_bases(
        self, target_bases: Sequence[str] | None = None, *, target_all_bases: bool | None = None
    ) -> Self:
        """Return the same version, with the base paths that its mutations write new data files to.

        Parameters
        ----------
        target_bases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for its own root. New data
            files go to them in turn. By default, rewritten rows and columns of a fragment stay in
            its base path, and new rows go to the table's root.
        target_all_bases : bool, optional
            True: new data files go to the table's root and all base paths in turn; False: to all
            base paths in turn.

        Returns
        -------
        Dataset

        Raises
        ------
        InvalidInputError, InvalidOptionError
            Both arguments are given, or one has a wrong type. Mutations raise it if a base path
            does not exist.
        """
        names = (
            target_bases
            if target_bases is None or isinstance(target_bases, str)
            else tuple(target_bases)
        )
        targets = TargetBases(names, target_all_bases)  # type: ignore[arg-type]
        return type(self)(replace(self._table, target_bases=targets), self._storage_options)

    def checkout_version(self, version: Reference) -> Self:
        """Open another version.

        Parameters
        ----------
        version : int, str or (str or None, int or None)
            Number of a version of this branch, a tag, or (branch, number), where branch None or
            ``main`` is the main branch and number None the newest version.

        Returns
        -------
        Dataset

        Raises
        ------
        VersionNotFoundError
            The version, tag or branch does not exist.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = self._storage_options
        return type(self)(self._at(version, options), options)

    @classmethod
    @takes_keywords(
        refused={
            "enable_v2_manifest_paths": REFUSED["enable_v2_manifest_paths"],
            "namespace_client_managed_versioning": (
                (False,),
                "versions are recorded beside the table",
            ),
        }
    )
    @checks_arguments
    def commit(
        cls,
        base_uri: str | os.PathLike[str] | Self | None,
        operation: Operation | Transaction,
        read_version: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        enable_stable_row_ids: bool = False,
        namespace_client: object | None = None,
        table_id: Sequence[str] | None = None,
        base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
        commit_timeout: datetime.timedelta | None = datetime.timedelta(seconds=1800),
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Commit an operation that the caller planned, and open the new version.

        For jobs that distribute the work themselves. The content of the operation's files is not
        checked.

        Parameters
        ----------
        base_uri : str, path or Dataset
            Root of the table, or of a branch; None with a namespace.
        operation : Operation or Transaction
            The operation. A transaction has its own read version and properties.
        read_version : int, optional
            The version that the operation was planned on; it may be detached if `detached` is true.
            Not needed for operations that keep nothing of it (overwrite, restore).
        commit_lock : callable, optional
            As in `open_dataset`.
        storage_options : mapping, optional
            Settings of the store; by default the settings of the `Dataset`, if a dataset is given.
        detached : bool
            Whether to commit a detached version, with a random number. `checkout_version` opens it.
        enable_stable_row_ids : bool
            Whether a table that is created has stable row ids.
        namespace_client, table_id, base_store_params
            As in `open_dataset`.
        commit_timeout : timedelta, optional
            Time after which no other attempt starts; half an hour by default.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client committed an incompatible operation.
        InvalidInputError
            The read version is missing, or the operation does not fit the table.
        TableExistsError, VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError,
        StorageError
        """
        from lance_spark.table.commit.user_operation import commit_user_operation

        check_timeout("commit_timeout", commit_timeout)
        commit = CommitOptions.of(**keywords)
        options = dict(storage_options or {})
        if isinstance(base_uri, HistoryMethods):
            options = base_uri._options(storage_options)
            base_uri = base_uri.uri
        options = with_base_params(with_lock(options, commit_lock), base_store_params)
        with table_entry(base_uri, namespace_client, table_id, options) as entry:
            store = ObjectStore.from_uri(entry.location, entry.storage_options)
        options = dict(entry.storage_options)
        with naming(store.display):
            version = commit_user_operation(
                store,
                operation,
                read_version,
                detached=detached,
                max_retries=commit.max_retries,
                properties=commit.properties,
                enable_stable_row_ids=enable_stable_row_ids,
                timeout=commit_timeout,
            )
        return cls(open_table(store.uri, version=version, storage_options=options), options)

    def create_branch(
        self,
        branch: str,
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a branch from a version, and open it.

        Parameters
        ----------
        branch : str
            Name of the branch: letters, digits, ".", "-" and "_", with "/" between parts; not
            ``main``.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the open version.
        storage_options : mapping, optional
            Settings of the store; by default the settings of this `Dataset`.

        Returns
        -------
        Dataset
            The first version of the branch.

        Raises
        ------
        InvalidInputError
            The name is not valid, or the branch exists already.
        VersionNotFoundError
            The version, tag or branch does not exist.
        UncertainCommitError
            The store failed, and it is unknown whether the branch was created.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import create_branch

        options = self._options(storage_options)
        source = self._at(reference, options)
        manifest = create_branch(source, branch)
        store = branch_store(ObjectStore.from_uri(source.main.uri, options), branch)
        return self._without_reading(store, manifest, options)

    def repair_branches(self) -> list[BranchRepair]:
        """Repair the branches of a table that was copied or moved.

        A branch refers to files of the main branch, or of other branches, by an absolute path. In a
        copy of the table, this is the path of the original, and such a branch cannot be read until
        it is repaired. Only the newest version of each branch is repaired.

        Returns
        -------
        list of BranchRepair
            For each branch, the version that was committed, or the reason why it could not be
            repaired.

        Raises
        ------
        CommitConflictError
            Another client changed the same branch.
        UnsupportedFeatureError, CorruptTableError, StorageError

        Examples
        --------
        >>> shutil.copytree("/data/t.lance", "/copy/t.lance")
        >>> open_dataset("/copy/t.lance").repair_branches()
        """
        from lance_spark.table.refs.branch_repair import repair_branches

        return repair_branches(self._table.main)

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a table that shares the files of a version, and open it.

        The clone needs the files of this table: tag the version, so that cleanup keeps them.

        Parameters
        ----------
        target_path : str or path
            Path of the new table.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the open version.
        storage_options : mapping, optional
            Settings of the clone's store; by default the settings of this `Dataset`.

        Returns
        -------
        Dataset
            The first version of the clone.

        Raises
        ------
        TableExistsError
            A table exists at that path.
        VersionNotFoundError
            The version, tag or branch does not exist.
        UncertainCommitError
            The store failed, and it is unknown whether the clone was created.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.clones import shallow_clone

        options = self._options(storage_options)
        target = ObjectStore.from_uri(target_path, options)
        manifest = shallow_clone(self._at(reference, self._storage_options), target)
        return self._without_reading(target, manifest, options)

    @reports_progress
    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        progress_callback: ProgressCallback | None = None,
    ) -> Self:
        """Create a table with copies of all files of a version, and open it.

        Parameters
        ----------
        target_path, reference, storage_options
            As in `shallow_clone`.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

        Returns
        -------
        Dataset
            The first version of the clone.

        Raises
        ------
        TableExistsError, VersionNotFoundError, UncertainCommitError
            As in `shallow_clone`.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.clones import deep_clone

        options = self._options(storage_options)
        target = ObjectStore.from_uri(target_path, options)
        manifest = deep_clone(self._at(reference, self._storage_options), target)
        return self._without_reading(target, manifest, options)

    def new_file_session(self) -> LanceFileSession:
        """Return a session for files below the root of the table; see `LanceFileSession`."""
        from lance_spark.dataset.files.session import LanceFileSession

        return LanceFileSession._of(self._table.store)

    def migrate_manifest_paths_v2(self) -> None:
        """Rename the manifests of a table of an early release to the names of the V2 naming scheme.

        No client may write to the table meanwhile; reading is possible. After a crash, call it
        again.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.table.manifest.migrate import migrate_to_v2

        migrate_to_v2(self._table.store)

    def _at(self, reference: Reference | None, options: Mapping[str, Any]) -> OpenTable:
        from lance_spark.table.open import open_reference

        return open_reference(self._table, reference, options)

    def _options(self, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._storage_options if storage_options is None else dict(storage_options)

    def _without_reading(
        self, store: ObjectStore, manifest: Manifest, options: Mapping[str, Any]
    ) -> Self:
        """Open a new branch or clone without reading from the store.

        An error of the store would hide that it exists.
        """
        paths = TablePaths(store, manifest.base_paths, options)
        return type(self)(OpenTable(paths, manifest), options)
