"""Plans the batches of a stream: the fragments of versions between two positions.

| operation of a version | rows that a stream reads |
| --- | --- |
| append | its new fragments |
| update or merge that only adds fragments | its new fragments |
| delete, or an update that only deletes; compaction, columns, indexes, settings | none |
| overwrite of a table without rows | its fragments |
| any other, such as an update, overwrite or restore | error; none with skipChangeCommits |

A stream of a change feed reads the changes of a version (`change_feed/diff`) in one batch. At its
start a stream reads the fragments of one version, then the new fragments of later versions.

Fragments are read as of the version that added them, so later compactions and deletions have no
effect. That version must still exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lance_spark.change_feed.diff import (
    NO_ROW_CHANGES,
    ChangedRows,
    VersionChanges,
    changes_between,
    is_first_of_clone,
)
from lance_spark.change_feed.field_mapping import field_ids, kept_ids
from lance_spark.change_feed.reverted_versions import versions_taken_back
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedError, VersionNotFoundError
from lance_spark.table.commit.transaction import read_operation
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import describe, list_manifests
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.update import Update, UpdateMode

# --------------------------------------------------------------------------------------------------
# Positions of a stream in a table, as checkpoints store them.
#
# | key | meaning |
# | --- | --- |
# | `version` | all versions before this one have been read |
# | `index` | number of fragments of this version that have been read |
# | `snapshot` | true while all rows of the version are read, at the start of a stream |
# | `seen` | optional: time and transaction of the last read version, to detect a recreated table |
#
# `{"version": 0, "index": 0, "snapshot": false}` is the start of a stream without a starting
# version: it begins with a snapshot of the newest version at its first batch. The end of that batch
# records the version: V with a snapshot, or V + 1 if the batch has all of V. So start and end
# define a batch. A position after the last fragment of a version is always stored as the start of
# the next version, because Spark compares positions as texts.

_KEYS = frozenset({"version", "index", "snapshot"})


@dataclass(frozen=True, slots=True, order=True)
class StreamPosition:
    """A position in the history of a table.

    - `index`: Number of fragments of the version that have been read.
    - `snapshot`: Whether `index` counts all fragments of the version, not only new fragments.
    - `seen`: Identity of the version `last`; empty if unknown.
    """

    version: int
    index: int = 0
    snapshot: bool = False
    seen: str = field(default="", compare=False)

    @property
    def is_beginning(self) -> bool:
        """Whether nothing has been read and no starting version is chosen."""
        return self.version == 0

    @property
    def last(self) -> int:
        """The last version of which rows have been read."""
        return self.version if self.index or self.snapshot else self.version - 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value for the checkpoint."""
        value = {"version": self.version, "index": self.index, "snapshot": self.snapshot}
        return {**value, "seen": self.seen} if self.seen else value

    @classmethod
    def parse(cls, value: object) -> StreamPosition:
        """Parse the JSON value of a checkpoint.

        Raises InvalidInputError: the value is not a position: the checkpoint belongs to another
        source.
        """
        if isinstance(value, dict) and value.keys() - {"seen"} == _KEYS:
            version, index, snapshot = value["version"], value["index"], value["snapshot"]
            transaction = value.get("seen", "")
            is_typed = type(version) is int and type(index) is int and type(snapshot) is bool
            if is_typed and version >= 0 and index >= 0 and isinstance(transaction, str):
                return cls(version, index, snapshot, transaction)
        raise InvalidInputError(
            f"{str(value)[:200]} is not a position in a Lance table: the checkpoint belongs to "
            "another source or to a newer release; start the stream with a new checkpointLocation"
        )


BEGINNING = StreamPosition(0)


def seen(manifest: Manifest) -> str:
    """Return the identity of a version for positions."""
    time, transaction = manifest.identity
    return f"{time} {transaction or ''}"


# --------------------------------------------------------------------------------------------------
# Plans the batches of a stream: the fragments of versions between two positions.

#: Operations without new rows: they remove only rows that the stream has already returned.
_NOTHING_NEW = NO_ROW_CHANGES | {"delete"}
#: Bounds of the cache: manifests, and fragments in all of them.
_KEPT_PARTS = 64
_KEPT_FRAGMENTS = 200_000


