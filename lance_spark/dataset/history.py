"""What a handle on a version does without reading rows: history, tags, branches, clones.

The names, arguments and results are those of pylance's `LanceDataset`, where it has them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from lance_spark.arguments import check_least, checks_arguments
from lance_spark.errors import naming
from lance_spark.storage.store import ObjectStore
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.transaction import Transaction, with_message
from lance_spark.table.manifest import history, versions
from lance_spark.table.manifest.history import VersionInfo
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs.names import branch_store

if TYPE_CHECKING:
    from lance_spark.dataset.branches import Branches
    from lance_spark.dataset.tags import Tags
    from lance_spark.table.operations.base import Operation
    from lance_spark.table.refs.branch_repair import BranchRepair
    from lance_spark.table.refs.resolve import Reference


class HistoryMethods:
    """One version of a table. Immutable.

    Parameters
    ----------
    table : OpenTable
    storage_options : mapping, optional
        Settings of the store.
    """

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str] | None = None) -> None:
        self._table = table
        self._storage_options = dict(storage_options or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.store.display!r}, version={self.version})"

    def _committed(self, table: OpenTable) -> Self:
        """Return a version that was committed, as a handle of the same kind."""
        return type(self)(table, self._storage_options)

    @property
    def uri(self) -> str:
        """Root of the table, or of the branch."""
        return self._table.store.uri

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._table.version

    @property
    def branch(self) -> str | None:
        """Name of the branch that the version is on; None for the main one."""
        return self._table.branch

    @property
    def latest_version(self) -> int:
        """Number of the newest version of the branch that there is now."""
        return versions.latest(self._table.store).version

    @property
    def tags(self) -> Tags:
        """The tags of the table: list, make, move and delete them."""
        from lance_spark.dataset.tags import Tags

        return Tags(self._table)

    @property
    def branches(self) -> Branches:
        """The branches of the table: list and delete them. `create_branch` makes one."""
        from lance_spark.dataset.branches import Branches

        return Branches(self._table)

    def versions(self) -> list[VersionInfo]:
        """Return all versions of the branch that there still are, oldest first.

        Each tells when it was committed. Its `metadata` (numbers of fragments, files, rows and bytes), `operation`,
        `message` and `transaction_properties` are read when they are asked for.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return history.list_versions(self._table.store)

    def read_transaction(self, version: int) -> Transaction | None:
        """Return what made a version of the branch; None if its writer left nothing behind.

        Raises
        ------
        VersionNotFoundError
            There is no such version.
        CorruptTableError, StorageError
        """
        return history.transaction_of(self._table.store, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return what made this version and those before it, newest first.

        Parameters
        ----------
        recent_transactions : int
            How many at most.

        Raises
        ------
        CorruptTableError, StorageError
        """
        check_least("recent_transactions", recent_transactions, 0)
        return history.transactions(self._table.store, self.version, recent_transactions)

    def base_paths(self) -> dict[int, BasePath]:
        """Return the other places that files of the version can lie in, by id."""
        return dict(self._table.manifest.base_paths)

    def with_target_bases(
        self,
        target_bases: Sequence[str] | None = None,
        *,
        target_all_bases: bool | None = None,
    ) -> Self:
        """Return the same version, with other places for the data files of changes that are made from it.

        Parameters
        ----------
        target_bases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for the table itself. New data files go to them one after the
            other. None: rows and columns of a fragment stay in its base path, and new rows go to the table itself.
        target_all_bases : bool, optional
            True: new data files go to the table itself and all base paths, one after the other; False: to all base paths.

        Raises
        ------
        InvalidInputError, InvalidOptionError
            Both are given, or one has another type. A change raises it too if the table has no such base path.
        """
        names = (
            target_bases
            if target_bases is None or isinstance(target_bases, str)
            else tuple(target_bases)
        )
        wish = TargetBases(names, target_all_bases)  # type: ignore[arg-type]
        return type(self)(replace(self._table, target_bases=wish), self._storage_options)

    def checkout_version(self, version: Reference) -> Self:
        """Open another version.

        Parameters
        ----------
        version : int, str or (str or None, int or None)
            A version of this branch, a tag, or (branch, version), where no branch, or ``main``, is the main one and no version
            the newest.

        Raises
        ------
        VersionNotFoundError
            There is no such version, tag or branch.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = self._storage_options
        return type(self)(self._at(version, options), options)

    @classmethod
    @checks_arguments
    def commit(
        cls,
        base_uri: str | os.PathLike[str] | HistoryMethods,
        operation: Operation | Transaction,
        read_version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        detached: bool = False,
        max_retries: int = 20,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        enable_stable_row_ids: bool = False,
    ) -> Self:
        """Make a change that was planned by hand a version of a table, and open it.

        Nobody checks that files fit the table: this is for jobs that share out the work themselves.

        Parameters
        ----------
        base_uri : str, path or handle
            Root of the table, or of a branch.
        operation : Operation or Transaction
            The change. A transaction brings its read version and its properties along.
        read_version : int, optional
            The version that the change was planned on; may be a detached one, if this is to be one. An operation
            that leaves nothing of it behind (overwrite, restore) can do without.
        storage_options : mapping, optional
            Settings of the store; by default those of the handle, if one is given.
        detached : bool
            Make a version outside of the history, with a random number, which `checkout_version` opens.
        max_retries : int
            How often to start again after other writers were faster.
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
        enable_stable_row_ids : bool
            For a table that is created.

        Raises
        ------
        CommitConflictError
            Another change was committed that this one does not hold on top of.
        InvalidInputError
            The read version is missing, or the change does not fit the table.
        TableExistsError, VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.table.commit.user_operation import commit_user_operation

        options = dict(storage_options or {})
        if isinstance(base_uri, HistoryMethods):
            options = base_uri._options(storage_options)
            base_uri = base_uri.uri
        store = ObjectStore.from_uri(base_uri, options)
        with naming(store.display):
            version = commit_user_operation(
                store,
                operation,
                read_version,
                detached=detached,
                max_retries=max_retries,
                properties=with_message(transaction_properties, commit_message),
                enable_stable_row_ids=enable_stable_row_ids,
            )
        return cls(open_table(store.uri, version=version, storage_options=options), options)

    def create_branch(
        self,
        branch: str,
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a branch of a version, and open it.

        Parameters
        ----------
        branch : str
            Letters, digits, ".", "-", "_", with "/" between parts; ``main`` is taken.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the one that is open.
        storage_options : mapping, optional
            Settings of the store; by default those of this handle.

        Raises
        ------
        InvalidInputError
            There is a branch of that name, or there can be none.
        VersionNotFoundError
            There is no such version, tag or branch.
        UncertainCommitError
            The store failed, and nobody knows whether the branch was made.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import create_branch

        options = self._options(storage_options)
        source = self._at(reference, options)
        manifest = create_branch(source, branch)
        # Not by a look at the store: if that failed, the branch would be there all the same.
        store = branch_store(ObjectStore.from_uri(source.main.uri, options), branch)
        paths = TablePaths(store, manifest.base_paths, options)
        return type(self)(OpenTable(paths, manifest), options)

    def repair_branches(self) -> list[BranchRepair]:
        """Have the branches of a table that was copied or moved find its files where it is now.

        A branch refers to files of the main line, or of other branches, by an absolute path. In a copy of the table it is the
        original's, and the branch is refused until it is repaired. Only the newest version of each branch is; older ones stay refused.

        Returns
        -------
        list of BranchRepair
            For each branch: its new version, if it was changed, and why it could not be repaired, if it could not.

        Raises
        ------
        CommitConflictError
            Somebody changes a branch at the same time.
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
        """Make a table of the rows of a version, whose files stay where they are, and open it.

        The clone needs the files of this table: tag the version, so that cleanup leaves them alone.

        Parameters
        ----------
        target_path : str or path
            Where there is no table yet.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the one that is open.
        storage_options : mapping, optional
            Settings of the clone's store; by default those of this handle.

        Raises
        ------
        TableExistsError
            There is a table at that path.
        VersionNotFoundError
            There is no such version, tag or branch.
        UncertainCommitError
            The store failed, and nobody knows whether the clone was made.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.clones import shallow_clone

        options = self._options(storage_options)
        target = ObjectStore.from_uri(target_path, options)
        manifest = shallow_clone(self._at(reference, self._storage_options), target)
        # Not by a look at the store: if that failed, the clone would be there all the same.
        paths = TablePaths(target, manifest.base_paths, options)
        return type(self)(OpenTable(paths, manifest), options)

    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a table of copies of all files of a version, and open it.

        Parameters
        ----------
        target_path, reference, storage_options
            As in `shallow_clone`.

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
        # Not by a look at the store: if that failed, the clone would be there all the same.
        paths = TablePaths(target, manifest.base_paths, options)
        return type(self)(OpenTable(paths, manifest), options)

    def migrate_manifest_paths_v2(self) -> None:
        """Give the manifests of a table of early releases the names that new tables have.

        Nobody should write to the table meanwhile; reading goes on. After a crash, call it again.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.table.manifest.migrate import migrate_to_v2

        migrate_to_v2(self._table.store)

    def _at(self, reference: Reference | None, options: Mapping[str, Any]) -> OpenTable:
        from lance_spark.table.refs.resolve import open_reference

        return open_reference(self._table, reference, options)

    def _options(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._storage_options if given is None else dict(given)
