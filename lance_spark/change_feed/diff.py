"""The rows that a version inserted, updated and deleted, found by comparing two manifests.

| fragment | rows |
| --- | --- |
| only in the previous version, or with other files after an overwrite | live rows are deleted |
| only in the version | live rows are inserted |
| in both, with different deletions | newly deleted rows are deleted, restored rows inserted |
| in both, with different files or overlays for columns of both | changed rows are updated |

A version that only moves rows, as a compaction does, or that changes columns, indexes or settings,
changes no row. A new column does not change existing rows.

With stable row ids, a row that left one fragment and is in another one with the same id is updated;
after a restore, only if its last updated version differs, provided that these versions show all
changes that were taken back (`row_versions`). Without stable row ids, moved rows cannot be matched,
so updates that move rows are deletions and insertions.

Rows updated in place (`Update` of columns, replaced files, overlays) are the offsets that the
transaction records. Without these, they are the rows whose last updated version differs. If no row
has another version, or there are no such versions, they are all rows of the fragment.

Specification: table/row_id_lineage.md, table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.change_feed.field_mapping import kept_ids
from lance_spark.change_feed.reverted_versions import OlderVersions, versions_taken_back
from lance_spark.errors import CorruptTableError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import read_operation
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import describe, list_manifests
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.append import KEEP_ROWS_AND_COLUMNS
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata import Restore
from lance_spark.table.operations.update import Update, UpdateMode
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.deletions import (
    Offsets,
    bitmap_of,
    check_rows,
    decode_rows,
    expect_deletions,
    offsets_of,
    read_deletions,
)
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Whether the last updated versions of rows say which rows a restore changed.
#
# A row that two versions have with the same last updated version has the same values in both, if
# all changes between them recorded the rows that they updated. Changes of other clients may not
# have.
#
# | change | records the rows that it updated |
# | --- | --- |
# | update that moves rows, or that lists the rows it updated in place | yes |
# | update in place without this list, as of `fragment.update_columns` in pylance | no |
# | overlay | yes; but an update of pylance that was planned before it takes that back |
# | replaced files | not in all releases |
# | appends, deletes, overwrites; changes without changed rows | yes |


def show_changes(taken_back: OlderVersions | None, without_changes: frozenset[str]) -> bool:
    """Return whether last updated versions show which rows a restore changed.

    - `taken_back`: The versions that the restore takes back (`versions_taken_back`); None if they
      are unknown.
    - `without_changes`: Operations that change no row.
    """
    return taken_back is not None and all(
        isinstance(operation, Restore)
        or (operation is not None and _records_updates(operation, without_changes))
        for _, operation in taken_back
    )


def _records_updates(operation: Operation, without_changes: frozenset[str]) -> bool:
    if isinstance(operation, Update):
        in_place = operation.mode is UpdateMode.REWRITE_COLUMNS or operation.fields_modified
        return not in_place or all(
            fragment.id in operation.updated_offsets for fragment in operation.fragments
        )
    return operation.name in without_changes or operation.name in (
        "append",
        "delete",
        "merge",
        "overwrite",
    )


# --------------------------------------------------------------------------------------------------
# The rows that a version inserted, updated and deleted, found by comparing two manifests.

ChangeType = Literal["insert", "update_preimage", "update_postimage", "delete"]

#: Operations that change no row.
NO_ROW_CHANGES = KEEP_ROWS_AND_COLUMNS | {"project", "update_mem_wal_state"}
#: Operations that add columns to fragments without a change of their rows.
_NEW_COLUMNS = frozenset({"merge"})
#: Operations after which another fragment may have the id of an old one.
_NEW_FRAGMENTS = frozenset({"overwrite", "restore", "clone", ""})
#: Operations that do not move rows to other fragments.
_NO_MOVES = frozenset({"append", "delete", "overwrite", "merge", "clone"})

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one fragment that a version changed in one way.

    - `change_type`: "insert", "update_preimage", "update_postimage" or "delete".
    - `fragment`: The fragment in the previous version for deleted rows and preimages, in the
      version for other rows.
    - `rows`: Roaring bitmap of row offsets, without deleted rows of `fragment`. None: all live
      rows.
    """

    change_type: ChangeType
    fragment: Fragment
    rows: bytes | None
    num_rows: int

    @property
    def is_before(self) -> bool:
        """Whether the rows are read from the previous version."""
        return self.change_type in ("delete", "update_preimage")

    def offsets(self, within: range) -> Offsets | None:
        """Return the row offsets within a range, increasing; None for all live rows."""
        if self.rows is None:
            return None
        return offsets_of(BitMap.deserialize(self.rows) & BitMap(within))


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The rows that a version changed.

    - `timestamp_us`: Commit time in microseconds since 1970 in UTC, by the clock of the writer.
    - `operation`: Name of the operation; None if it is not recorded.
    - `before`: The previous version; None if the version is the first one of the table.
    - `after`: The version.
    - `changes`: Rows of the previous version first.
    - `kept_ids`: Ids of fields that mean the same columns in both versions (`kept_fields`).
    """

    version: int
    timestamp_us: int
    operation: str | None
    before: Manifest | None
    after: Manifest
    changes: tuple[ChangedRows, ...]
    kept_ids: frozenset[int] = frozenset()

    @property
    def num_rows(self) -> int:
        """Number of rows of all changes; an updated row counts twice."""
        return sum(change.num_rows for change in self.changes)


def changes_of(
    paths: TablePaths, before: Manifest | None, after: Manifest, operation: Operation | None
) -> VersionChanges:
    """Return the rows that a version changed.

    - `paths`: Paths of the table with the base paths of `after`, to read deletion files, and row
      ids if rows moved.
    - `before`: The previous version; None if `after` is the first one.
    - `operation`: The operation of `after`; None if it is not recorded.

    Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
    """
    name = None if operation is None else operation.name
    taken_back = versions_taken_back(paths.store, after, operation)
    changes: tuple[ChangedRows, ...] = ()
    if name not in NO_ROW_CHANGES:
        changes = tuple(_Diff(paths, before, after, operation, taken_back).changes())
    kept = kept_ids(after, operation, taken_back)
    return VersionChanges(after.version, after.timestamp_us, name, before, after, changes, kept)


def changes_between(table: OpenTable, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield the changes of the versions `first` to `last` (both inclusive), oldest first.

    - `table`: Any version of the branch.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises VersionNotFoundError: one of
    the versions, or the version before the first, does not exist or was removed by cleanup. The
    message names the first version whose changes can be read.
    """
    if first > last:
        return
    before = _previous_manifest(table, first)
    for version in range(first, last + 1):
        after = _read_manifest(table, version)
        operation = read_operation(table.store, after)
        cloned = operation is not None and operation.name == "clone"
        if before is None and cloned and after.branch is not None:
            # The first version of a branch has the rows of its source, and changes none.
            before = after
        paths = table.paths.with_bases(after.base_paths)
        yield changes_of(paths, before, after, operation)
        before = after


