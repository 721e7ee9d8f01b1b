"""Which rows a version inserted, updated and deleted, told from its manifest, the one before it and
its transaction.

| fragment | rows |
| --- | --- |
| only in the version before, or with other files after an overwrite | its live rows are deleted |
| only in the version | its live rows are inserted |
| in both, with other deletions | rows newly deleted are deleted, rows back (restore) inserted |
| in both, with other files or overlays for columns of both | rows that changed are updated |

Versions that only rearrange rows, or change columns, indexes or settings, change no row:
compactions give none, and new columns give none for the rows that there were.

With stable row ids, a row that is gone at one place and has come at another with the same id is
updated, and after a restore only if its last change is another one. Without them nobody knows which
row became which: updates that move rows are deletions and insertions. Rows that are updated where
they are (`Update` of columns, replaced files, overlays) are told by the offsets that the
transaction notes, else by their versions of last change, else all rows of the fragment count as
updated.

Specification: table/row_id_lineage.md, table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, VersionNotFoundError
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import describe, list_manifests
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.data.update import Update
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.deletion_writer import bitmap_of
from lance_spark.table.rows.deletions import (
    Offsets,
    check_rows,
    decode_rows,
    offsets_of,
    read_deletions,
)
from lance_spark.table.rows.u64_segments import UInt64Array

Kind = Literal["insert", "update_preimage", "update_postimage", "delete"]

#: Operations after which all rows are what they were.
NO_ROWS = frozenset(
    {
        "rewrite",
        "reserve_fragments",
        "create_index",
        "update_config",
        "project",
        "update_bases",
        "update_mem_wal_state",
    }
)
#: Operations after which fragments that are left have other columns, and the same rows.
_NEW_COLUMNS = frozenset({"merge"})
#: After these, a fragment of a known id can be another one.
_NEW_FRAGMENTS = frozenset({"overwrite", "restore", "clone", ""})
#: Operations that move no row: what comes is new, what goes is gone.
_NO_MOVES = frozenset({"append", "delete", "overwrite", "merge", "clone"})

_Mask = npt.NDArray[np.bool_]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one fragment that a version changed in one way.

    Attributes
    ----------
    kind : str
        "insert", "update_preimage", "update_postimage" or "delete".
    fragment : Fragment
        As it was in the version before for deleted rows and preimages, as it is in the version for
        the others.
    rows : bytes or None
        Roaring bitmap of physical offsets, none of them deleted in `fragment`. None: all live rows.
    num_rows : int
    """

    kind: Kind
    fragment: Fragment
    rows: bytes | None
    num_rows: int

    @property
    def is_before(self) -> bool:
        """Whether the rows are those of the version before."""
        return self.kind in ("delete", "update_preimage")

    def offsets(self, within: range) -> Offsets | None:
        """Return the physical offsets within a range, increasing; None for all live rows."""
        if self.rows is None:
            return None
        return offsets_of(BitMap.deserialize(self.rows) & BitMap(within))


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """What a version changed.

    Attributes
    ----------
    version : int
    timestamp_us : int
        When it was committed: microseconds since 1970 in UTC, by the clock of the writer.
    operation : str or None
        Kind of the change; None if nobody knows.
    before : Manifest or None
        None if the version is the first one of the table.
    after : Manifest
    changes : tuple of ChangedRows
        Old rows first.
    """

    version: int
    timestamp_us: int
    operation: str | None
    before: Manifest | None
    after: Manifest
    changes: tuple[ChangedRows, ...]

    @property
    def num_rows(self) -> int:
        """Rows of all changes; an update counts twice."""
        return sum(change.num_rows for change in self.changes)


def changes_of(
    paths: TablePaths, before: Manifest | None, after: Manifest, transaction: Transaction | None
) -> VersionChanges:
    """Tell what a version changed.

    Parameters
    ----------
    paths : TablePaths
        Of the table, with the base paths of `after`: deletion files are read, and row ids where
        rows moved.
    before : Manifest or None
        The version before; None if there was none.
    after : Manifest
    transaction : Transaction or None
        What made `after`; None if its writer left nothing behind.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    operation = None if transaction is None else transaction.operation
    kind = None if operation is None else operation.name
    changes: tuple[ChangedRows, ...] = ()
    if kind not in NO_ROWS:
        changes = tuple(_Diff(paths, before, after, operation).changes())
    stamp = after.timestamp_us
    return VersionChanges(after.version, stamp, kind, before, after, changes)


def changes_between(table: OpenTable, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield what the versions of a branch changed, oldest first.

    Parameters
    ----------
    table : OpenTable
        Any version of the branch.
    first, last : int
        Both inclusive.

    Raises
    ------
    VersionNotFoundError
        One of the versions, or the one before the first, is not there (any more). The message names
        the first one that changes can be told from.
    CorruptTableError, CorruptFileError, StorageError
    """
    if first > last:
        return
    before = manifest_before(table, first)
    for version in range(first, last + 1):
        after = _read(table, version)
        transaction = read_transaction(table.store, after)
        cloned = transaction is not None and transaction.operation.name == "clone"
        if before is None and cloned and after.branch is not None:
            # A branch begins with the rows of the version that it was made of.
            before = after
        paths = table.paths.with_bases(after.base_paths)
        yield changes_of(paths, before, after, transaction)
        before = after


