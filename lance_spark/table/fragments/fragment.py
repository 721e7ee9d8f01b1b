"""Fragments of a table, as manifests and transactions contain them.

A `Fragment` wraps its protobuf message and parses a part at its first use. So a manifest with
100,000 fragments opens without a look at them, and fields that this release does not know survive
every commit. `table.fragments.files` has the parts of a fragment.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from pyroaring import BitMap

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.fragments.files import (
    DataFile,
    DeletionFile,
    DeletionFileType,
    ExternalRange,
    Lineage,
    Overlay,
)

#: Row offsets are 32-bit.
MAX_PHYSICAL_ROWS = 2**32
#: Row addresses have 32 bits for the fragment id.
MAX_ID = 2**32 - 1
#: Messages with fewer bytes are pickled with their sequences: a copy without them costs more.
_SMALL_MESSAGE = 1024


class Fragment:
    """A horizontal part of a table: data files with the same rows, and a deletion file. Immutable.

    Parameters
    ----------
    id : int
        0 for a new fragment; the commit assigns the id.
    files : iterable of DataFile
    physical_rows : int
        The number of rows in the files, including deleted rows.
    deletion_file : DeletionFile, optional
    """

    __slots__ = ("_files", "_proto", "_source")

    _files: tuple[DataFile, ...] | None

    def __init__(
        self,
        id: int,  # noqa: A002 - the format's name
        files: Iterable[DataFile],
        physical_rows: int,
        deletion_file: DeletionFile | None = None,
    ) -> None:
        self._files = tuple(files)
        self._source = "new fragment"
        self._proto = table_pb2.DataFragment(
            id=id,
            files=[file.to_proto() for file in self._files],
            physical_rows=physical_rows,
            deletion_file=None if deletion_file is None else deletion_file.to_proto(),
        )

    @classmethod
    def from_proto(cls, proto: table_pb2.DataFragment, source: str) -> Fragment:
        """Wrap a message. The caller must not change it afterwards.

        Parameters
        ----------
        proto : table_pb2.DataFragment
        source : str
            The name of the message's file in errors.

        Raises
        ------
        CorruptTableError
            The id has more than 32 bits.
        """
        return cls.from_protos((proto,), source)[0]

    @classmethod
    def from_protos(cls, protos: Iterable[table_pb2.DataFragment], source: str) -> list[Fragment]:
        """Wrap messages; see `from_proto`.

        Raises
        ------
        CorruptTableError
            An id has more than 32 bits.
        """
        new = cls.__new__
        fragments = []
        for proto in protos:
            if proto.id > MAX_ID:
                raise CorruptTableError(f"{source}: fragment id {proto.id} is out of range")
            fragment = new(cls)
            fragment._files = None
            fragment._proto = proto
            fragment._source = source
            fragments.append(fragment)
        return fragments

    @property
    def id(self) -> int:
        """The id. It is unique within the table, and never used again."""
        return self._proto.id

    @property
    def physical_rows(self) -> int:
        """The number of rows in the files, including deleted rows.

        0 if an early writer did not record it; see `table.fragments.row_counts`.

        Raises
        ------
        CorruptTableError
            The number is greater than the limit of a fragment.
        """
        rows = self._proto.physical_rows
        if rows > MAX_PHYSICAL_ROWS:
            raise self._corrupt(f"{rows} rows are out of range, the limit is {MAX_PHYSICAL_ROWS}")
        return rows

    @property
    def num_deleted_rows(self) -> int:
        """The number of deleted rows.

        Raises
        ------
        CorruptTableError
            The number is greater than the number of rows.
        """
        deleted = self._proto.deletion_file.num_deleted_rows
        if deleted > self.physical_rows:
            raise self._corrupt(f"{deleted} of its {self.physical_rows} rows are deleted")
        return deleted

    @property
    def num_deletions(self) -> int:
        """The `num_deleted_rows`, by pylance's name."""
        return self.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.physical_rows - self.num_deleted_rows

    def with_counts(self, physical_rows: int, num_deleted_rows: int) -> Fragment:
        """Return the fragment with other numbers of rows and of deleted rows."""
        proto = self.to_proto()
        proto.physical_rows = physical_rows
        if proto.HasField("deletion_file"):
            proto.deletion_file.num_deleted_rows = num_deleted_rows
        return Fragment.from_proto(proto, self._source)

    def without_deletions(self) -> Fragment:
        """Return the fragment without its deletion file: deleted rows are read as well."""
        proto = self.to_proto()
        proto.ClearField("deletion_file")
        return Fragment.from_proto(proto, self._source)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files.

        Raises
        ------
        CorruptTableError
            A path leads out of the table, or columns do not match fields.
        """
        if self._files is None:
            try:
                self._files = tuple(DataFile.from_proto(file) for file in self._proto.files)
            except CorruptTableError as error:
                raise self._corrupt(str(error)) from None
        return self._files

    @property
    def deletion_file(self) -> DeletionFile | None:
        """The deletion file; None if no rows are deleted."""
        if not self._proto.HasField("deletion_file"):
            return None
        try:
            return DeletionFile.from_proto(self._proto.deletion_file)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def has_lineage(self, lineage: Lineage) -> bool:
        """Return whether row ids or versions are recorded, in any form."""
        return self._proto.WhichOneof(lineage.value[0]) is not None

    def has_lineage_column(self, lineage: Lineage) -> bool:
        """Return whether row ids or versions are a hidden column of a data file."""
        group, inline, _ = lineage.value
        return self._proto.WhichOneof(group) not in (None, inline, lineage.external)

    def inline_lineage(self, lineage: Lineage) -> bytes | None:
        """Return the serialised sequence; None if it is not in the manifest."""
        group, inline, _ = lineage.value
        return getattr(self._proto, inline) if self._proto.WhichOneof(group) == inline else None

    def external_lineage(self, lineage: Lineage) -> ExternalRange | None:
        """Return the file range of the serialised sequence; None if it is not in an external file.

        Raises
        ------
        CorruptTableError
            The path of the file leads out of the table.
        """
        if self._proto.WhichOneof(lineage.value[0]) != lineage.external:
            return None
        try:
            return ExternalRange.from_proto(getattr(self._proto, lineage.external))
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def without_lineage(self, lineages: Iterable[Lineage]) -> Fragment:
        """Return the fragment without some sequences, for readers that do not use them.

        A small fragment is returned unchanged.
        """
        # This must be cheap for 100,000 fragments whose sequences are short ranges.
        if self._proto.ByteSize() < _SMALL_MESSAGE:
            return self
        proto = self.to_proto()
        for lineage in lineages:
            proto.ClearField(lineage.value[1])
        return Fragment.from_proto(proto, self._source)

    @property
    def source(self) -> str:
        """The name of the file that contains the fragment, for errors."""
        return self._source

    @property
    def name(self) -> str:
        """The name of the fragment, for errors."""
        return f"{self._source}: fragment {self.id}"

    @property
    def has_overlays(self) -> bool:
        """Whether the fragment has overlays."""
        return bool(self._proto.overlays)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """The overlays, oldest first.

        Raises
        ------
        CorruptTableError
        """
        try:
            return tuple(Overlay.from_proto(overlay) for overlay in self._proto.overlays)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    @property
    def size_bytes(self) -> int:
        """The bytes of the data files whose size is known."""
        files = self._proto.files
        if len(files) == 1:
            size: int = files[0].file_size_bytes
            return size
        return sum(file.file_size_bytes for file in files)

    @property
    def is_counted(self) -> bool:
        """Whether the numbers of rows and of deleted rows are recorded."""
        proto = self._proto
        if not proto.physical_rows:
            return False
        return bool(not proto.HasField("deletion_file") or proto.deletion_file.num_deleted_rows)

    def to_json(self) -> dict[str, Any]:
        """Return the fragment as pylance's `FragmentMetadata.to_json` does; see `json_form`."""

        return fragment_to_json(self._proto, self.name)

    @staticmethod
    def from_json(json_data: str | Mapping[str, Any]) -> Fragment:
        """Return the fragment of a JSON text, or of its mapping; see `json_form`."""

        return Fragment.from_proto(fragment_from_json(json_data), "JSON")

    def to_proto(self) -> table_pb2.DataFragment:
        """Return a copy of the message, with the fields that this release does not know."""
        copy = table_pb2.DataFragment()
        copy.CopyFrom(self._proto)
        return copy

    def __eq__(self, other: object) -> bool:
        return self._proto == other._proto if isinstance(other, Fragment) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.id, self._proto.physical_rows))

    def __repr__(self) -> str:
        number = self._proto.deletion_file.num_deleted_rows
        rows = f"physical_rows={self.physical_rows}"
        if number:
            rows += f", num_deleted_rows={number}"
        return f"Fragment(id={self.id}, files={self.files!r}, {rows})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (self._proto.SerializeToString(), self._source)

    def _corrupt(self, problem: str) -> CorruptTableError:
        return CorruptTableError(f"{self._source}: fragment {self.id}: {problem}")