def is_first_of_clone(store: ObjectStore, manifest: Manifest) -> bool:
    """Return whether a version is the first one of a clone or of a branch.

    Raises CorruptTableError, StorageError.
    """
    operation = read_operation(store, manifest)
    return operation is not None and operation.name == "clone"


def _previous_manifest(table: OpenTable, version: int) -> Manifest | None:
    """Return the previous version; None if `version` is the first one of the table or branch."""
    if version <= 1:
        return None
    try:
        return _read_manifest(table, version - 1)
    except VersionNotFoundError:
        if is_first_of_clone(table.store, _read_manifest(table, version)):
            return None
        raise


def _read_manifest(table: OpenTable, version: int) -> Manifest:
    try:
        return read_version(table.store, version)
    except VersionNotFoundError:
        manifests = list_manifests(table.store)
        versions = {manifest.version for manifest in manifests}
        start = newest = manifests[-1].version
        while start - 1 in versions:
            start -= 1
        usable = "1" if start == 1 else f"{start + 1}" if start < newest else "none yet"
        raise VersionNotFoundError(
            f"{table.store.display}: version {version}, which is needed to find the changed rows, "
            f"not found; the table has {describe(manifests)}; the first version whose changes can "
            f"be read, with the changes of all later versions, is {usable}"
        ) from None


@dataclass(frozen=True, slots=True)
class _FragmentRows:
    """Rows of a fragment that were added or removed; all live rows without `offsets`."""

    fragment: Fragment
    offsets: Offsets | None