@dataclass(frozen=True, slots=True)
class VersionPart:
    """The part of a version that a batch reads.

    - `fragments`: New fragments; empty in a change feed.
    - `changes`: Changes of the version in a change feed.
    """

    manifest: Manifest
    fragments: tuple[Fragment, ...] = ()
    changes: VersionChanges | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """The size limit of a batch, which reads at least one fragment or the changes of one version.

    - `fragments`, `bytes`, `versions`: Limits; None for unlimited. Versions without rows count as
      well.
    """

    fragments: int | None = None
    bytes: int | None = None
    versions: int | None = None


@dataclass(slots=True)
class _Budget:
    """The remaining size of a batch."""

    limit: Limit
    fragments: int = 0
    bytes: int = 0

    def takes(self, number: int, size: int) -> bool:
        """Add fragments if they fit, or if they are the first."""
        limit = self.limit
        if self.fragments and (
            (limit.fragments is not None and self.fragments + number > limit.fragments)
            or (limit.bytes is not None and self.bytes + size > limit.bytes)
        ):
            return False
        self.fragments += number
        self.bytes += size
        return True


@dataclass(slots=True)
class StreamPlan:
    """Plans the batches of a stream. The last manifests are cached until `forget`.

    - `table`: The table at any version of the branch.
    - `change_feed`: Whether changes are read instead of new rows.
    - `skip_changes`: Whether versions that changed rows are skipped.
    """

    table: OpenTable
    change_feed: bool = False
    skip_changes: bool = False
    _parts: dict[tuple[int, bool], VersionPart] = field(default_factory=dict)
    _kept_ids: dict[int, frozenset[int]] = field(default_factory=dict)

    def next(self, start: StreamPosition, newest: int, limit: Limit) -> StreamPosition:
        """Return the end of the next batch; `start` without new rows.

        - `newest`: The last version to read.

        Raises VersionNotFoundError: a version was removed before it was read; or the table was
        recreated. Raises UnsupportedError: a version changed rows.
        """
        self._check_not_ahead(start, newest)
        if newest > start.last:
            self.check_same(start)
        budget = _Budget(limit)
        position = StreamPosition(newest, 0, True) if start.is_beginning else start
        if position.snapshot:
            position = self._advance(position, budget)
            if position.snapshot or start.is_beginning:
                # The end of the first batch records its version.
                return position
        last = (
            newest if limit.versions is None else min(newest, position.version + limit.versions - 1)
        )
        while position.version <= last:
            try:
                after = self._advance(position, budget)
            except UnsupportedError:
                if position == start:
                    raise
                # Earlier fragments are read first.
                break
            if after == position:
                break
            position = after
            if position.index:
                break
        return position

    def parts(self, start: StreamPosition, end: StreamPosition) -> Iterator[VersionPart]:
        """Yield the parts of versions that a batch reads.

        Raises VersionNotFoundError, UnsupportedError: Errors of `next`.
        """
        if start == end and start.seen == end.seen:
            return
        # Before 4.2, Spark requests only the newest position. In a recreated table it can be before
        # the start.
        self._check_not_ahead(start, end.last)
        self.check_same(start)
        self.check_same(end)
        if start == end:
            return
        position = start
        if start.is_beginning:
            position = StreamPosition(end.version if end.snapshot else end.version - 1, 0, True)
        if position.snapshot:
            stop = end.index if end.snapshot else None
            yield self._cut(self._part(position.version, snapshot=True), position.index, stop)
            if end.snapshot:
                return
            position = StreamPosition(position.version + 1)
        for version in range(position.version, end.version + 1):
            stop = end.index if version == end.version else None
            if stop == 0:
                return
            first = position.index if version == position.version else 0
            yield self._cut(self._part(version, snapshot=False), first, stop)

    def forget(self, end: StreamPosition) -> None:
        """Drop what is cached of versions before a position."""
        self._parts = {key: part for key, part in self._parts.items() if key[0] >= end.version}
        self._kept_ids = {
            version: ids for version, ids in self._kept_ids.items() if version >= end.version
        }

    def same_ids(self, version: int, newest: Manifest) -> frozenset[int]:
        """Return the ids of fields that are the same in two versions: all versions have them.

        No ids are the same after an overwrite in between, or if versions were removed.
        """
        ids = field_ids(newest)
        for number in range(newest.version, version, -1):
            if number not in self._kept_ids:
                try:
                    manifest = self._manifest(number)
                    operation = read_operation(self.table.store, manifest)
                except VersionNotFoundError:
                    return frozenset()
                taken_back = versions_taken_back(self.table.store, manifest, operation)
                self._keep_ids(number, kept_ids(manifest, operation, taken_back))
            ids &= self._kept_ids[number]
        return ids

    def _keep_ids(self, version: int, ids: frozenset[int]) -> None:
        """Cache the ids of fields that are the same in a version and in the version before it."""
        # Most versions have the same columns: they share a set.
        last = next(reversed(self._kept_ids.values()), None)
        self._kept_ids[version] = last if last == ids else ids

    def _advance(self, start: StreamPosition, budget: _Budget) -> StreamPosition:
        """Add the fitting part of one version."""
        part = self._part(start.version, snapshot=start.snapshot)
        if part.changes is not None and not start.snapshot:
            changed = part.changes.changes
            size = sum(map(_share, changed))
            fits = not changed or budget.takes(len(changed), size)
            return StreamPosition(start.version + 1, seen=seen(part.manifest)) if fits else start
        fragments = _fragments(part)
        index = start.index
        while index < len(fragments) and budget.takes(1, fragments[index].size_bytes):
            index += 1
        if index >= len(fragments):
            return StreamPosition(start.version + 1, seen=seen(part.manifest))
        return StreamPosition(start.version, index, start.snapshot, seen(part.manifest))

    def _cut(self, part: VersionPart, first: int, stop: int | None) -> VersionPart:
        if part.changes is None:
            return VersionPart(part.manifest, part.fragments[first:stop])
        if first == 0 and stop is None:
            return part
        changes = part.changes.changes[first:stop]
        return VersionPart(part.manifest, (), replace(part.changes, changes=changes))

    def _part(self, version: int, *, snapshot: bool) -> VersionPart:
        key = version, snapshot
        part = self._parts.get(key)
        if part is None:
            try:
                part = self._snapshot(version) if snapshot else self._new_part(version)
            except VersionNotFoundError:
                raise self._removed(version) from None
            self._parts[key] = part
            held = sum(map(_held, self._parts.values()))
            while len(self._parts) > 1 and (
                len(self._parts) > _KEPT_PARTS or held > _KEPT_FRAGMENTS
            ):
                held -= _held(self._parts.pop(next(iter(self._parts))))
        return part

    def _snapshot(self, version: int) -> VersionPart:
        manifest = self._manifest(version)
        fragments = counted_fragments(self.table.paths.with_bases(manifest.base_paths), manifest)
        if not self.change_feed:
            return VersionPart(manifest, fragments)
        return VersionPart(manifest, (), as_inserted(manifest, fragments))

    def _new_part(self, version: int) -> VersionPart:
        if self.change_feed:
            (changes,) = changes_between(self.table, version, version)
            self._keep_ids(version, changes.kept_ids)
            return VersionPart(changes.after, (), changes)
        manifest = self._manifest(version)
        operation = read_operation(self.table.store, manifest)
        operation_name = "" if operation is None else operation.name
        # The first version of a branch has no new rows.
        if operation_name in _NOTHING_NEW or (
            operation_name == "clone" and manifest.branch is not None
        ):
            return VersionPart(manifest)
        fragments = counted_fragments(self.table.paths.with_bases(manifest.base_paths), manifest)
        if isinstance(operation, Append):
            # New fragments have the greatest ids, and follow the others.
            return VersionPart(manifest, fragments[len(fragments) - len(operation.fragments) :])
        before = self._manifest(version - 1) if version > 1 and operation_name != "clone" else None
        if before is None or (operation_name == "overwrite" and not before.num_rows):
            return VersionPart(manifest, fragments)
        known = {fragment.id for fragment in before.fragments}
        new = tuple(fragment for fragment in fragments if fragment.id not in known)
        if _only_adds(operation):
            return VersionPart(manifest, new)
        if self.skip_changes or _only_deletes(operation, before.fragments, fragments):
            return VersionPart(manifest)
        raise UnsupportedError(
            f"{self.table.store.display}: version {version} ({operation_name or 'unknown'}) "
            "changed rows that the stream may have returned: set the option skipChangeCommits to "
            "skip such versions, or readChangeFeed to read inserted, updated and deleted rows"
        )

    def _manifest(self, version: int) -> Manifest:
        return read_version(self.table.store, version)

    def check_same(self, position: StreamPosition) -> None:
        """Check that the versions read so far belong to the existing table.

        Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the table was
        recreated.
        """
        if not position.seen:
            return
        try:
            existing = seen(self._manifest(position.last))
        except VersionNotFoundError:
            # A version may be removed after it was read, but the first version of a clone or of a
            # branch has no version before it that a stream could have read.
            if self._is_clone(position.last + 1):
                raise self._replaced(
                    f"version {position.last}, but the first version is {position.last + 1}"
                ) from None
            return
        if existing != position.seen:
            raise self._replaced(f"a version {position.last} that differs from the existing one")

    def _is_clone(self, version: int) -> bool:
        try:
            return is_first_of_clone(self.table.store, self._manifest(version))
        except VersionNotFoundError:
            return False

    def _check_not_ahead(self, start: StreamPosition, newest: int) -> None:
        if start.version > newest + 1:
            raise self._replaced(
                f"up to version {start.version - 1}, but the newest version is {newest}"
            )

    def _replaced(self, read: str) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"{self.table.store.display}: the stream has read {read}: the table was recreated; "
            "start the stream with a new checkpointLocation"
        )

    def _removed(self, version: int) -> LanceError:
        existing = describe(list_manifests(self.table.store))
        return VersionNotFoundError(
            f"{self.table.store.display}: version {version}, or the version before it, was cleaned "
            f"up before the stream read it: the table has {existing}. The stream may have missed "
            "rows. Start it with a new checkpointLocation, which begins with a snapshot, or at an "
            "existing version by startingVersion, and keep versions longer than streams lag"
        )