def with_id(fragment: Fragment, fragment_id: int) -> Fragment:
    """Return a fragment with another id."""
    proto = fragment.to_proto()
    proto.id = fragment_id
    return Fragment.from_proto(proto, fragment.source)


def check_unique(
    fragments: Iterable[table_pb2.DataFragment] | Iterable[Fragment], source: str
) -> None:
    """Check that fragment ids are unique: a change of a fragment would change all with the same id.

    Releases of pylance around 0.16 wrote tables with repeated ids. These can be scanned, but a row
    address is ambiguous.

    - `source`: The name of their file in errors.

    Raises CorruptTableError: the message names the first repeated id.
    """
    seen: set[int] = set()
    for fragment in fragments:
        if fragment.id in seen:
            raise CorruptTableError(
                f"{source}: fragment id {fragment.id} occurs twice, so the table can be scanned, "
                "but not changed or read by row address; restore an older version without this "
                "error, or read its rows and overwrite the table with them"
            )
        seen.add(fragment.id)


def packed(fragments: Sequence[Fragment]) -> tuple[list[str], list[int], list[bytes]]:
    """Convert fragments to three lists, which are pickled faster than many objects.

    Returns
    -------
    list of str
        The distinct sources.
    list of int
        For each fragment the index of its source; empty if all have the same source.
    list of bytes
        The serialised messages.
    """
    sources = {fragment._source: 0 for fragment in fragments}
    for index, source in enumerate(sources):
        sources[source] = index
    indices = [sources[fragment._source] for fragment in fragments] if len(sources) > 1 else []
    return list(sources), indices, [fragment._proto.SerializeToString() for fragment in fragments]


