"""Versions, tags and branches of a table. They are read on the driver, without rows.

| function | reads |
| --- | --- |
| `history_frame` | as many manifests as versions are wanted, and their transactions |
| `detail_frame` | the newest and the first manifest, the names of versions, tags and branches |
| `tags_frame`, `branches_frame` | the files of the references |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError, InvalidOptionError, TableExistsError
from lance_spark.mutations.commits import retry_on_conflict
from lance_spark.mutations.metadata_updates import update_config
from lance_spark.spark.read.reader import display
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.types.field_metadata import COMMENT
from lance_spark.table.commit.options import CommitOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.spark.table.base import ChangeFrame, TableHandle
    from lance_spark.table.open import OpenTable

HISTORY_COLUMNS = (
    "version long, timestamp timestamp, operation string, message string, "
    "properties map<string, string>, read_version long, num_fragments long, num_rows long, "
    "num_deleted_rows long, size_bytes long, operationParameters map<string, string>, "
    "transaction string"
)
DETAIL_COLUMNS = (
    "format string, uri string, branch string, version long, created_at timestamp, "
    "last_modified timestamp, data_storage_version string, stable_row_ids boolean, num_rows long, "
    "num_deleted_rows long, num_fragments long, num_data_files long, size_bytes long, "
    "indexes array<string>, tags array<string>, config map<string, string>, "
    "metadata map<string, string>, reader_features array<string>, writer_features array<string>, "
    "name string, description string, location string, createdAt timestamp, "
    "lastModified timestamp, partitionColumns array<string>, clusteringColumns array<string>, "
    "numFiles long, sizeInBytes long, properties map<string, string>"
)
#: The names of Delta, after the version.
RESTORE_COLUMNS = (
    "version long, table_size_after_restore long, num_of_files_after_restore long, "
    "num_removed_files long, num_restored_files long, removed_files_size long, "
    "restored_files_size long"
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
            facts.statement or None,
            facts.message or None,
            dict(facts.properties),
            facts.read_version,
            facts.num_fragments,
            facts.num_rows,
            facts.num_deleted_rows,
            facts.num_bytes,
            dict(facts.parameters),
            facts.operation or None,
        )
        for facts in versions
    ]
    return handle.data_frame(rows, HISTORY_COLUMNS)


def detail_frame(handle: TableHandle) -> DataFrame:
    """Return one row with facts about a table; see `LanceTable.detail`."""
    from lance_spark.inspect.collect import version_facts
    from lance_spark.inspect.formatting import feature_names
    from lance_spark.spark.catalog.properties import partition_columns

    dataset = handle.dataset()
    facts = version_facts(dataset._table)
    created = _created_at(dataset._table)
    partitions: tuple[str, ...] = ()
    with suppress(InvalidOptionError):
        # Another client may have set another text.
        partitions = partition_columns(facts.metadata)
    row: tuple[Any, ...] = (
        "lance",
        facts.name,
        facts.branch,
        facts.version,
        created,
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
        handle.name,
        facts.metadata.get(COMMENT),
        facts.name,
        created,
        facts.timestamp,
        list(partitions),
        [],
        facts.num_files,
        facts.num_bytes,
        {**facts.metadata, **facts.config},
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


def restore(handle: TableHandle, version: Mapping[str, Any], options: CommitOptions) -> ChangeFrame:
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
    before, after = _data_files(newest), _data_files(old._table)
    removed, added = before.keys() - after.keys(), after.keys() - before.keys()
    row = (
        restored.version,
        sum(after.values()),
        len(after),
        len(removed),
        len(added),
        sum(before[file] for file in removed),
        sum(after[file] for file in added),
    )
    return handle.change_frame(ChangeResult(restored.version), row, RESTORE_COLUMNS)


def clone(
    handle: TableHandle,
    target: str | os.PathLike[str],
    is_shallow: bool,
    replace: bool,
    properties: Mapping[str, str] | None,
    reference: int | str | None,
) -> str:
    """Create a table with the rows of a version, and return its path; see `LanceTable.clone`."""
    from lance_spark.arguments import instances

    for name, values in (("properties", (properties or {}).values()), ("keys", properties or ())):
        instances(values, str, f"clone: all {name}", "strings")
    dataset = handle.dataset()
    path = os.fspath(target)
    copy = dataset.shallow_clone if is_shallow else dataset.deep_clone
    try:
        made = copy(path, reference)
    except TableExistsError as error:
        if not replace:
            raise
        raise TableExistsError(
            f"{error}, or drop that table first: replace=True does not replace a table that "
            "exists, because its versions would be lost"
        ) from error
    if properties:
        config = {key: value for key, value in properties.items() if key.startswith("lance.")}
        metadata = {key: value for key, value in properties.items() if key not in config}
        update_config(made._table, config=config, table_metadata=metadata, options=CommitOptions())
    return path


def _data_files(table: OpenTable) -> dict[tuple[int | None, str], int]:
    """Return the sizes of the data files of a version; 0 where no size is recorded."""
    return {
        (file.base_id, file.path): file.file_size_bytes
        for fragment in table.manifest.fragments
        for file in fragment.files
    }


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