class _Diff:
    """The comparison of two versions."""

    def __init__(
        self,
        paths: TablePaths,
        before: Manifest | None,
        after: Manifest,
        operation: Operation | None,
        taken_back: OlderVersions | None,
    ) -> None:
        self._new_paths = paths
        self._old_paths = paths if before is None else paths.with_bases(before.base_paths)
        self._operation = operation
        self._taken_back = taken_back
        self._operation_name = "" if operation is None else operation.name
        old = () if before is None else counted_fragments(self._old_paths, before)
        self._old = {fragment.id: fragment for fragment in old}
        self._new = {fragment.id: fragment for fragment in counted_fragments(paths, after)}
        self._stable_row_ids = after.flags.stable_row_ids
        if before is not None:
            old_fields = {field.id for field in before.schema.walk()}
            self._fields = old_fields & {field.id for field in after.schema.walk()}

    def changes(self) -> Iterator[ChangedRows]:
        """Yield all changes, rows of the previous version first."""
        removed = [_FragmentRows(old, None) for old in self._old.values() if not self._is_kept(old)]
        added = [
            _FragmentRows(new, None)
            for fragment_id, new in self._new.items()
            if (old := self._old.get(fragment_id)) is None or not self._is_kept(old)
        ]
        updated: list[tuple[Fragment, Fragment, BitMap]] = []
        kept = [old for old in self._old.values() if old.id in self._new and self._is_kept(old)]
        changed = [(old, self._new[old.id]) for old in kept if self._new[old.id] != old]
        expect_deletions(self._old_paths, (old for old, _ in changed))
        expect_deletions(self._new_paths, (new for _, new in changed))
        for old, new in changed:
            if new.physical_rows != old.physical_rows:
                raise CorruptTableError(
                    f"{new.name} has {new.physical_rows} rows, but {old.physical_rows} in the "
                    "previous version"
                )
            old_deletions = read_deletions(self._old_paths, old)
            new_deletions = read_deletions(self._new_paths, new)
            if old.deletion_file != new.deletion_file:
                deleted = np.setdiff1d(new_deletions, old_deletions, assume_unique=True)
                if len(deleted):
                    removed.append(_FragmentRows(old, deleted))
                restored = np.setdiff1d(old_deletions, new_deletions, assume_unique=True)
                if len(restored):
                    added.append(_FragmentRows(new, restored))
            rows = self._updated_in_place(old, new)
            rows = rows - bitmap_of(old_deletions) - bitmap_of(new_deletions)
            if rows:
                updated.append((old, new, rows))
        may_move = self._stable_row_ids and self._operation_name not in _NO_MOVES
        if may_move and removed and added:
            moved = self._matched_by_row_id(removed, added)
        else:
            moved = _unmatched(removed, added)
        new_rows: list[ChangedRows] = []
        for change in moved:
            if change.is_before:
                yield change
            else:
                new_rows.append(change)
        for old, new, rows in updated:
            data, count = rows.serialize(), len(rows)
            yield ChangedRows("update_preimage", old, data, count)
            new_rows.append(ChangedRows("update_postimage", new, data, count))
        yield from new_rows

    def _is_kept(self, old: Fragment) -> bool:
        """Return whether the new version has a fragment of the previous one, and its rows."""
        new = self._new.get(old.id)
        if new is None or self._operation_name == "overwrite":
            return False
        if self._operation_name not in _NEW_FRAGMENTS:
            return True
        files = {(file.base_id, file.path) for file in old.files}
        return not files.isdisjoint((file.base_id, file.path) for file in new.files)

    def _updated_in_place(self, old: Fragment, new: Fragment) -> BitMap:
        """Return the row offsets whose values may differ; deleted rows may be among them."""
        if self._operation_name in _NEW_COLUMNS or self._operation_name in ("append", "delete"):
            return BitMap()
        if _files_by_field(old, self._fields) == _files_by_field(new, self._fields):
            return BitMap()
        if isinstance(self._operation, Update):
            recorded = self._operation.updated_offsets.get(new.id)
            if recorded is not None:
                name = f"{new.name}: updated rows in the transaction"
                check_rows(recorded, new.physical_rows, name)
                return recorded
        if self._operation_name == "data_overlay":
            return _overlaid_rows(old, new)
        if self._stable_row_ids and self._has_row_versions:
            old_versions = row_ids.updated_versions_of(old, self._old_paths)
            new_versions = row_ids.updated_versions_of(new, self._new_paths)
            if (
                old_versions is not None
                and new_versions is not None
                and len(old_versions) == len(new_versions)
            ):
                offsets: Offsets = np.flatnonzero(old_versions != new_versions)
                # An update may lack both, as one of pylance by `fragment.update_columns`.
                if len(offsets):
                    return bitmap_of(offsets)
        return BitMap(range(new.physical_rows))

    @cached_property
    def _has_row_versions(self) -> bool:
        """Whether rows with the same last updated version have the same values."""
        return self._operation is not None and show_changes(self._taken_back, NO_ROW_CHANGES)

    def _matched_by_row_id(
        self, removed: list[_FragmentRows], added: list[_FragmentRows]
    ) -> Iterator[ChangedRows]:
        """Yield moved rows as updates, all others as deleted and inserted."""
        removed_ids = [self._ids_and_versions(rows, self._old_paths, 0) for rows in removed]
        ids = np.concatenate([old_ids for _, old_ids, _ in removed_ids])
        versions = np.concatenate([old_versions for _, _, old_versions in removed_ids])
        order = np.argsort(ids, kind="stable")
        ids, versions = ids[order], versions[order]
        # By position in `ids`: rows that are in the new version, and rows that it has unchanged.
        moved, unchanged_rows = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        for rows in added:
            offsets, new_ids, new_versions = self._ids_and_versions(rows, self._new_paths, 1)
            position = np.minimum(np.searchsorted(ids, new_ids), max(len(ids) - 1, 0))
            matched: _Mask = (
                ids[position] == new_ids if len(ids) else np.zeros(len(new_ids), np.bool_)
            )
            unchanged = matched.copy()
            if self._operation_name == "update" or not self._has_row_versions:
                unchanged[:] = False
            else:
                unchanged[matched] = versions[position[matched]] == new_versions[matched]
            moved[position[matched]] = True
            unchanged_rows[position[unchanged]] = True
            yield from _masked_change("insert", rows, offsets, ~matched)
            yield from _masked_change("update_postimage", rows, offsets, matched & ~unchanged)
        # Back to the order of `removed`.
        row_moved, row_same = np.empty_like(moved), np.empty_like(unchanged_rows)
        row_moved[order], row_same[order] = moved, unchanged_rows
        start = 0
        for rows, (offsets, old_ids, _) in zip(removed, removed_ids, strict=True):
            part = slice(start, start + len(old_ids))
            start = part.stop
            updated = row_moved[part] & ~row_same[part]
            yield from _masked_change("delete", rows, offsets, ~row_moved[part])
            yield from _masked_change("update_preimage", rows, offsets, updated)

    def _ids_and_versions(
        self, rows: _FragmentRows, paths: TablePaths, unknown: int
    ) -> tuple[Offsets, UInt64Array, UInt64Array]:
        """Return offsets, row ids, and last updated versions; `unknown` where these are missing."""
        fragment = rows.fragment
        offsets = rows.offsets
        if offsets is None:
            deleted = read_deletions(paths, fragment)
            offsets = np.setdiff1d(np.arange(fragment.physical_rows), deleted, assume_unique=True)
        ids = row_ids.row_ids_of(fragment, paths)
        if ids is None:
            raise CorruptTableError(
                f"{fragment.name} has no row ids, but the table has stable row ids"
            )
        updated = row_ids.updated_versions_of(fragment, paths)
        versions = np.full(len(ids), unknown, np.uint64) if updated is None else updated
        return offsets, ids[offsets], versions[offsets]