def manifest_before(table: OpenTable, version: int) -> Manifest | None:
    """Return the manifest of the version before; None if the version is the first of the table, or
    of its branch.

    Raises
    ------
    VersionNotFoundError
        It has been cleaned up.
    CorruptTableError, StorageError
    """
    if version <= 1:
        return None
    try:
        return _read(table, version - 1)
    except VersionNotFoundError:
        made = read_transaction(table.store, _read(table, version))
        if made is not None and made.operation.name == "clone":
            return None
        raise


def _read(table: OpenTable, version: int) -> Manifest:
    try:
        return read_version(table.store, version)
    except VersionNotFoundError:
        there = list_manifests(table.store)
        numbers = [item.version for item in there]
        known = set(numbers)
        start = numbers[-1]
        while start - 1 in known:
            start -= 1
        usable = "1" if start == 1 else f"{start + 1}" if start < numbers[-1] else "none yet"
        raise VersionNotFoundError(
            f"{table.store.display}: version {version}, which is needed to tell what changed, is "
            "not there: the table has "
            f"{describe(there)}; the first version whose changes can be told, with those of all "
            f"after it, is {usable}"
        ) from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Rows of a fragment that have come, or have gone; all live ones if no offsets are given."""

    fragment: Fragment
    offsets: Offsets | None


class _Diff:
    """Compares two versions."""

    def __init__(
        self,
        paths: TablePaths,
        before: Manifest | None,
        after: Manifest,
        operation: Operation | None,
    ) -> None:
        self._new_paths = paths
        self._old_paths = paths if before is None else paths.with_bases(before.base_paths)
        self._operation = operation
        self._kind = "" if operation is None else operation.name
        old = () if before is None else counted_fragments(self._old_paths, before)
        self._old = {item.id: item for item in old}
        self._new = {item.id: item for item in counted_fragments(paths, after)}
        self._stable = after.flags.stable_row_ids
        if before is not None:
            own = {field.id for field in before.schema.walk()}
            self._fields = own & {field.id for field in after.schema.walk()}

    def changes(self) -> Iterator[ChangedRows]:
        """Yield all changes, old rows first."""
        gone = [_Place(item, None) for item in self._old.values() if not self._kept(item)]
        came = [
            _Place(new, None)
            for number, new in self._new.items()
            if (old := self._old.get(number)) is None or not self._kept(old)
        ]
        changed: list[tuple[Fragment, Fragment, BitMap]] = []
        for old in self._old.values():
            new = self._new.get(old.id)
            if new is None or new == old or not self._kept(old):
                continue
            if new.physical_rows != old.physical_rows:
                raise CorruptTableError(
                    f"{new.name} has {new.physical_rows} rows, but {old.physical_rows} in the "
                    "version before"
                )
            was, now = self._deletions(old, self._old_paths), self._deletions(new, self._new_paths)
            if old.deletion_file != new.deletion_file:
                if len(deleted := np.setdiff1d(now, was, assume_unique=True)):
                    gone.append(_Place(old, deleted))
                if len(restored := np.setdiff1d(was, now, assume_unique=True)):
                    came.append(_Place(new, restored))
            rows = self._changed_in_place(old, new)
            rows = rows - bitmap_of(was) - bitmap_of(now)
            if rows:
                changed.append((old, new, rows))
        moves = self._stable and self._kind not in _NO_MOVES and gone and came
        paired = self._paired(gone, came) if moves else _unpaired(gone, came)
        later: list[ChangedRows] = []
        for item in paired:
            if item.is_before:
                yield item
            else:
                later.append(item)
        for old, new, rows in changed:
            data, count = rows.serialize(), len(rows)
            yield ChangedRows("update_preimage", old, data, count)
            later.append(ChangedRows("update_postimage", new, data, count))
        yield from later

    def _kept(self, old: Fragment) -> bool:
        """Whether a fragment of the version before is still there, with all or some of its rows."""
        new = self._new.get(old.id)
        if new is None or self._kind == "overwrite":
            return False
        if self._kind not in _NEW_FRAGMENTS:
            return True
        files = {(file.base_id, file.path) for file in old.files}
        return not files.isdisjoint((file.base_id, file.path) for file in new.files)

    def _deletions(self, fragment: Fragment, paths: TablePaths) -> Offsets:
        return read_deletions(paths, fragment) if fragment.deletion_file is not None else _NONE

    def _changed_in_place(self, old: Fragment, new: Fragment) -> BitMap:
        """Return the physical rows whose values may be other ones, deleted ones too."""
        if self._kind in _NEW_COLUMNS or self._kind in ("append", "delete"):
            return BitMap()
        if _layout(old, self._fields) == _layout(new, self._fields):
            return BitMap()
        if isinstance(self._operation, Update):
            noted = self._operation.updated_offsets.get(new.id)
            if noted is not None:
                name = f"{new.name}: rows that its transaction says were updated"
                check_rows(noted, new.physical_rows, name)
                return noted
        if self._kind == "data_overlay":
            return _overlaid(old, new)
        if self._stable:
            was = row_ids.updated_versions_of(old, self._old_paths)
            now = row_ids.updated_versions_of(new, self._new_paths)
            if was is not None and now is not None and len(was) == len(now):
                result: Offsets = np.flatnonzero(was != now)
                if len(result) or self._kind == "update":
                    return bitmap_of(result)
        return BitMap(range(new.physical_rows))

    def _paired(self, gone: list[_Place], came: list[_Place]) -> Iterator[ChangedRows]:
        """Yield rows that moved as updates, all others as deleted and inserted."""
        known = [self._known(place, self._old_paths) for place in gone]
        ids = np.concatenate([item for _, item, _ in known])
        updated = np.concatenate([item for _, _, item in known])
        order = np.argsort(ids, kind="stable")
        ids, updated = ids[order], updated[order]
        met, same = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        for place in came:
            offsets, own, changed_at = self._known(place, self._new_paths)
            position = np.minimum(np.searchsorted(ids, own), max(len(ids) - 1, 0))
            result: _Mask = ids[position] == own if len(ids) else np.zeros(len(own), np.bool_)
            unchanged = result.copy()
            if self._kind == "update":
                unchanged[:] = False
            else:
                unchanged[result] = updated[position[result]] == changed_at[result]
            met[position[result]] = True
            same[position[unchanged]] = True
            yield from _some("insert", place, offsets, ~result)
            yield from _some("update_postimage", place, offsets, result & ~unchanged)
        # Back to the order of the places.
        met_at, same_at = np.empty_like(met), np.empty_like(same)
        met_at[order], same_at[order] = met, same
        start = 0
        for place, (offsets, own, _) in zip(gone, known, strict=True):
            rows = slice(start, start + len(own))
            start = rows.stop
            yield from _some("delete", place, offsets, ~met_at[rows])
            yield from _some("update_preimage", place, offsets, met_at[rows] & ~same_at[rows])

    def _known(self, place: _Place, paths: TablePaths) -> tuple[Offsets, UInt64Array, UInt64Array]:
        """Return offsets, row ids, and versions of the last change of some rows."""
        fragment = place.fragment
        offsets = place.offsets
        if offsets is None:
            deleted = self._deletions(fragment, paths)
            offsets = np.setdiff1d(np.arange(fragment.physical_rows), deleted, assume_unique=True)
        ids = row_ids.row_ids_of(fragment, paths)
        if ids is None:
            raise CorruptTableError(
                f"{fragment.name} has no row ids, but the table has stable row ids"
            )
        updated = row_ids.updated_versions_of(fragment, paths)
        versions = np.ones(len(ids), np.uint64) if updated is None else updated
        return offsets, ids[offsets], versions[offsets]


def _unpaired(gone: list[_Place], came: list[_Place]) -> Iterator[ChangedRows]:
    places: Mapping[Kind, list[_Place]] = {"delete": gone, "insert": came}
    for kind, several in places.items():
        for place in several:
            one = _changed(kind, place)
            if one.num_rows:
                yield one


def _some(kind: Kind, place: _Place, offsets: Offsets, wanted: _Mask) -> Iterator[ChangedRows]:
    if wanted.all() and place.offsets is None:
        if len(wanted):
            yield _changed(kind, place)
    elif wanted.any():
        yield _changed(kind, _Place(place.fragment, offsets[wanted]))


def _changed(kind: Kind, place: _Place) -> ChangedRows:
    fragment, offsets = place.fragment, place.offsets
    if offsets is None:
        return ChangedRows(kind, fragment, None, fragment.num_rows)
    return ChangedRows(kind, fragment, bitmap_of(offsets).serialize(), len(offsets))


def _layout(fragment: Fragment, fields: Collection[int]) -> dict[int, tuple[object, ...]]:
    """Return where the values of some fields are."""
    results: dict[int, tuple[object, ...]] = {}
    for file in fragment.files:
        results.update(
            {field: (file.base_id, file.path) for field in file.fields if field in fields}
        )
    for overlay in fragment.overlays:
        for field in overlay.data_file.fields:
            if field in fields:
                results[field] = (*results.get(field, ()), overlay.data_file.path)
    return results


def _overlaid(old: Fragment, new: Fragment) -> BitMap:
    """Return the rows that have cells in overlays which only the second has."""
    known = {item.data_file.path for item in old.overlays}
    rows = BitMap()
    for overlay in new.overlays:
        if overlay.data_file.path not in known:
            for data in overlay.bitmaps:
                rows |= decode_rows(data, new.physical_rows, new.name)
    return rows
