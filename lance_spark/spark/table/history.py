"""Versions, tags and branches of a table through Spark. All of it is done on the driver, and no
rows are read.

| asked for | is read |
| --- | --- |
| `history(limit)` | so many manifests, and their transactions |
| `detail()` | the manifest, the names of versions, tags and branches; the first manifest, if it is still there |
| `tags()`, `branches()` | the files that make them |
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES, retry_on_conflict
from lance_spark.spark.read.reader import display
from lance_spark.spark.table.base import ChangeResult, TableBase, option_text
from lance_spark.table.commit.transaction import with_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.table.open import OpenTable

_HISTORY = (
    "version long, timestamp timestamp, operation string, message string, properties map<string, "
    "string>, read_version long, "
    "num_fragments long, num_rows long, num_deleted_rows long, size_bytes long"
)
_DETAIL = (
    "format string, uri string, branch string, version long, created_at timestamp, last_modified "
    "timestamp, "
    "data_storage_version string, stable_row_ids boolean, num_rows long, num_deleted_rows long, "
    "num_fragments long, "
    "num_data_files long, size_bytes long, indexes array<string>, tags array<string>, config "
    "map<string, string>, "
    "metadata map<string, string>, reader_features array<string>, writer_features array<string>"
)
_TAGS = (
    "name string, branch string, version long, created_at timestamp, updated_at timestamp, "
    "manifest_size long, "
    "metadata map<string, string>"
)
_BRANCHES = (
    "name string, parent_branch string, parent_version long, created_at timestamp, manifest_size "
    "long, "
    "metadata map<string, string>"
)


class HistoryMethods(TableBase):
    """Versions, tags and branches."""

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the versions of the branch that there still are, newest first.

        Parameters
        ----------
        limit : int, optional
            How many; each costs reading a manifest.

        Returns
        -------
        DataFrame
            version, timestamp, operation, message, properties (what the writer noted), read_version
            (that the change was planned on), num_fragments, num_rows, num_deleted_rows (that are
            still in files), size_bytes (of data files, as far as noted).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import past_versions

        if limit is not None and limit < 0:
            raise InvalidInputError(f"limit={limit}: a number of versions cannot be negative")
        result, _ = past_versions(self.dataset()._table.store, limit)
        rows = [
            (
                item.version,
                item.timestamp,
                item.operation or None,
                item.message or None,
                dict(item.properties),
                item.read_version,
                item.num_fragments,
                item.num_rows,
                item.num_deleted_rows,
                item.num_bytes,
            )
            for item in result
        ]
        return self._frame_of(rows, _HISTORY)

    def detail(self) -> DataFrame:
        """Return a row with what there is to say of the table.

        Returns
        -------
        DataFrame
            format, uri, branch (null for the main one), version, created_at (null if the first
            version is gone), last_modified, data_storage_version, stable_row_ids (without them, a
            change feed has updates as deleted and inserted rows), num_rows, num_deleted_rows (that
            are still in files), num_fragments, num_data_files, size_bytes, indexes and tags
            (names), config, metadata, reader_features and writer_features (names of what clients
            have to understand).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import version_facts
        from lance_spark.inspect.formatting import feature_names

        dataset = self.dataset()
        about = version_facts(dataset._table)
        row = (
            "lance",
            about.name,
            about.branch,
            about.version,
            _created(dataset._table),
            about.timestamp,
            about.data_storage_version,
            about.stable_row_ids,
            about.num_rows,
            about.num_deleted_rows,
            len(about.fragments),
            about.num_files,
            about.num_bytes,
            sorted({item["name"] for item in dataset.list_indices()}),
            sorted(dataset.tags.list()),
            dict(about.config),
            dict(about.metadata),
            feature_names(about.reader_flags),
            feature_names(about.writer_flags),
        )
        return self._frame_of([row], _DETAIL)

    def restoreToVersion(  # noqa: N802 - as DeltaTable has it
        self,
        version: int,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Make an older version of the branch the newest again. What was committed since stays in
        the history.

        Parameters
        ----------
        version : int
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
        conflict_retries : int
            How often to start again because of what others commit.

        Raises
        ------
        VersionNotFoundError
            There is no such version, or it has been cleaned up.
        CommitConflictError, InvalidInputError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        return self._restore(
            {"version": version}, commit_message, transaction_properties, conflict_retries
        )

    def restoreToTimestamp(  # noqa: N802 - as DeltaTable has it
        self,
        timestamp: str | datetime,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Make the version of a time the newest again; see `restoreToVersion`.

        Parameters
        ----------
        timestamp : str or datetime
            As the option timestamp of a read takes it.
        """
        text = timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp
        return self._restore(
            {"timestamp": text}, commit_message, transaction_properties, conflict_retries
        )

    def restoreToTag(  # noqa: N802 - as its siblings
        self,
        tag: str,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Make the version that a tag names the newest again; see `restoreToVersion`. The tag must
        be on this branch.
        """
        return self._restore({"tag": tag}, commit_message, transaction_properties, conflict_retries)

    def tags(self) -> DataFrame:
        """Return the tags of all branches: name, branch, version, created_at, updated_at,
        manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        rows = [
            (
                name,
                tag["branch"],
                tag["version"],
                tag["created_at"],
                tag["updated_at"],
                tag["manifest_size"],
                tag["metadata"],
            )
            for name, tag in sorted(self.dataset().tags.list().items())
        ]
        return self._frame_of(rows, _TAGS)

    def createTag(self, name: str, version: int | str | None = None) -> None:  # noqa: N802
        """Name a version, so that `vacuum` leaves it alone.

        Parameters
        ----------
        name : str
        version : int or str, optional
            Of this branch, or what another tag names; by default the newest, or the one that the
            options name.

        Raises
        ------
        InvalidInputError
            No tag can have that name, or there is one already.
        VersionNotFoundError, CorruptTableError, StorageError
        """
        self.dataset().tags.create(name, version)

    def updateTag(self, name: str, version: int | str | None = None) -> None:  # noqa: N802
        """Put a tag on another version; see `createTag`."""
        self.dataset().tags.update(name, version)

    def deleteTag(self, name: str) -> None:  # noqa: N802
        """Take a name from its version.

        Raises
        ------
        VersionNotFoundError
            There is no such tag.
        """
        self.dataset().tags.delete(name)

    def branches(self) -> DataFrame:
        """Return the branches but for the main one: name, parent_branch, parent_version,
        created_at, manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        rows = [
            (
                name,
                item["parent_branch"],
                item["parent_version"],
                datetime.fromtimestamp(item["create_at"], UTC),
                item["manifest_size"],
                item["metadata"],
            )
            for name, item in sorted(self.dataset().branches.list().items())
        ]
        return self._frame_of(rows, _BRANCHES)

    def createBranch(self, name: str, version: int | str | None = None) -> Self:  # noqa: N802
        """Make a branch of a version, and return the table on it.

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
            There is no such branch.
        InvalidInputError
            Tags name versions of it, or other branches were made from it.
        """
        self.dataset().branches.delete(name)

    def checkout(
        self, *, branch: str | None = None, tag: str | None = None, version: int | None = None
    ) -> Self:
        """Return the table on another branch, which can be changed, or at a version or tag, which
        is only read.

        Parameters
        ----------
        branch : str, optional
            ``main`` for the main one; by default the one that is open.
        tag : str, optional
        version : int, optional

        Raises
        ------
        InvalidOptionError
            Both a tag and a version are given.
        VersionNotFoundError, StorageError
        """
        given: dict[str, Any] = {"tag": tag, "version": version}
        if branch is not None:
            given["branch"] = branch
        result = self._like(given)
        result.dataset()
        return result

    def clone(
        self,
        target: str | os.PathLike[str],
        isShallow: bool = True,  # noqa: N803 - as DeltaTable has it
        version: int | str | None = None,
    ) -> Self:
        """Make a table of the rows of a version, and return it.

        Parameters
        ----------
        target : str or path
            Where there is no table yet.
        isShallow : bool
            Whether the files stay where they are: then tag the version, so that `vacuum` leaves
            them alone. Else all are copied.
        version : int or str, optional
            As in `createTag`.

        Raises
        ------
        TableExistsError
            There is a table at that path.
        VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        dataset = self.dataset()
        path = os.fspath(target)
        if isShallow:
            dataset.shallow_clone(path, version)
        else:
            dataset.deep_clone(path, version)
        return type(self)(self.spark, path, self.storage_options())

    def _repr_html_(self) -> str:
        from lance_spark.spark.table.show import shown

        return shown(self)

    def _restore(
        self,
        naming: Mapping[str, Any],
        message: str | None,
        given: Mapping[str, str] | None,
        conflict_retries: int,
    ) -> ChangeResult:
        from lance_spark.mutations.metadata_updates import restore

        newest = self.writable("restore")
        result = self._like(naming).dataset()
        if result.branch != newest.branch:
            raise InvalidInputError(
                f"restore: version {result.version} is on {_named(result.branch)}, and this is "
                f"{_named(newest.branch)} of "
                f"{display(self.path)}; check out that branch"
            )
        properties = with_message(given, message)
        done = retry_on_conflict(
            newest,
            lambda _: restore(result._table, properties=properties).manifest,
            conflict_retries,
        )
        return ChangeResult(done.version)

    def _like(self, given: Mapping[str, Any]) -> Self:
        """Return the table with other names of a version; those of None are left out."""
        kept = self.storage_options()
        branch = {name: text for name, text in self.options.items() if name.lower() == "branch"}
        if "branch" not in given and given.get("tag") is None:
            kept |= branch
        chosen = {name: option_text(value) for name, value in given.items() if value is not None}
        return type(self)(self.spark, self.path, {**kept, **chosen}, self.alias_name)

    def _frame_of(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema)


def _created(table: OpenTable) -> datetime | None:
    """Return when the first version of a branch was committed, if there still is that version."""
    from lance_spark.table.manifest.codec import find_manifest
    from lance_spark.table.manifest.versions import list_manifests

    located = list_manifests(table.store)
    if not located or located[0].version != 1:
        return None
    first = find_manifest(table.store, located[0])
    return None if first is None else first.timestamp


def _named(branch: str | None) -> str:
    return "the main branch" if branch is None else f"branch {branch!r}"