def _unmatched(removed: list[_FragmentRows], added: list[_FragmentRows]) -> Iterator[ChangedRows]:
    by_type: Mapping[ChangeType, list[_FragmentRows]] = {"delete": removed, "insert": added}
    for change_type, parts in by_type.items():
        for rows in parts:
            change = _change(change_type, rows)
            if change.num_rows:
                yield change


def _masked_change(
    change_type: ChangeType, rows: _FragmentRows, offsets: Offsets, mask: _Mask
) -> Iterator[ChangedRows]:
    if mask.all() and rows.offsets is None:
        if len(mask):
            yield _change(change_type, rows)
    elif mask.any():
        yield _change(change_type, _FragmentRows(rows.fragment, offsets[mask]))


def _change(change_type: ChangeType, rows: _FragmentRows) -> ChangedRows:
    fragment, offsets = rows.fragment, rows.offsets
    if offsets is None:
        return ChangedRows(change_type, fragment, None, fragment.num_rows)
    return ChangedRows(change_type, fragment, bitmap_of(offsets).serialize(), len(offsets))


def _files_by_field(fragment: Fragment, fields: Collection[int]) -> dict[int, tuple[object, ...]]:
    """Return the data file and the overlays of each field."""
    files: dict[int, tuple[object, ...]] = {}
    for file in fragment.files:
        files.update(
            {field_id: (file.base_id, file.path) for field_id in file.fields if field_id in fields}
        )
    for overlay in fragment.overlays:
        for field_id in overlay.data_file.fields:
            if field_id in fields:
                files[field_id] = (*files.get(field_id, ()), overlay.data_file.path)
    return files


def _overlaid_rows(old: Fragment, new: Fragment) -> BitMap:
    """Return the rows with values in overlays that only the new version has."""
    old_paths = {overlay.data_file.path for overlay in old.overlays}
    rows = BitMap()
    for overlay in new.overlays:
        if overlay.data_file.path not in old_paths:
            for data in overlay.bitmaps:
                rows |= decode_rows(data, new.physical_rows, new.name)
    return rows
