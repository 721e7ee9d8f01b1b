"""Index sections: the indexes of a version and the fragments that they cover.

An index section is the `IndexSection` message of a manifest (`ManifestBuilder.indices`). An index
consists of one or more segments, which are messages `IndexMetadata` with the same name. The fields
that operations use:

| field | content |
| --- | --- |
| `uuid` | id of the segment, and name of its folder below _indices/ |
| `fields` | ids of the indexed fields |
| `fragment_bitmap` | ids of the covered fragments, a 32-bit Roaring bitmap; empty bytes: unknown |
| `dataset_version` | the version on which the segment was built |
| `index_details` | `Any`; the last part of its type URL is the type of the index |

Readers search fragments outside of the bitmap without the index, and ignore index results about
fragments that are not in the table. A bitmap with too few fragments therefore costs time, and one
with too many gives wrong results. If the table has a fragment reuse index (`fragment_reuse`),
removed fragments in a bitmap represent the fragments that their rows moved to.

`lance_spark.table.indexes.updates` has the changes that operations make.
"""

from __future__ import annotations

import datetime
import itertools
import operator
import uuid
import uuid as uuid_module
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.indexes import registry
from lance_spark.indexes.registry import IndexType
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.fragments.files import parse_bitmap
from lance_spark.table.fragments.fragment import MAX_ID
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.manifest.manifest import Manifest

FRAGMENT_REUSE = fragment_reuse.NAME
MEM_WAL = "__lance_mem_wal"
#: A bitmap of some hundred kilobytes can hold four billion numbers: this bound keeps loops over
#: fragments short.
_MAX_FRAGMENTS = 2**23
#: Names of segments that hold records of the table instead of an index of a column.
SYSTEM_NAMES = frozenset({FRAGMENT_REUSE, MEM_WAL})

#: Ids that `repr` shows.
_SHOWN = 20


def section_of(manifest: Manifest) -> table_pb2.IndexSection:
    """Parse and check the index section of a version; it is empty if the version has no indexes.

    Raises CorruptTableError: the section cannot be parsed, or segments of one index have different
    fields.
    """
    section = read_section(manifest)
    check_names(section, manifest.name)
    return section


def read_section(manifest: Manifest) -> table_pb2.IndexSection:
    """Parse the index section of a version, without the check of names (`check_names`).

    Readers use single segments, so they need no consistent names. Raises CorruptTableError.
    """
    section = parse_section(manifest.index_section, manifest.name)
    check_section(section, manifest.name)
    return section


def may_have_mem_wal(data: bytes | None) -> bool:
    """Return whether the bytes of an index section can have a MemWAL. Does not parse them."""
    return data is not None and MEM_WAL.encode() in data


def has_mem_wal(section: table_pb2.IndexSection) -> bool:
    """Return whether an index section has a MemWAL."""
    return any(index.name == MEM_WAL for index in section.indices)


def parse_section(data: bytes | None, name: str) -> table_pb2.IndexSection:
    """Parse an index section without checks; errors call its manifest `name`.

    Raises CorruptTableError.
    """
    section = table_pb2.IndexSection()
    try:
        section.ParseFromString(data or b"")
    except DecodeError as error:
        raise CorruptTableError(f"{name}: the index section cannot be parsed: {error}") from None
    return section


def check_names(section: table_pb2.IndexSection, name: str) -> None:
    """Raise an error if segments of the same name, which form one index, have different fields.

    - `name`: Name of the manifest, for errors.

    Raises CorruptTableError.
    """
    fields_of: dict[str, list[int]] = {}
    for index in section.indices:
        fields = list(index.fields)
        if fields_of.setdefault(index.name, fields) != fields and not is_system(index):
            raise CorruptTableError(
                f"{name}: index {index.name!r} has segments of different fields: "
                f"{fields_of[index.name]} and {fields}; restore an older version, or overwrite "
                "the table"
            )


def check_section(section: table_pb2.IndexSection, name: str) -> None:
    """Raise an error if a uuid or bitmap cannot be parsed, or covers too many fragments.

    - `name`: Name of the manifest, for errors.

    Raises CorruptTableError.
    """
    for index in section.indices:
        try:
            uuid_of(index)
            bitmap = fragment_bitmap(index)
        except CorruptTableError as error:
            raise CorruptTableError(f"{name}: {error}") from None
        if bitmap is not None and len(bitmap) > _MAX_FRAGMENTS:
            raise CorruptTableError(
                f"{name}: index {index.name!r} covers {len(bitmap)} fragments, the maximum is "
                f"{_MAX_FRAGMENTS}"
            )


