"""The next manifest while an operation builds it.

A draft starts as a copy of the newest version, so that everything an operation does not touch lives on, fields unknown
to this release included. What belongs to one version alone is cleared or set anew: version, timestamp, tag, writer,
transaction, positions of sections, feature flags.
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

#: What manifests say wrote them. Other clients repair what they know early releases of "lance" to have got wrong.
WRITER_LIBRARY = "lance-spark"
_NANOS = 1_000_000_000
_MAX_U32 = 2**32 - 1


class ManifestBuilder:
    """A manifest message under construction.

    Parameters
    ----------
    base : Manifest, optional
        The newest version; none for a new table.
    enable_stable_row_ids : bool
        For a new table; others stay as they were created.
    read_version : callable, optional
        Reads the manifest of a version of the table.
    planned_on : int, optional
        The version that the operation was planned on, if it is another one than the base.
    paths : TablePaths, optional
        Opens the files of the base, for what the manifest does not hold itself.

    Attributes
    ----------
    proto : table_pb2.Manifest
        What the base has, with the next version's number.
    base : Manifest or None
    planned_on : int or None
    paths : TablePaths or None
    stable_row_ids : bool
    dictionaries : bytes
        Dictionary values that stand before the sections, where the fields of version 0.1 say that they are.
    keeps_content : bool
        Whether fragments and indexes of the base live on.
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
        """Whether there is no version before."""
        return self.base is None

    @property
    def version(self) -> int:
        """Number of the version that is made."""
        return self.proto.version

    @property
    def has_indices(self) -> bool:
        """Whether there are indexes; does not parse them."""
        if self._indices is not None:
            return bool(self._indices.indices)
        return bool(self._index_section)

    @property
    def indices(self) -> table_pb2.IndexSection:
        """The indexes, to be changed in place.

        Raises
        ------
        CorruptTableError
        """
        if self._indices is None:
            # Tables without indexes do without its package of bitmaps.
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
        """The index section of the new manifest: the base's bytes, if nobody looked into it; none without indexes."""
        if self._indices is None:
            return self._index_section
        data: bytes = self._indices.SerializeToString()
        return data or None

    def set_index_section(self, data: bytes | None) -> None:
        """Put the section of another version in the place of the base's."""
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
        """Put what another version holds in the place of the base's. Ids are not given again."""
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
        """Return the message of a fragment, to be changed in place; None if there is none of that id."""
        if self._places is None:
            self._places = {one.id: place for place, one in enumerate(self.proto.fragments)}
        place = self._places.get(fragment_id)
        self._changed.add(fragment_id)
        return None if place is None else self.proto.fragments[place]

    def replace_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Put new states of fragments in the place of those with the same ids.

        Raises
        ------
        InvalidInputError
            There is no fragment of such an id.
        """
        for fragment in fragments:
            found = self.fragment(fragment.id)
            if found is None:
                raise InvalidInputError(f"the table has no fragment {fragment.id}")
            found.CopyFrom(fragment.to_proto())

    def remove_fragments(self, fragment_ids: Collection[int]) -> None:
        """Take fragments out; ids that there are none of are passed over."""
        if not fragment_ids:
            return
        gone = frozenset(fragment_ids)
        self._keep_max_fragment_id()
        kept = [one for one in self.proto.fragments if one.id not in gone]
        self.set_fragments(kept)

    def set_fragments(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Put other fragments in the place of all."""
        self._keep_max_fragment_id()
        kept = list(fragments)
        proto = table_pb2.Manifest(fragments=kept)
        # Those at the end are known as changed by their place.
        self._changed.update(one.id for one in self.proto.fragments[self._first_added :])
        self.proto.ClearField("fragments")
        self.proto.MergeFrom(proto)
        self._places = None
        self._first_added = len(kept)

    def set_fields(self, fields: Collection[file_pb2.Field]) -> None:
        """Put other columns in the place of all.

        Raises
        ------
        InvalidInputError
            The fields are no tree: nobody could open the version.
        """
        # The file room takes Arrow along, which other changes do without.
        from lance_spark.file.schema.schema import FieldTree

        try:
            FieldTree(list(fields))
        except CorruptFileError as error:
            raise InvalidInputError(f"the new schema: {error}") from None
        self.proto.ClearField("fields")
        self.proto.fields.extend(fields)

    def set_data_storage_version(self, version: tuple[int, int]) -> None:
        """Set the version that data files have from now on."""
        self.proto.data_format.file_format = file_versions.FILE_FORMAT
        self.proto.data_format.version = file_versions.text(version)

    def _repair(self, manifest: Manifest) -> None:
        """Correct what early releases wrote, before the new version names a later writer; see `early_releases`."""
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
                f"{manifest.name}: an early release of Lance wrote this version and did not count its rows reliably; "
                "commit any other change to the table first, which counts them"
            )
        counted = counted_fragments(self.paths, manifest)
        self.proto.ClearField("fragments")
        self.proto.fragments.extend(one.to_proto() for one in counted)

    def drop_content(self) -> None:
        """Leave fragments and indexes of the base behind. Their ids are not given again."""
        self._keep_max_fragment_id()
        self.proto.ClearField("fragments")
        self._places = None
        self._changed.clear()
        self._first_added = 0
        self.set_index_section(None)
        self.dictionaries = b""
        self.keeps_content = False

    def add_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Append new fragments, with ids after the greatest one ever given, and row ids if the table has them.

        Raises
        ------
        InvalidInputError
            A fragment is of another file version than the table, or the ids are used up.
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
                self.proto.next_row_id = row_ids.assign(
                    added, self.proto.next_row_id, self.proto.version
                )

    def reserve_fragments(self, count: int) -> None:
        """Set the next fragment ids aside.

        Raises
        ------
        InvalidInputError
            The ids are used up.
        """
        greatest = self._max_fragment_id() or 0
        if greatest + count > _MAX_U32:
            raise InvalidInputError(
                f"fragment ids are used up: {count} more than {greatest} are wanted, {_MAX_U32} is the greatest; "
                "write the table anew"
            )
        self.proto.max_fragment_id = greatest + count

    def insert_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Add fragments whose ids were reserved, with the row ids that they bring; all are in the order of their ids then.

        Raises
        ------
        InvalidInputError
            An id was not reserved, or is in use; the fragment is of another file version than the table, or lacks row ids.
        """
        reserved = self._next_fragment_id()
        version = Manifest(self.proto, "the new manifest").data_storage_version
        present = {one.id: one for one in self.proto.fragments}
        for fragment in fragments:
            self._check_version(fragment, version)
            if fragment.id in present or fragment.id >= reserved:
                raise InvalidInputError(
                    f"fragment id {fragment.id} was not reserved, or is in use already"
                )
            if self.stable_row_ids and not fragment.has_lineage(Lineage.ROW_IDS):
                raise InvalidInputError(
                    f"fragment {fragment.id} has no row ids, which rows of this table keep wherever they are"
                )
            present[fragment.id] = fragment.to_proto()
            self._changed.add(fragment.id)
        self.set_fragments(present[number] for number in sorted(present))

    def finish(self, transaction_file: str) -> table_pb2.Manifest:
        """Set what belongs to this version alone, and return the message.

        Parameters
        ----------
        transaction_file : str
            Name of the file below _transactions/; empty if there is none.

        Raises
        ------
        CorruptTableError
            Two fragments have one id.
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
            # Raises if nobody noted the ids that there were.
            _ = self.base.first_new_field_id if self.base is not None else 0
            given = (one.id for one in proto.fields)
            proto.max_allocated_field_id = max(proto.max_allocated_field_id, *given, -1)
        return proto

    def _changed_fragments(self) -> list[table_pb2.DataFragment]:
        found = [self.fragment(number) for number in tuple(self._changed)]
        return [one for one in found if one is not None] + self.proto.fragments[self._first_added :]

    def _has_covering_columns(self) -> bool:
        if self._indices is not None:
            return any(index.covering_fields for index in self._indices.indices)
        # Nobody looked into the section: it is as it was.
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
        """Note the greatest id before the fragment that has it can go: early writers left it to the fragments."""
        if (greatest := self._max_fragment_id()) is not None:
            self.proto.max_fragment_id = greatest

    def _check_version(self, fragment: Fragment, version: tuple[int, int]) -> None:
        mixed = self.base is not None and self.base.flags.reader & flags.MIXED_FILE_VERSIONS
        for file in fragment.files:
            if file.version != version and not mixed:
                found, wanted = (file_versions.text(v) for v in (file.version, version))
                raise InvalidInputError(
                    f"data file {file.path} is of version {found}, the table's files are of version {wanted}"
                )