def unpacked(sources: list[str], indices: list[int], messages: list[bytes]) -> list[Fragment]:
    """Return the fragments that were converted to these three lists."""
    parse = table_pb2.DataFragment.FromString
    protos = [parse(message) for message in messages]
    if not indices:
        return Fragment.from_protos(protos, sources[0]) if protos else []
    return [
        Fragment.from_proto(proto, sources[index])
        for proto, index in zip(protos, indices, strict=True)
    ]


def _unpickle(data: bytes, source: str) -> Fragment:
    return Fragment.from_proto(table_pb2.DataFragment.FromString(data), source)


def check_new(
    fragment: Fragment, existing: Sequence[table_pb2.DataFragment], new_id: int | None = None
) -> None:
    """Refuse to add a fragment that is taken from a version of the table.

    - `existing`: The fragments of the table, in the order of their ids.
    - `new_id`: The id that the fragment gets; by default another one than it has. The SSTables of a
      MemWAL are new tables whose fragment has a deletion file, and keeps its id.

    Raises InvalidInputError: the fragment has a deletion file, whose name contains the old id; or
    the table has it.
    """
    if fragment.deletion_file is not None and fragment.id != new_id:
        raise InvalidInputError(
            f"fragment {fragment.id} has a deletion file, which a new fragment cannot have: its "
            "name contains the id of the fragment, and the commit assigns another id; write the "
            "live rows with write_fragments"
        )
    position = bisect_left(existing, fragment.id, key=attrgetter("id"))
    if position == len(existing) or existing[position].id != fragment.id:
        return
    paths = {file.path for file in existing[position].files}
    if not paths.isdisjoint(file.path for file in fragment.files):
        raise InvalidInputError(
            f"fragment {fragment.id} is in the table already, and its rows would be in the table "
            "twice; write copies of the rows with write_fragments"
        )


def check_complete(fragment: Fragment, fields: Iterable[file_pb2.Field]) -> None:
    """Refuse a new fragment that lacks a field.

    pylance can neither filter nor change a table with files of version 0.1 and such a fragment, and
    its compaction gives the rows zeros. Another client can have added the field since the rows were
    written.

    - `fields`: The fields of the table if it has files of version 0.1, otherwise none.

    Raises CommitConflictError.
    """
    held = {number for file in fragment.files for number in file.fields} if fields else set()
    missing = [field.name for field in fields if field.id not in held]
    if missing:
        raise CommitConflictError(
            f"new rows lack the column {missing[0]!r}, which data files of version 0.1 must have; "
            "write the rows again with all columns",
            retryable=True,
        )


# --------------------------------------------------------------------------------------------------
# Fragments as JSON, in the form of pylance's `FragmentMetadata.to_json`.
#
# | key | value |
# | --- | --- |
# | `id`, `physical_rows` | numbers |
# | `files` | list of `path`, `fields`, `column_indices`, `file_size_bytes`, `base_id` and versions
#     |
# | `deletion_file` | `read_version`, `id`, `file_type`: `array` or `bitmap`; or null |
# | `row_id_meta` | `Inline`: bytes of the row ids as numbers, or null |
# | `created_at_version_meta`, `last_updated_at_version_meta` | `inline`, or null |
# | `overlays` | list of `data_file`, `committed_version`, and `offsets`: all, or by field |