def uuid_of(index: table_pb2.IndexMetadata) -> str:
    """Return the uuid of a segment as text, which is the name of its folder below _indices/.

    Raises CorruptTableError.
    """
    data = index.uuid.uuid
    if len(data) != 16:
        raise CorruptTableError(f"the uuid of index {index.name!r} has {len(data)} bytes, not 16")
    return str(uuid.UUID(bytes=data))


def type_of_index(index: table_pb2.IndexMetadata) -> str:
    """Return the type of an index, such as ``BTREE``; the name in its type URL, if unknown."""
    return registry.name_of(index.index_details.type_url)


def has_known_version(index: table_pb2.IndexMetadata) -> bool:
    """Return whether this release reads the version of a segment, if it knows the type at all."""
    index_type = _type(type_of_index(index))
    if index_type is None or not index_type.versions:
        return True
    return index.index_version in index_type.versions


def names_rows(index: table_pb2.IndexMetadata) -> bool:
    """Return whether this release knows how the files of a segment name rows.

    The files of other types and versions may have addresses, also in tables with stable row ids:
    those of `FM` indexes do.
    """
    index_type = _type(type_of_index(index))
    return index_type is not None and index.index_version in index_type.versions


def _type(name: str) -> IndexType | None:
    return registry.TYPES.get(name)


def type_of_files(index: table_pb2.IndexMetadata) -> str:
    """Return the type that the files of an index have: for a JSON index, that of its values."""
    name = type_of_index(index)
    index_type = _type(name)
    if index_type is None or index_type.documents is None:
        return name
    # Imported late: few tables have such an index.
    from lance_spark.proto import index_pb2

    target = table_pb2.IndexMetadata()
    with suppress(DecodeError):
        details = index_pb2.JsonIndexDetails.FromString(index.index_details.value)
        target.index_details.CopyFrom(details.target_details)
    return type_of_index(target)


def is_usable_for(index: table_pb2.IndexMetadata, part: str) -> bool:
    """Return whether an index of one column has a part of the registry, and a known version."""
    index_type = _type(type_of_index(index))
    return (
        index_type is not None
        and getattr(index_type, part) is not None
        and len(index.fields) == 1
        and has_known_version(index)
    )


