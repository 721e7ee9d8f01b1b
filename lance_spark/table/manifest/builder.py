"""Builds the next manifest from the newest one.

A builder starts with a copy of the newest version, so everything that the operation does not touch
survives, including fields unknown to this release. Fields of a single version are reset: version,
timestamp, tag, writer, transaction, positions of sections, feature flags.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lance_spark._version import __version__
from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedError,
)
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest import flags
from lance_spark.table.manifest import repairs as early_releases
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.rows import ids as row_ids

if TYPE_CHECKING:
    from lance_spark.table.paths import TablePaths

#: The writer in manifests. Other clients repair known mistakes of early releases of "lance".
WRITER_LIBRARY = "lance-spark"
_NANOS = 1_000_000_000
_MAX_U32 = 2**32 - 1


class ManifestBuilder:
    """A manifest message under construction.

    Parameters
    ----------
    base : Manifest, optional
        The newest version; None for a new table.
    enable_stable_row_ids : bool
        Whether a new table has stable row ids; existing tables keep their choice.
    read_version : callable, optional
        Reads the manifest of a version of the table.
    planned_on : int, optional
        The version that the operation was planned on, if it differs from the base.
    paths : TablePaths, optional
        Opens files of the base, for content outside of the manifest.

    Attributes
    ----------
    proto : table_pb2.Manifest
        Message of the base, with the number of the next version.
    base : Manifest or None
    planned_on : int or None
    paths : TablePaths or None
    stable_row_ids : bool
    dictionaries : bytes
        Dictionary values before the sections, at the positions that fields of version 0.1 refer to.
    keeps_content : bool
        Whether fragments and indexes of the base survive.
    """

    def __init__(
        self,
        base: Manifest | None,
        *,
        enable_stable_row_ids: bool = False,
        read_version: Callable[[int], Manifest] | None = None,
        planned_on: int | None = None,
        paths: TablePaths | None = None,
    ) -> None:
        self.base = base
        self.planned_on = planned_on
        self.paths = paths
        self.keeps_content = True
        self._read_version = read_version
        self._flags = base.flags if base else None
        self._indices: table_pb2.IndexSection | None = None
        self._places: dict[int, int] | None = None
        self._changed: set[int] = set()
        self._first_added = 0
        if base is None:
            self.proto = table_pb2.Manifest(version=1)
            self._index_section: bytes | None = None
            self.stable_row_ids = enable_stable_row_ids
            self.dictionaries = b""
            return
        self.proto = base.to_proto()
        self._first_added = len(self.proto.fragments)
        self.proto.version = base.version + 1
        self._index_section = base.index_section
        self.stable_row_ids = base.flags.stable_row_ids
        self.dictionaries = base.dictionaries
        for name in ("tag", "version_aux_data", "transaction_file"):
            self.proto.ClearField(name)
        self._repair(base)

    @property
    def is_new_table(self) -> bool:
        """Whether the table is new."""
        return self.base is None

    @property
    def version(self) -> int:
        """Number of the new version."""
        return self.proto.version

    @property
    def has_indices(self) -> bool:
        """Whether there are indexes; does not parse them."""
        if self._indices is not None:
            return bool(self._indices.indices)
        return bool(self._index_section)

    @property
    def indices(self) -> table_pb2.IndexSection:
        """The indexes, which the caller may change in place.

        Raises
        ------
        CorruptTableError
        """
        if self._indices is None:
            # Imported here, as tables without indexes do not need bitmaps.
            from lance_spark.table.indexes.sections import check_names, check_section

            name = self.base.name if self.base else "the new manifest"
            self._indices = table_pb2.IndexSection()
            try:
                self._indices.ParseFromString(self._index_section or b"")
            except DecodeError as error:
                raise CorruptTableError(f"{name}: no readable index section: {error}") from None
            check_section(self._indices, name)
            check_names(self._indices, name)
        return self._indices

    @property
    def index_section(self) -> bytes | None:
        """The index section of the new manifest: the bytes of the base, if not parsed; or None."""
        if self._indices is None:
            return self._index_section
        data: bytes = self._indices.SerializeToString()
        return data or None

    def set_index_section(self, data: bytes | None) -> None:
        """Replace the index section by that of another version."""
        self._index_section = data
        self._indices = None

    def read_version(self, version: int) -> Manifest:
        """Read the manifest of another version of the table.

        Raises
        ------
        VersionNotFoundError, CorruptTableError, StorageError
        """
        if self._read_version is None:
            raise InvalidInputError(f"version {version} cannot be read: the table is new")
        return self._read_version(version)

    def restore(self, manifest: Manifest) -> None:
        """Replace the content of the base by that of another version. Ids are not reused."""
        given = [self._max_fragment_id(), manifest.max_fragment_id]
        greatest = [number for number in given if number is not None]
        base, self.proto = self.proto, manifest.to_proto()
        self.proto.version = base.version
        if greatest:
            self.proto.max_fragment_id = max(greatest)
        self.proto.next_row_id = max(self.proto.next_row_id, base.next_row_id)
        for name in ("max_allocated_field_id", "max_clustering_id"):
            if base.HasField(name):
                setattr(self.proto, name, max(getattr(base, name), getattr(self.proto, name)))
        for name in ("tag", "version_aux_data", "transaction_file"):
            self.proto.ClearField(name)
        self._places = None
        self._changed.clear()
        self._first_added = len(self.proto.fragments)
        self.set_index_section(manifest.index_section)
        self._repair(manifest)
        self.dictionaries = manifest.dictionaries
        self.stable_row_ids = manifest.flags.stable_row_ids
        self._flags = flags.Flags(
            manifest.flags.reader | (base.reader_feature_flags & flags.FOR_EVER),
            manifest.flags.writer | (base.writer_feature_flags & flags.WRITERS_FOR_EVER),
        )

    def fragment(self, fragment_id: int) -> table_pb2.DataFragment | None:
        """Return the message of a fragment, to change in place; None if the id does not exist."""
        if self._places is None:
            self._places = {item.id: place for place, item in enumerate(self.proto.fragments)}
        place = self._places.get(fragment_id)
        self._changed.add(fragment_id)
        return None if place is None else self.proto.fragments[place]

    def replace_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Replace fragments by new states with the same ids.

        Raises
        ------
        InvalidInputError
            A fragment id does not exist.
        """
        for fragment in fragments:
            result = self.fragment(fragment.id)
            if result is None:
                raise InvalidInputError(f"the table has no fragment {fragment.id}")
            result.CopyFrom(fragment.to_proto())

    def remove_fragments(self, fragment_ids: Collection[int]) -> None:
        """Remove fragments; ids that do not exist are ignored."""
        if not fragment_ids:
            return
        gone = frozenset(fragment_ids)
        self._keep_max_fragment_id()
        kept = [fragment for fragment in self.proto.fragments if fragment.id not in gone]
        self.set_fragments(kept)

    def set_fragments(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Replace all fragments."""
        self._keep_max_fragment_id()
        kept = list(fragments)
        proto = table_pb2.Manifest(fragments=kept)
        # Fragments at the end are recognised as changed by their position.
        self._changed.update(fragment.id for fragment in self.proto.fragments[self._first_added :])
        self.proto.ClearField("fragments")
        self.proto.MergeFrom(proto)
        self._places = None
        self._first_added = len(kept)

    def set_fields(self, fields: Collection[file_pb2.Field]) -> None:
        """Replace all columns.

        Raises
        ------
        InvalidInputError
            The fields do not form a tree, so no client could open the version.
        """
        # Imported here, as it loads Arrow, which other changes do not need.
        from lance_spark.file.schema.schema import FieldTree

        try:
            FieldTree(list(fields))
        except CorruptFileError as error:
            raise InvalidInputError(f"the new schema: {error}") from None
        self.proto.ClearField("fields")
        self.proto.fields.extend(fields)

    def set_data_storage_version(self, version: tuple[int, int]) -> None:
        """Set the file version of new data files."""
        self.proto.data_format.file_format = file_versions.FILE_FORMAT
        self.proto.data_format.version = file_versions.text(version)

    def _repair(self, manifest: Manifest) -> None:
        """Repair mistakes of early releases, before the new version names a later writer; see
        `repairs`.
        """
        if not manifest.states_file_version:
            self.set_data_storage_version(manifest.data_storage_version)
        if not manifest.has_writer_version and self.proto.fragments:
            self._count_rows(manifest)
        early_releases.drop_unused_files(self.proto)
        if self.has_indices and early_releases.has_wrong_bitmaps(manifest.message):
            from lance_spark.table.indexes.sections import is_system

            kept = [index for index in self.indices.indices if is_system(index)]
            self._indices = table_pb2.IndexSection(indices=kept)

    def _count_rows(self, manifest: Manifest) -> None:
        if self.paths is None:
            raise UnsupportedError(
                f"{manifest.name}: an early release of Lance wrote this version and did not count "
                "its rows reliably; "
                "commit any other change to the table first, which counts them"
            )
        counted = counted_fragments(self.paths, manifest)
        self.proto.ClearField("fragments")
        self.proto.fragments.extend(item.to_proto() for item in counted)

    def drop_content(self) -> None:
        """Drop fragments and indexes of the base. Their ids are not reused."""
        self._keep_max_fragment_id()
        self.proto.ClearField("fragments")
        self._places = None
        self._changed.clear()
        self._first_added = 0
        self.set_index_section(None)
        self.dictionaries = b""
        self.keeps_content = False

    def add_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Append new fragments with new ids, and with row ids if the table has stable ones.

        Raises
        ------
        InvalidInputError
            The file version of a fragment differs from the table, or the ids are used up.
        """
        next_id = self._next_fragment_id()
        version = Manifest(self.proto, "the new manifest").data_storage_version
        for fragment in fragments:
            self._check_version(fragment, version)
            if next_id > _MAX_U32:
                raise InvalidInputError(
                    f"fragment ids are used up: {_MAX_U32} is the greatest; write the table anew"
                )
            added = self.proto.fragments.add()
            added.CopyFrom(fragment.to_proto())
            added.id = next_id
            self._places = None
            self.proto.max_fragment_id = next_id
            next_id += 1
            if self.stable_row_ids:
                self.proto.next_row_id = row_ids.assign_lineage(
                    added, self.proto.next_row_id, self.proto.version
                )

    def reserve_fragments(self, count: int) -> None:
        """Reserve the next fragment ids.

        Raises
        ------
        InvalidInputError
            The ids are used up.
        """
        greatest = self._max_fragment_id() or 0
        if greatest + count > _MAX_U32:
            raise InvalidInputError(
                f"fragment ids are used up: {count} more than {greatest} are wanted, {_MAX_U32} is "
                "the greatest; "
                "write the table anew"
            )
        self.proto.max_fragment_id = greatest + count

    def insert_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Add fragments with reserved ids and their row ids, and sort all fragments by id.

        Raises
        ------
        InvalidInputError
            An id was not reserved, or is in use; the file version of the fragment differs from the
            table; or it lacks row ids.
        """
        reserved = self._next_fragment_id()
        version = Manifest(self.proto, "the new manifest").data_storage_version
        present = {item.id: item for item in self.proto.fragments}
        for fragment in fragments:
            self._check_version(fragment, version)
            if fragment.id in present or fragment.id >= reserved:
                raise InvalidInputError(
                    f"fragment id {fragment.id} was not reserved, or is in use already"
                )
            if self.stable_row_ids and not fragment.has_lineage(Lineage.ROW_IDS):
                raise InvalidInputError(
                    f"fragment {fragment.id} has no row ids, which rows of this table keep "
                    "wherever they are"
                )
            present[fragment.id] = fragment.to_proto()
            self._changed.add(fragment.id)
        self.set_fragments(present[number] for number in sorted(present))

    def finish(self, transaction_file: str) -> table_pb2.Manifest:
        """Set the fields of this version, and return the message.

        Parameters
        ----------
        transaction_file : str
            Name of the file below _transactions/; empty if there is none.

        Raises
        ------
        CorruptTableError
            Two fragments have the same id.
        """
        proto = self.proto
        if self.keeps_content:
            check_unique(proto.fragments, self.base.name if self.base else "the new manifest")
        seconds, nanos = divmod(time.time_ns(), _NANOS)
        proto.timestamp.seconds, proto.timestamp.nanos = seconds, nanos
        proto.ClearField("writer_version")
        proto.writer_version.library = WRITER_LIBRARY
        proto.writer_version.version = __version__
        proto.transaction_file = transaction_file
        computed = flags.next_flags(
            proto,
            self._flags,
            stable_row_ids=self.stable_row_ids,
            changed=self._changed_fragments(),
            covering_columns=self._has_covering_columns(),
        )
        proto.reader_feature_flags, proto.writer_feature_flags = computed.reader, computed.writer
        if computed.writer & flags.STABLE_FIELD_IDS:
            # Raises if the used ids are not recorded.
            _ = self.base.first_new_field_id if self.base is not None else 0
            given = (field.id for field in proto.fields)
            proto.max_allocated_field_id = max(proto.max_allocated_field_id, *given, -1)
        return proto

    def _changed_fragments(self) -> list[table_pb2.DataFragment]:
        result = [self.fragment(number) for number in tuple(self._changed)]
        return [item for item in result if item is not None] + self.proto.fragments[
            self._first_added :
        ]

    def _has_covering_columns(self) -> bool:
        if self._indices is not None:
            return any(index.covering_fields for index in self._indices.indices)
        # The section was not parsed, so it is unchanged.
        known = self._flags is not None and self._flags.reader & flags.COVERING_COLUMNS
        return bool(known and self._index_section)

    def _next_fragment_id(self) -> int:
        base = self.base
        if base is None:
            return 0
        greatest = self._max_fragment_id()
        return 0 if greatest is None else greatest + 1

    def _max_fragment_id(self) -> int | None:
        if self.proto.HasField("max_fragment_id"):
            return self.proto.max_fragment_id
        return self.base.max_fragment_id if self.base is not None else None

    def _keep_max_fragment_id(self) -> None:
        """Record the greatest id before its fragment is removed: early writers did not."""
        if (greatest := self._max_fragment_id()) is not None:
            self.proto.max_fragment_id = greatest

    def _check_version(self, fragment: Fragment, version: tuple[int, int]) -> None:
        mixed = self.base is not None and self.base.flags.reader & flags.MIXED_FILE_VERSIONS
        for file in fragment.files:
            if file.version != version and not mixed:
                result, wanted = (file_versions.text(v) for v in (file.version, version))
                raise InvalidInputError(
                    f"data file {file.path} is of version {result}, the table's files are of "
                    f"version {wanted}"
                )