_TYPES = {DeletionFileType.ARROW: "array", DeletionFileType.BITMAP: "bitmap"}
_LINEAGES = {
    "row_id_meta": (Lineage.ROW_IDS, "Inline"),
    "created_at_version_meta": (Lineage.CREATED, "inline"),
    "last_updated_at_version_meta": (Lineage.UPDATED, "inline"),
}


def fragment_to_json(proto: table_pb2.DataFragment, name: str) -> dict[str, Any]:
    """Return a fragment as a mapping that `json.dumps` takes.

    - `name`: Name of the fragment, for errors.

    Raises CorruptTableError. Raises UnsupportedFeatureError: the fragment has row ids or versions
    outside of the manifest.
    """
    result: dict[str, Any] = {
        "id": proto.id,
        "files": [_file(DataFile.from_proto(file)) for file in proto.files],
        "overlays": [
            _overlay(Overlay.from_proto(overlay), proto.physical_rows, name)
            for overlay in proto.overlays
        ],
        "physical_rows": proto.physical_rows,
        "deletion_file": None,
    }
    if proto.HasField("deletion_file"):
        deletions = DeletionFile.from_proto(proto.deletion_file)
        result["deletion_file"] = {
            "read_version": deletions.read_version,
            "id": deletions.id,
            "file_type": _TYPES[deletions.file_type],
            "num_deleted_rows": deletions.num_deleted_rows,
            "base_id": deletions.base_id,
        }
    for key, (lineage, form) in _LINEAGES.items():
        group, inline, _ = lineage.value
        stored = proto.WhichOneof(group)
        if stored not in (None, inline):
            raise UnsupportedFeatureError(
                f"{name}: {key} is not in the manifest, and has no JSON form"
            )
        result[key] = None if stored is None else {form: list(getattr(proto, inline))}
    return result


def _file(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes or None,
        "base_id": file.base_id,
    }


def _overlay(overlay: Overlay, num_rows: int, name: str) -> dict[str, Any]:
    rows = overlay.offsets
    # Few bytes can stand for billions of rows.
    if any(
        field and field.max() >= num_rows for field in (rows if isinstance(rows, list) else [rows])
    ):
        raise CorruptTableError(f"{name}: an overlay has a row that is out of range")
    return {
        "data_file": _file(overlay.data_file),
        "offsets": [list(field) for field in rows] if isinstance(rows, list) else list(rows),
        "committed_version": overlay.committed_version or None,
    }


def fragment_from_json(data: str | bytes | Mapping[str, Any]) -> table_pb2.DataFragment:
    """Return the message of a fragment, of a JSON text or of its mapping.

    Raises InvalidInputError: the text is not the form of `to_json`.
    """
    try:
        value = dict(data) if isinstance(data, Mapping) else json.loads(data)
        proto = table_pb2.DataFragment(
            id=value["id"],
            physical_rows=value["physical_rows"],
            files=[_data_file(file).to_proto() for file in value["files"]],
            overlays=[_overlay_of(overlay).to_proto() for overlay in value.get("overlays") or ()],
        )
        if value.get("deletion_file") is not None:
            proto.deletion_file.CopyFrom(_deletion_file(value["deletion_file"]).to_proto())
        for key, (lineage, form) in _LINEAGES.items():
            if value.get(key) is not None:
                setattr(proto, lineage.value[1], bytes(value[key][form]))
        for file in proto.files:
            # Checks the path and the field ids.
            DataFile.from_proto(file)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        CorruptTableError,
    ) as error:
        raise InvalidInputError(f"not the JSON form of a fragment: {error!r}") from None
    return proto


def _data_file(value: Mapping[str, Any]) -> DataFile:
    return DataFile(
        value["path"],
        tuple(value["fields"]),
        tuple(value["column_indices"]),
        value["file_major_version"],
        value["file_minor_version"],
        value.get("file_size_bytes") or 0,
        value.get("base_id"),
    )


def _overlay_of(value: Mapping[str, Any]) -> Overlay:
    rows = value["offsets"]
    by_field = rows and isinstance(rows[0], list)
    bitmaps = [BitMap(field) for field in (rows if by_field else [rows])]
    return Overlay(
        _data_file(value["data_file"]),
        tuple(bitmap.serialize() for bitmap in bitmaps),
        value.get("committed_version") or 0,
    )


def _deletion_file(value: Mapping[str, Any]) -> DeletionFile:
    types = {text: dtype for dtype, text in _TYPES.items()}
    return DeletionFile(
        file_type=types[value["file_type"]],
        read_version=value["read_version"],
        id=value["id"],
        num_deleted_rows=value.get("num_deleted_rows") or 0,
        base_id=value.get("base_id"),
    )
