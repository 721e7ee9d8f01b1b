"""Methods of `LanceTable` for versions, tags and branches. They run on the driver and read no rows.

| method | reads |
| --- | --- |
| `history(limit)` | that number of manifests, and their transactions |
| `detail()` | the newest and the first manifest, the names of versions, tags and branches |
| `tags()`, `branches()` | the files of the references |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.commits import retry_on_conflict
from lance_spark.spark.options.names import canonical
from lance_spark.spark.read.reader import display
from lance_spark.spark.table.base import ChangeResult, TableBase, option_text, option_texts
from lance_spark.spark.table.dataframes import without_version
from lance_spark.table.commit.options import CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.table.open import OpenTable

HISTORY_COLUMNS = (
    "version long, timestamp timestamp, operation string, message string, "
    "properties map<string, string>, read_version long, num_fragments long, num_rows long, "
    "num_deleted_rows long, size_bytes long"
)
DETAIL_COLUMNS = (
    "format string, uri string, branch string, version long, created_at timestamp, "
    "last_modified timestamp, data_storage_version string, stable_row_ids boolean, num_rows long, "
    "num_deleted_rows long, num_fragments long, num_data_files long, size_bytes long, "
    "indexes array<string>, tags array<string>, config map<string, string>, "
    "metadata map<string, string>, reader_features array<string>, writer_features array<string>"
)
TAG_COLUMNS = (
    "name string, branch string, version long, created_at timestamp, updated_at timestamp, "
    "manifest_size long, metadata map<string, string>"
)
_TAG_VALUES = ("branch", "version", "created_at", "updated_at", "manifest_size", "metadata")
BRANCH_COLUMNS = (
    "name string, parent_branch string, parent_version long, created_at timestamp, "
    "manifest_size long, metadata map<string, string>"
)


class HistoryMethods(TableBase):
    """Methods of `LanceTable` for versions, tags and branches."""

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the existing versions of the branch, newest first.

        Parameters
        ----------
        limit : int, optional
            Maximum number of versions; for each, one manifest is read.

        Returns
        -------
        DataFrame
            version, timestamp, operation, message, properties (of the transaction), read_version
            (on which the change was planned), num_fragments, num_rows, num_deleted_rows (that are
            still in files), size_bytes (of data files, if recorded).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import past_versions

        if limit is not None and limit < 0:
            raise InvalidInputError(f"limit={limit}: a number of versions must not be negative")
        versions, _ = past_versions(self.dataset()._table.store, limit)
        rows = [
            (
                facts.version,
                facts.timestamp,
                facts.operation or None,
                facts.message or None,
                dict(facts.properties),
                facts.read_version,
                facts.num_fragments,
                facts.num_rows,
                facts.num_deleted_rows,
                facts.num_bytes,
            )
            for facts in versions
        ]
        return self._data_frame(rows, HISTORY_COLUMNS)

    def detail(self) -> DataFrame:
        """Return one row with facts about the table.

        Returns
        -------
        DataFrame
            format, uri, branch (null for the main branch), version, created_at (null if the first
            version was removed), last_modified, data_storage_version, stable_row_ids (without them,
            a change feed shows updates as deleted and inserted rows), num_rows, num_deleted_rows
            (that are still in files), num_fragments, num_data_files, size_bytes, indexes and tags
            (names), config, metadata, reader_features and writer_features (names of the feature
            flags).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import version_facts
        from lance_spark.inspect.formatting import feature_names

        dataset = self.dataset()
        facts = version_facts(dataset._table)
        row = (
            "lance",
            facts.name,
            facts.branch,
            facts.version,
            _created_at(dataset._table),
            facts.timestamp,
            facts.data_storage_version,
            facts.stable_row_ids,
            facts.num_rows,
            facts.num_deleted_rows,
            len(facts.fragments),
            facts.num_files,
            facts.num_bytes,
            sorted({index["name"] for index in dataset.list_indices()}),
            sorted(dataset.tags.list()),
            dict(facts.config),
            dict(facts.metadata),
            feature_names(facts.reader_flags),
            feature_names(facts.writer_flags),
        )
        return self._data_frame([row], DETAIL_COLUMNS)

    def restoreToVersion(  # noqa: N802 - as DeltaTable has it
        self,
        version: int,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Commit the content of an older version of the branch as a new version.

        The versions between them stay.

        Parameters
        ----------
        version : int

        Raises
        ------
        VersionNotFoundError
            The version is not found; cleanup may have removed it.
        CommitConflictError, InvalidInputError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        options = CommitOptions.of(**keywords)
        return self._restore({"version": version}, options)

    def restoreToTimestamp(  # noqa: N802 - as DeltaTable has it
        self,
        timestamp: str | datetime,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Commit the content that the branch had at a time; see `restoreToVersion`.

        Parameters
        ----------
        timestamp : str or datetime
            A text without an offset is a time in the zone of the session, as `history` shows times
            and as SQL reads them. A datetime without a zone is a local time, as `collect` returns
            times.
        """
        text = option_text(timestamp)
        options = CommitOptions.of(**keywords)
        return self._restore({"timestamp": text}, options)

    def restoreToTag(  # noqa: N802 - as its siblings
        self,
        tag: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Commit the content of the version that a tag names; see `restoreToVersion`.

        The version must be on this branch.
        """
        options = CommitOptions.of(**keywords)
        return self._restore({"tag": tag}, options)

    def tags(self) -> DataFrame:
        """Return the tags of all branches.

        Returns
        -------
        DataFrame
            name, branch, version, created_at, updated_at, manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        values = itemgetter(*_TAG_VALUES)
        rows = [(name, *values(tag)) for name, tag in sorted(self.dataset().tags.list().items())]
        return self._data_frame(rows, TAG_COLUMNS)

    def createTag(self, name: str, version: int | str | None = None) -> None:  # noqa: N802
        """Create a tag: a name for a version, which `vacuum` then does not remove.

        Parameters
        ----------
        name : str
        version : int or str, optional
            A version of this branch, or the name of another tag. By default the newest version, or
            the version that the options name.

        Raises
        ------
        InvalidInputError
            The name is not valid for a tag, or the tag exists already.
        VersionNotFoundError, CorruptTableError, StorageError
        """
        self.dataset().tags.create(name, version)

    def updateTag(self, name: str, version: int | str | None = None) -> None:  # noqa: N802
        """Move a tag to another version; see `createTag`."""
        self.dataset().tags.update(name, version)

    def deleteTag(self, name: str) -> None:  # noqa: N802
        """Delete a tag. Its version stays.

        Raises
        ------
        VersionNotFoundError
            The tag is not found.
        """
        self.dataset().tags.delete(name)

    def branches(self) -> DataFrame:
        """Return all branches except the main branch.

        Returns
        -------
        DataFrame
            name, parent_branch, parent_version, created_at, manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        rows = [
            (
                name,
                branch["parent_branch"],
                branch["parent_version"],
                datetime.fromtimestamp(branch["create_at"], UTC),
                branch["manifest_size"],
                branch["metadata"],
            )
            for name, branch in sorted(self.dataset().branches.list().items())
        ]
        return self._data_frame(rows, BRANCH_COLUMNS)

    def createBranch(self, name: str, version: int | str | None = None) -> Self:  # noqa: N802
        """Create a branch from a version, and return the table on the branch.

        Parameters
        ----------
        name : str
            Letters, digits, ".", "-", "_", with "/" between parts.
        version : int or str, optional
            As in `createTag`.

        Raises
        ------
        InvalidInputError, VersionNotFoundError, UncertainCommitError, CorruptTableError,
        StorageError
        """
        self.dataset().create_branch(name, version)
        return self.checkout(branch=name)

    def deleteBranch(self, name: str) -> None:  # noqa: N802
        """Delete a branch with all its versions.

        Raises
        ------
        VersionNotFoundError
            The branch is not found.
        InvalidInputError
            A tag names a version of the branch, or another branch was created from it.
        """
        self.dataset().branches.delete(name)

    def checkout(
        self, *, branch: str | None = None, tag: str | None = None, version: int | None = None
    ) -> Self:
        """Return the table on another branch, or, read-only, at a version or tag.

        Parameters
        ----------
        branch : str, optional
            ``main`` for the main branch; by default the current branch.
        tag : str, optional
        version : int, optional

        Raises
        ------
        InvalidOptionError
            Both a tag and a version are given.
        VersionNotFoundError, StorageError
        """
        options: dict[str, Any] = {"tag": tag, "version": version}
        if branch is not None:
            options["branch"] = branch
        table = self._at(options)
        table.dataset()
        return table

    def clone(
        self,
        target: str | os.PathLike[str],
        isShallow: bool = True,  # noqa: N803 - as DeltaTable has it
        version: int | str | None = None,
    ) -> Self:
        """Create a table with the rows of a version, and return it.

        Parameters
        ----------
        target : str or path
            Path of the new table.
        isShallow : bool
            True: the new table refers to the files of this table. Tag the version then, so that
            `vacuum` keeps these files. False: all files are copied.
        version : int or str, optional
            As in `createTag`.

        Raises
        ------
        TableExistsError
            The path holds a table already.
        VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        dataset = self.dataset()
        path = os.fspath(target)
        if isShallow:
            dataset.shallow_clone(path, version)
        else:
            dataset.deep_clone(path, version)
        return type(self)(self.spark, path, without_version(self.options))

    def _repr_html_(self) -> str:
        from lance_spark.spark.table.show import table_html

        return table_html(self)

    def _restore(self, version: Mapping[str, Any], options: CommitOptions) -> ChangeResult:
        from lance_spark.mutations.metadata_updates import restore

        newest = self._writable("restore")
        old = self._at(version).dataset()
        if old.branch != newest.branch:
            raise InvalidInputError(
                f"restore: version {old.version} is on {_branch_name(old.branch)}, but "
                f"{display(self.path)} is open on {_branch_name(newest.branch)}; check out that "
                "branch first"
            )
        restored = retry_on_conflict(newest, lambda _: restore(old._table, options), options)
        return ChangeResult(restored.version)

    def _at(self, version: Mapping[str, Any]) -> Self:
        """Return the table at a version that options select. Options that are None are ignored."""
        options = without_version(self.options)
        if "branch" not in version and version.get("tag") is None:
            options |= {k: v for k, v in self.options.items() if canonical(k) == "branch"}
        options |= option_texts(version)
        return type(self)(self.spark, self.path, options, self.alias_name)


def _created_at(table: OpenTable) -> datetime | None:
    """Return the commit time of the first version of a branch; None if it was removed."""
    from lance_spark.table.manifest.codec import find_manifest
    from lance_spark.table.manifest.versions import list_manifests

    locations = list_manifests(table.store)
    if not locations or locations[0].version != 1:
        return None
    first = find_manifest(table.store, locations[0])
    return None if first is None else first.timestamp


def _branch_name(branch: str | None) -> str:
    return "the main branch" if branch is None else f"branch {branch!r}"
