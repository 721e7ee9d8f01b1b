"""The end of a version 0.1 file: the positions of its parts.

====================  ==============================================================================
part                  content
====================  ==============================================================================
pages                 see `lance_spark.file.v0_1`; no padding anywhere
page table            for each field id from the smallest to the greatest of the file, for each
                      batch: i64 position and i64 length of the page; zeros for structs and for
                      ids that are not in the file
statistics            pages and page table of a small table of its own, see `statistics`
dictionary values     one page for each dictionary
manifest              u32 length, `lance.table.Manifest` with nothing but the schema; optional
metadata              u32 length, `lance.file.Metadata`
footer                16 bytes: u64 position of the metadata, u16 0, u16 2 (or less), ``LANC``
====================  ==============================================================================

`Metadata.batch_offsets` are the first rows of all batches and the number of all rows;
`page_table_position` is the start of the page table; `manifest_position` is 0 if the file has no
manifest.

Releases before 0.5 (footer 0.1) wrote page tables from id 0 on even if the smallest id was greater,
with zeros before it. Only the lengths of the entries show this.

Specification: format/file of the legacy format; `protos/file.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError, Message

from lance_spark.errors import CorruptFileError
from lance_spark.file.footer import Tail
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.pages import FieldPages, Numbers
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.source import ByteRange

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_ENTRY = 16
#: Minor version up to which page tables may begin with id 0.
_LAST_FROM_ZERO = 1
_LISTS = ("list", "list.struct", "large_list", "large_list.struct")


@dataclass(frozen=True, slots=True, eq=False)
class LegacyFooter:
    """The content of the end of a file.

    - `bounds`: First row of each batch, and the number of all rows; never decreasing, from 0 on.
    - `schema`: None if the file has none.
    - `page_table`: Position of the page table.
    - `minor_version`: Minor version of the footer.
    """

    bounds: Numbers
    schema: Schema | None
    page_table: int
    statistics: file_pb2.Metadata.StatisticsMetadata | None
    minor_version: int = 2

    @property
    def num_batches(self) -> int:
        """Number of batches of the file."""
        return len(self.bounds) - 1


def read_legacy_footer(tail: Tail) -> LegacyFooter:
    """Parse footer, metadata and schema, with one read for each part that lies before the tail.

    Raises CorruptFileError: the file is truncated, or its parts contradict each other.
    """
    end = tail.size - _FOOTER.size
    if end < 0:
        raise CorruptFileError(
            f"{tail.name}: {tail.size} bytes are too few for a Lance file; restore it"
        )
    (raw,) = tail.read([ByteRange(end, _FOOTER.size)])
    position, _, minor, _ = _FOOTER.unpack(raw.tobytes())
    metadata = file_pb2.Metadata()
    _parse(tail, "metadata", position, end, metadata)
    schema = None
    if metadata.manifest_position:
        manifest = table_pb2.Manifest()
        _parse(tail, "manifest", metadata.manifest_position, end, manifest)
        try:
            schema = Schema.from_protos(manifest.fields, manifest.schema_metadata)
        except CorruptFileError as error:
            raise CorruptFileError(f"{tail.name}: {error}") from None
    bounds = np.array(metadata.batch_offsets or [0], np.int64)
    if bounds[0] != 0 or (np.diff(bounds) < 0).any():
        raise CorruptFileError(f"{tail.name}: its batches do not follow one another from row 0 on")
    statistics = metadata.statistics if metadata.HasField("statistics") else None
    return LegacyFooter(bounds, schema, metadata.page_table_position, statistics, minor)


def first_field_id(tail: Tail, footer: LegacyFooter, field_ids: Sequence[int] = ()) -> int:
    """Return the field id of the first entry in the page table.

    - `field_ids`: Ids of the fields in the file, from the manifest. Without them, or if some are
      negative because another file replaced the column, the schema in the file is used.
    """
    valid_ids = [id_ for id_ in field_ids if id_ >= 0]
    schema_ids = [node.id for node in footer.schema.walk()] if footer.schema else []
    first = min(
        valid_ids
        if valid_ids and (len(valid_ids) == len(field_ids) or not schema_ids)
        else schema_ids,
        default=0,
    )
    if first <= 0 or footer.minor_version > _LAST_FROM_ZERO:
        return max(first, 0)
    return first if _has_entries(tail, footer, first) or not _has_entries(tail, footer, 0) else 0


def _has_entries(tail: Tail, footer: LegacyFooter, first_id: int) -> bool:
    """Return whether the entries of a field have the right lengths if the page table starts with
    `first_id`.
    """
    field = next(_of_rows(footer.schema.fields if footer.schema else ()), None)
    if field is None:
        return True
    try:
        pages = read_pages(tail, footer.page_table, first_id, footer.num_batches, [field.id])
    except CorruptFileError:
        return False
    extra = field.logical_type in _LISTS
    return np.array_equal(pages[field.id].lengths, np.diff(footer.bounds) + extra)


def _of_rows(fields: Iterable[Field]) -> Iterator[Field]:
    for field in fields:
        if field.logical_type == "struct":
            yield from _of_rows(field.children)
        else:
            yield field


def read_pages(
    tail: Tail, table: int, first_id: int, num_batches: int, ids: Iterable[int]
) -> dict[int, FieldPages]:
    """Read the entries of some fields in a page table, with at most one read.

    - `table`: Position of the page table.
    - `first_id`: Field id of the first entry.

    Raises CorruptFileError: the entries would lie outside the file, or a field before the first
    one.
    """
    unique_ids = list(dict.fromkeys(ids))
    width = num_batches * _ENTRY
    ranges = [ByteRange(table + (id_ - first_id) * width, width) for id_ in unique_ids]
    for id_, (offset, length) in zip(unique_ids, ranges, strict=True):
        if id_ < first_id or offset + length > tail.size - _FOOTER.size:
            raise CorruptFileError(
                f"{tail.name}: the page table (from byte {table} on, {num_batches} batches, first "
                f"field {first_id}) has no entries for field {id_}; the file of {tail.size} bytes "
                "is truncated or corrupt"
            )
    result = {}
    for id_, raw in zip(unique_ids, tail.read(ranges), strict=True):
        # Tables are not aligned, but wider views need alignment.
        entries = raw.copy().view("<i8").reshape(num_batches, 2)
        result[id_] = FieldPages(entries[:, 0], entries[:, 1])
    return result


def _parse(tail: Tail, label: str, position: int, end: int, message: Message) -> None:
    if position > end - _LENGTH.size:
        raise CorruptFileError(
            f"{tail.name}: its {label} would begin at byte {position} of {tail.size}; it is "
            "truncated or corrupt"
        )
    (raw,) = tail.read([ByteRange(position, _LENGTH.size)])
    (length,) = _LENGTH.unpack(raw.tobytes())
    start = position + _LENGTH.size
    if length > end - start:
        raise CorruptFileError(
            f"{tail.name}: its {label} would end at byte {start + length} of {tail.size}; it is "
            "truncated or corrupt"
        )
    (data,) = tail.read([ByteRange(start, length)])
    try:
        message.ParseFromString(data.tobytes())
    except DecodeError as error:
        raise CorruptFileError(f"{tail.name}: its {label} is damaged: {error}") from None