def is_system(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment holds records of the table instead of an index of a column."""
    return index.name in SYSTEM_NAMES


def fragment_bitmap(index: table_pb2.IndexMetadata) -> BitMap | None:
    """Return the ids of the fragments that a segment covers; None if they are unknown.

    Raises CorruptTableError.
    """
    if not index.fragment_bitmap:
        return None
    return parse_bitmap(index.fragment_bitmap, f"the fragments of index {index.name!r}")


def set_fragment_bitmap(index: table_pb2.IndexMetadata, bitmap: BitMap | None) -> None:
    """Set the ids of the fragments that a segment covers; None if they are unknown."""
    index.fragment_bitmap = b"" if bitmap is None else bitmap.serialize()


def holds_addresses(index: table_pb2.IndexMetadata, stable_row_ids: bool) -> bool:
    """Return whether a segment holds row addresses, which become wrong when rows move.

    Without stable row ids, all segments do. With stable row ids, zone maps, Bloom filters and newer
    BTREE indexes do.
    """
    index_type = _type(type_of_files(index))
    if not stable_row_ids:
        return True
    if index_type is None:
        return False
    since = index_type.addresses_since
    return index_type.is_zoned or (since is not None and index.index_version >= since)


def is_zoned(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment describes zones as a whole, not single rows."""
    index_type = _type(type_of_files(index))
    return index_type is not None and index_type.is_zoned


def may_lack_rows(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment may lack rows of its fragments, as an early release wrote it.

    Until pylance 0.29, compactions lost rows of indexes of values, or gave them wrong addresses.
    Releases since 0.31 record when a segment was created, and newer ones its files.
    """
    return not (index.HasField("created_at") or index.files)


def related_fields(fields: Iterable[file_pb2.Field], ids: Collection[int]) -> frozenset[int]:
    """Return the ids of fields together with the ids of all their ancestors and descendants.

    A data file names a packed struct by the struct alone, whereas an index on a child names the
    child.
    """
    parents = {field.id: field.parent_id for field in fields}
    ancestors: set[int] = set()
    for number in ids:
        seen: set[int] = set()
        parent = parents.get(number, -1)
        while parent >= 0 and parent not in seen:
            seen.add(parent)
            parent = parents.get(parent, -1)
        ancestors |= seen
    # Fields are ordered so that parents come before their children.
    descendants = set(ids)
    for number, parent in parents.items():
        if parent in descendants:
            descendants.add(number)
    return frozenset(ancestors | descendants)


class FragmentIds(Set[int]):
    """An immutable set of fragment ids. It is equal to a set of the same numbers.

    It is held as a Roaring bitmap, as an index can cover millions of fragments.

    Iteration is in increasing order. The operators ``&``, ``|``, ``-`` and ``^`` return a
    `frozenset`.

    - `ids`: A bitmap is not copied.
    """

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int] | BitMap = ()) -> None:
        self._ids = ids if isinstance(ids, BitMap) else BitMap(ids)

    @classmethod
    def _from_iterable(cls, numbers: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        # The other operand may contain numbers that are not fragment ids.
        return frozenset(numbers)

    def __contains__(self, value: object) -> bool:
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return 0 <= number <= MAX_ID and number in self._ids

    @property
    def bitmap(self) -> BitMap:
        """The ids, which must not be changed."""
        return self._ids

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __hash__(self) -> int:
        # Equal to the hash of a frozenset of the same numbers.
        return self._hash()

    def __repr__(self) -> str:
        shown = ", ".join(str(fragment_id) for fragment_id in itertools.islice(self._ids, _SHOWN))
        suffix = f", ... {len(self)} in all" if len(self) > _SHOWN else ""
        return f"{{{shown}{suffix}}}" if self else "FragmentIds()"


# --------------------------------------------------------------------------------------------------
# `Index`: a segment of an index as programs hand it on that build indexes in several processes.
#
# The names are those of pylance, whose objects are accepted, too.


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a segment, by its path below the folder of the segment."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """A segment of an index.

    Attributes
    ----------
    uuid : str
    name : str
        Name of the index.
    fields : list of int
        Ids of the indexed fields.
    dataset_version : int
        The version that it was built on.
    fragment_ids : iterable of int
        The fragments that it covers.
    index_version : int
    created_at : datetime, optional
    base_id : int, optional
        The base path that has the files.
    files : list of IndexFile, optional
    index_details : (str, bytes), optional
        Type and bytes of the message that describes the index.
    covering_fields : list of int
        Must be empty.
    """

    uuid: str
    name: str
    fields: Sequence[int]
    dataset_version: int
    fragment_ids: Iterable[int]
    index_version: int
    created_at: datetime.datetime | None = None
    base_id: int | None = None
    files: Sequence[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: Sequence[int] = field(default_factory=list)


def index_of(segment: table_pb2.IndexMetadata) -> Index:
    """Return a segment by pylance's names. Raises CorruptTableError."""
    created = None
    if segment.HasField("created_at"):
        created = datetime.datetime.fromtimestamp(segment.created_at / 1000, datetime.UTC)
    return Index(
        uuid=uuid_of(segment),
        name=segment.name,
        fields=list(segment.fields),
        dataset_version=segment.dataset_version,
        fragment_ids=fragment_bitmap(segment) or BitMap(),
        index_version=segment.index_version,
        created_at=created,
        base_id=segment.base_id if segment.HasField("base_id") else None,
        files=[IndexFile(file.path, file.size_bytes) for file in segment.files],
        index_details=(segment.index_details.type_url, segment.index_details.value),
    )


def segment_of(index: Any) -> table_pb2.IndexMetadata:
    """Return the message of an `Index`, of this package or of pylance.

    Raises InvalidInputError: it is not an index, or its attributes have other types.
    """
    try:
        message = table_pb2.IndexMetadata(
            fields=list(index.fields),
            name=index.name,
            dataset_version=index.dataset_version,
            index_version=index.index_version,
            files=[
                table_pb2.IndexFile(path=file.path, size_bytes=file.size_bytes)
                for file in index.files or ()
            ],
        )
        message.uuid.uuid = uuid_module.UUID(index.uuid).bytes
        set_fragment_bitmap(message, BitMap(index.fragment_ids))
        if index.created_at is not None:
            message.created_at = int(index.created_at.timestamp() * 1000)
        if index.base_id is not None:
            message.base_id = index.base_id
        if index.index_details is not None:
            message.index_details.type_url, message.index_details.value = index.index_details
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{type(index).__name__} is not an Index of create_index_uncommitted: {error}"
        ) from None
    if getattr(index, "covering_fields", None):
        raise InvalidInputError(f"index {message.name!r}: covering_fields must be empty")
    return message
