"""Versions, tags and branches of a table. They are read on the driver, without rows.

| function | reads |
| --- | --- |
| `history_frame` | as many manifests as versions are wanted, and their transactions |
| `detail_frame` | the newest and the first manifest, the names of versions, tags and branches |
| `tags_frame`, `branches_frame` | the files of the references |
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.commits import retry_on_conflict
from lance_spark.spark.read.reader import display
from lance_spark.spark.table.base import ChangeResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions
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


def history_frame(handle: TableHandle, limit: int | None) -> DataFrame:
    """Return a row for each version; see `LanceTable.history`."""
    from lance_spark.inspect.collect import past_versions

    if limit is not None and limit < 0:
        raise InvalidInputError(f"limit={limit}: a number of versions must not be negative")
    versions, _ = past_versions(handle.dataset()._table.store, limit)
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
    return handle.data_frame(rows, HISTORY_COLUMNS)


def detail_frame(handle: TableHandle) -> DataFrame:
    """Return one row with facts about a table; see `LanceTable.detail`."""
    from lance_spark.inspect.collect import version_facts
    from lance_spark.inspect.formatting import feature_names

    dataset = handle.dataset()
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
    return handle.data_frame([row], DETAIL_COLUMNS)


def tags_frame(handle: TableHandle) -> DataFrame:
    """Return a row for each tag; see `LanceTable.tags`."""
    values = itemgetter(*_TAG_VALUES)
    rows = [(name, *values(tag)) for name, tag in sorted(handle.dataset().tags.list().items())]
    return handle.data_frame(rows, TAG_COLUMNS)


def branches_frame(handle: TableHandle) -> DataFrame:
    """Return a row for each branch; see `LanceTable.branches`."""
    rows = [
        (
            name,
            branch["parent_branch"],
            branch["parent_version"],
            datetime.fromtimestamp(branch["create_at"], UTC),
            branch["manifest_size"],
            branch["metadata"],
        )
        for name, branch in sorted(handle.dataset().branches.list().items())
    ]
    return handle.data_frame(rows, BRANCH_COLUMNS)


def restore(
    handle: TableHandle, version: Mapping[str, Any], options: CommitOptions
) -> ChangeResult:
    """Commit the content of an older version as a new one; see `LanceTable.restoreToVersion`.

    - `version`: The option that selects the version.
    """
    from lance_spark.mutations.metadata_updates import restore as restore_version

    newest = handle.writable("restore")
    old = handle.at(version).dataset()
    if old.branch != newest.branch:
        raise InvalidInputError(
            f"restore: version {old.version} is on {_branch_name(old.branch)}, but "
            f"{display(handle.path)} is open on {_branch_name(newest.branch)}; check out that "
            "branch first"
        )
    restored = retry_on_conflict(newest, lambda _: restore_version(old._table, options), options)
    return ChangeResult(restored.version)


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