def as_inserted(manifest: Manifest, fragments: Sequence[Fragment]) -> VersionChanges:
    """Return the live rows of fragments as rows that the version inserted."""
    changes = [
        ChangedRows("insert", fragment, None, fragment.num_rows)
        for fragment in fragments
        if fragment.num_rows
    ]
    stamp = manifest.timestamp_us
    return VersionChanges(manifest.version, stamp, "append", None, manifest, tuple(changes))


def _held(part: VersionPart) -> int:
    """Return the number of fragments in the manifests of a part."""
    before = None if part.changes is None else part.changes.before
    return len(part.manifest.fragments) + (0 if before is None else len(before.fragments))


def _fragments(part: VersionPart) -> tuple[Fragment, ...]:
    if part.changes is None:
        return part.fragments
    return tuple(change.fragment for change in part.changes.changes)


def _share(changed: ChangedRows) -> int:
    """Estimate the bytes of changed rows from the bytes of their fragments."""
    fragment = changed.fragment
    return fragment.size_bytes * changed.num_rows // max(fragment.physical_rows, 1)


def _only_adds(operation: Operation | None) -> bool:
    if isinstance(operation, Update):
        return not operation.touched_fragments
    return operation is not None and operation.name == "merge"


def _only_deletes(
    operation: Operation | None, before: Sequence[Fragment], after: Sequence[Fragment]
) -> bool:
    if (
        not isinstance(operation, Update)
        or operation.new_fragments
        or operation.fields_modified
        or operation.mode is not UpdateMode.REWRITE_ROWS
    ):
        return False
    # Another client can have left the fields that it rewrote out of `fields_modified`.
    return _data_files(before) >= _data_files(after)


def _data_files(fragments: Sequence[Fragment]) -> set[tuple[int, int | None, str]]:
    return {(part.id, file.base_id, file.path) for part in fragments for file in part.files}
