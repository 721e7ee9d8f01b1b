"""Builder of the next manifest, which an operation changes.

The builder starts with a copy of the newest version. So all parts that the operation does not
change are kept, also fields that this release does not know. Fields of a single version are cleared
or set again: version, timestamp, tag, writer, transaction, positions of sections, feature flags.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from lance_spark._version import __version__
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedError
from lance_spark.file.schema.rules import check_fields
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table import sort_order
from lance_spark.table.fragments import files
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_complete, check_new, check_unique
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest import codec
from lance_spark.table.manifest import manifest as flags
from lance_spark.table.manifest.codec import encode
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.rows import ids as row_ids

if TYPE_CHECKING:
    from lance_spark.table.paths import TablePaths

#: The writer's name in manifests. It is not "lance": other clients repair known errors of early
#: releases with that name.
_WRITER_LIBRARY = "lance-spark"
#: The name of a manifest under construction in errors.
_NEW_MANIFEST = "the new manifest"
_NANOS = 1_000_000_000
_MAX_U32 = 2**32 - 1


class ManifestBuilder:
    """The manifest of the next version, while it is built.

    - `base`: The newest version; None for a new table.
    - `enable_stable_row_ids`: Whether a new table gets stable row ids. For an existing table,
      nothing changes.
    - `read_version`: Reads the manifest of a version of the table.
    - `planned_on`: The version that the operation was planned on, if it differs from the base.
    - `paths`: Opens files of the base that contain row counts or sequences.
    - `proto`: The message under construction, with the number of the next version.
    - `dictionaries`: Dictionary values of fields of version 0.1. They are the first bytes of the
      manifest file.
    - `keeps_content`: Whether the new version keeps fragments and indexes of the base.
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
        # Fragment id to position in `proto.fragments`; None if it must be computed again.
        self._positions: dict[int, int] | None = None
        # Ids of changed fragments. New fragments are those from position `_first_added` on.
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
        """Whether the new version is the first of the table."""
        return self.base is None

    @property
    def version(self) -> int:
        """The number of the new version."""
        return self.proto.version

    @property
    def has_indices(self) -> bool:
        """Whether the table has indexes. Does not parse the index section."""
        if self._indices is not None:
            return bool(self._indices.indices)
        return bool(self._index_section)

    @property
    def indices(self) -> table_pb2.IndexSection:
        """The indexes. The caller may change the message. Raises CorruptTableError."""
        if self._indices is None:
            # Imported here because it imports pyroaring, which tables without indexes do not need.
            from lance_spark.table.indexes.sections import check_names, check_section, parse_section

            name = self.base.name if self.base else _NEW_MANIFEST
            self._indices = parse_section(self._index_section, name)
            check_section(self._indices, name)
            check_names(self._indices, name)
        return self._indices

    @property
    def index_section(self) -> bytes | None:
        """The serialised index section of the new manifest; None without indexes.

        If `indices` was not used, these are the bytes of the base.
        """
        if self._indices is None:
            return self._index_section
        data: bytes = self._indices.SerializeToString()
        return data or None

    def _set_index_section(self, data: bytes | None) -> None:
        self._index_section = data
        self._indices = None

    def read_version(self, version: int) -> Manifest:
        """Read the manifest of another version of the table.

        Raises VersionNotFoundError, CorruptTableError, StorageError.
        """
        if self._read_version is None:
            raise InvalidInputError(f"version {version} cannot be read: the table is new")
        return self._read_version(version)

    def restore(self, manifest: Manifest) -> None:
        """Replace the content of the base by the content of another version.

        Fragment ids, row ids and field ids that the base used are not used again.
        """
        max_ids = [self._max_fragment_id(), manifest.max_fragment_id]
        known_ids = [max_id for max_id in max_ids if max_id is not None]
        base, self.proto = self.proto, manifest.to_proto()
        self.proto.version = base.version
        if known_ids:
            self.proto.max_fragment_id = max(known_ids)
        self.proto.next_row_id = max(self.proto.next_row_id, base.next_row_id)
        for name in ("max_allocated_field_id", "max_clustering_id"):
            if base.HasField(name):
                setattr(self.proto, name, max(getattr(base, name), getattr(self.proto, name)))
        for name in ("tag", "version_aux_data", "transaction_file"):
            self.proto.ClearField(name)
        self._positions = None
        self._changed.clear()
        self._first_added = len(self.proto.fragments)
        self._set_index_section(manifest.index_section)
        self._repair(manifest)
        self.dictionaries = manifest.dictionaries
        self.stable_row_ids = manifest.flags.stable_row_ids
        self._flags = flags.Flags(
            manifest.flags.reader | (base.reader_feature_flags & flags.FOR_EVER),
            manifest.flags.writer | (base.writer_feature_flags & flags.WRITERS_FOR_EVER),
        )

    def fragment(self, fragment_id: int) -> table_pb2.DataFragment | None:
        """Return the message of a fragment, which the caller may change; None if not found."""
        if self._positions is None:
            self._positions = {item.id: index for index, item in enumerate(self.proto.fragments)}
        position = self._positions.get(fragment_id)
        self._changed.add(fragment_id)
        return None if position is None else self.proto.fragments[position]

    def replace_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Replace the fragments with the same ids.

        Raises InvalidInputError: the table does not have a fragment with the id.
        """
        for fragment in fragments:
            existing = self.fragment(fragment.id)
            if existing is None:
                raise InvalidInputError(f"fragment {fragment.id} not found in the table")
            existing.CopyFrom(fragment.to_proto())

    def remove_fragments(self, fragment_ids: Collection[int]) -> None:
        """Remove fragments. Ids that the table does not have are ignored."""
        if not fragment_ids:
            return
        removed = frozenset(fragment_ids)
        self._set_fragments(
            fragment for fragment in self.proto.fragments if fragment.id not in removed
        )

    def _set_fragments(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Replace all fragments."""
        self._keep_max_fragment_id()
        fragment_list = list(fragments)
        proto = table_pb2.Manifest(fragments=fragment_list)
        # `_first_added` no longer separates the new fragments, so their ids are recorded.
        self._changed.update(fragment.id for fragment in self.proto.fragments[self._first_added :])
        self.proto.ClearField("fragments")
        self.proto.MergeFrom(proto)
        self._positions = None
        self._first_added = len(fragment_list)

    def set_fields(self, fields: Collection[file_pb2.Field]) -> None:
        """Replace all columns.

        Raises InvalidInputError: the fields do not form a tree, or break a rule of
        `file.schema.rules`: other clients could not read the version.
        """
        # Imported here because it imports Arrow, which other operations do not need.
        from lance_spark.file.schema.schema import FieldTree

        try:
            FieldTree(list(fields))
        except CorruptFileError as error:
            raise InvalidInputError(f"the new schema: {error}") from None
        check_fields(fields, self.proto.fields)
        self.proto.ClearField("fields")
        self.proto.fields.extend(fields)

    def set_data_storage_version(self, version: tuple[int, int]) -> None:
        """Set the version of new data files."""
        self.proto.data_format.file_format = files.FILE_FORMAT
        self.proto.data_format.version = files.text(version)

    def _repair(self, manifest: Manifest) -> None:
        """Repair known errors of early releases; see `table.manifest.codec`.

        The new version names a later writer, so no other client will repair it.
        """
        if not manifest.states_file_version:
            self.set_data_storage_version(manifest.data_storage_version)
        if not manifest.has_writer_version and self.proto.fragments:
            self._count_rows(manifest)
        codec.drop_unused_files(self.proto)
        if self.has_indices and codec.has_wrong_bitmaps(manifest.message):
            from lance_spark.table.indexes.sections import is_system

            kept = [index for index in self.indices.indices if is_system(index)]
            self._indices = table_pb2.IndexSection(indices=kept)

    def _count_rows(self, manifest: Manifest) -> None:
        if self.paths is None:
            raise UnsupportedError(
                f"{manifest.name}: an early release of Lance wrote this version and its row counts "
                "may be wrong; commit any other change to the table first, which corrects them"
            )
        counted = counted_fragments(self.paths, manifest)
        self.proto.ClearField("fragments")
        self.proto.fragments.extend(fragment.to_proto() for fragment in counted)

    def drop_content(self) -> None:
        """Remove all fragments and indexes of the base. Their ids are not used again."""
        self._keep_max_fragment_id()
        self.proto.ClearField("fragments")
        self._positions = None
        self._changed.clear()
        self._first_added = 0
        self._set_index_section(None)
        self.dictionaries = b""
        self.keeps_content = False

    def add_fragments(self, fragments: Iterable[Fragment], *, has_moved_rows: bool = False) -> None:
        """Append new fragments and assign their ids, and stable row ids if the table has them.

        - `has_moved_rows`: Whether fragments can record the versions that created their rows. If
          false, the new version creates all rows, as in pylance.

        Raises InvalidInputError: a fragment has no data files, or another file version than the
        table, or a deletion file, or is in the table already, or the ids are used up. Raises
        CommitConflictError: the table has files of version 0.1, and a fragment lacks one of its
        columns.
        """
        next_id = self._next_fragment_id()
        version = Manifest(self.proto, _NEW_MANIFEST).data_storage_version
        legacy_fields = self.proto.fields if version == files.LEGACY else ()
        for fragment in fragments:
            check_complete(fragment, legacy_fields)
            if not fragment.files:
                # pylance cannot read it, although it is a fragment of nulls.
                raise InvalidInputError(
                    "a new fragment has no data files; write its rows with write_fragments"
                )
            check_new(fragment, self.proto.fragments, next_id)
            self._check_version(fragment, version)
            if next_id > _MAX_U32:
                raise InvalidInputError(
                    f"fragment ids are used up: the greatest is {_MAX_U32}; "
                    "write the rows to a new table"
                )
            added = self.proto.fragments.add()
            added.CopyFrom(fragment.to_proto())
            added.id = next_id
            self._positions = None
            self.proto.max_fragment_id = next_id
            next_id += 1
            if self.stable_row_ids:
                row_ids.clear_versions(added, keeps_created=has_moved_rows)
                self.proto.next_row_id = row_ids.assign_lineage(
                    added, self.proto.next_row_id, self.proto.version
                )

    def reserve_fragments(self, count: int) -> None:
        """Reserve the next fragment ids. Raises InvalidInputError: the ids are used up."""
        greatest = self._max_fragment_id() or 0
        if greatest + count > _MAX_U32:
            raise InvalidInputError(
                f"fragment ids are used up: {count} more are needed after {greatest}, "
                f"the greatest is {_MAX_U32}; write the rows to a new table"
            )
        self.proto.max_fragment_id = greatest + count

    def insert_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Add fragments that have reserved ids and stable row ids. Sorts all fragments by id.

        Raises InvalidInputError: an id was not reserved or is in use, or a fragment has another
        file version than the table, or it lacks stable row ids.
        """
        first_unreserved = self._next_fragment_id()
        version = Manifest(self.proto, _NEW_MANIFEST).data_storage_version
        by_id = {item.id: item for item in self.proto.fragments}
        for fragment in fragments:
            self._check_version(fragment, version)
            if fragment.id in by_id or fragment.id >= first_unreserved:
                raise InvalidInputError(
                    f"fragment id {fragment.id} was not reserved, or is in use already"
                )
            if self.stable_row_ids and not fragment.has_lineage(Lineage.ROW_IDS):
                raise InvalidInputError(
                    f"fragment {fragment.id} has no row ids, but the table has stable row ids"
                )
            by_id[fragment.id] = fragment.to_proto()
            self._changed.add(fragment.id)
        self._set_fragments(by_id[fragment_id] for fragment_id in sorted(by_id))

    def _finish(self, transaction_file: str) -> table_pb2.Manifest:
        """Set the fields of the new version, such as timestamp and flags; return the message."""
        proto = self.proto
        if self.keeps_content:
            check_unique(proto.fragments, self.base.name if self.base else _NEW_MANIFEST)
        seconds, nanos = divmod(time.time_ns(), _NANOS)
        proto.timestamp.seconds, proto.timestamp.nanos = seconds, nanos
        proto.ClearField("writer_version")
        proto.writer_version.library = _WRITER_LIBRARY
        proto.writer_version.version = __version__
        proto.transaction_file = transaction_file
        codec.declare_blobs(proto)
        if self.base is not None:
            sort_order.keep(self.base.message, proto)
        changed = self._changed_fragments()
        self._check_bases(changed)
        computed = flags.next_flags(
            proto,
            self._flags,
            stable_row_ids=self.stable_row_ids,
            changed=changed,
            covering_columns=self._has_covering_columns(),
        )
        proto.reader_feature_flags, proto.writer_feature_flags = computed.reader, computed.writer
        if computed.writer & flags.STABLE_FIELD_IDS:
            # Raises CorruptTableError if the base does not record the greatest field id.
            _ = self.base.first_new_field_id if self.base is not None else 0
            field_ids = (field.id for field in proto.fields)
            proto.max_allocated_field_id = max(proto.max_allocated_field_id, *field_ids, -1)
        return proto

    def encode(self, name: str, transaction: bytes, file: str) -> tuple[Manifest, bytes]:
        """Set timestamp and flags; return the new version, and the bytes of its manifest file.

        - `name`: The name of the manifest file in errors.
        - `transaction`: The serialised `Transaction`.
        - `file`: The name of the transaction's file below _transactions/; empty without a file.

        Raises CorruptTableError: two fragments have the same id.
        """
        proto = self._finish(file)
        index_section = self.index_section
        data = encode(proto, index_section, transaction, self.dictionaries)
        manifest = Manifest(
            proto,
            name,
            index_section=index_section,
            transaction_section=transaction,
            dictionaries=self.dictionaries,
            size_bytes=len(data),
        )
        return manifest, data

    def _check_bases(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Raise InvalidInputError for a file below a base path that the table does not have."""
        bases = {base.id for base in self.proto.base_paths}
        for fragment in fragments:
            overlays = (overlay.data_file for overlay in fragment.overlays)
            for file in (*fragment.files, *overlays):
                if file.HasField("base_id") and file.base_id not in bases:
                    raise InvalidInputError(
                        f"data file {file.path} is below the base path {file.base_id}, which the "
                        "table does not have, so no client could read it; write its rows again"
                    )

    def _changed_fragments(self) -> list[table_pb2.DataFragment]:
        changed = [self.fragment(fragment_id) for fragment_id in tuple(self._changed)]
        added = self.proto.fragments[self._first_added :]
        return [fragment for fragment in changed if fragment is not None] + added

    def _has_covering_columns(self) -> bool:
        if self._indices is not None:
            return any(index.covering_fields for index in self._indices.indices)
        # The section was not parsed, so it is unchanged.
        has_flag = self._flags is not None and self._flags.reader & flags.COVERING_COLUMNS
        return bool(has_flag and self._index_section)

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
        """Record the greatest fragment id, before its fragment is removed.

        Early writers did not record it.
        """
        if (greatest := self._max_fragment_id()) is not None:
            self.proto.max_fragment_id = greatest

    def _check_version(self, fragment: Fragment, version: tuple[int, int]) -> None:
        mixed = self.base is not None and self.base.flags.reader & flags.MIXED_FILE_VERSIONS
        for file in fragment.files:
            if file.version != version and not mixed:
                raise InvalidInputError(
                    f"data file {file.path} has version {files.text(file.version)}, "
                    f"but the files of the table have version {files.text(version)}"
                )
