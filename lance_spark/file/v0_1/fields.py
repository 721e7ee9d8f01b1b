"""Fields of file version 0.1: pages, lists, and the number of values in each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import fixed_width, is_variable
from lance_spark.encoding.meta import FieldReader, StructReader
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import ranges
from lance_spark.errors import CorruptFileError, LanceError, UnsupportedTypeError
from lance_spark.file.v0_1.pages import (
    DictionaryReader,
    EncodedPages,
    FieldPages,
    NullReader,
    Numbers,
    PagesReader,
    PlainReader,
    VarBinaryReader,
    bounds_of,
    check_values,
    encode_plain,
    encode_var_binary,
    plain_bits,
    read_extents,
    spans_of,
)
from lance_spark.storage.source import ByteRange, ReadPlan

# --------------------------------------------------------------------------------------------------
# Lists: plainly encoded offsets, and the items in pages of their own.
#
# A page of n lists holds n + 1 offsets, int32 of lists and int64 of large lists: list i is the
# items of the *same batch* from offset i to offset i + 1. The page's length is n + 1. The item's
# field has one page per batch with the items of that batch.
#
# Validity is not stored: a null list is read as an empty list. pylance reads the same.
#
# Specification: format/file/encoding of the legacy format, "Lists".


class ListPagesReader(PagesReader):
    """Reads lists or large lists; see `PagesReader`.

    - `item_bounds`: First item of each batch, and the number of all items.
    """

    def __init__(
        self,
        dtype: pa.DataType,
        pages: FieldPages,
        bounds: Numbers,
        items: FieldReader,
        item_bounds: Numbers,
        size: int,
    ) -> None:
        self._offset_dtype = np.int64 if pat.is_large_list(dtype) else np.int32
        self._items = items
        self._item_bounds = item_bounds
        super().__init__(dtype, pages, bounds, size, np.dtype(self._offset_dtype).itemsize * 8)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        extents = yield from read_extents(self._pages, spans, self._offset_dtype)
        num_items = np.diff(self._item_bounds)[spans.batch]
        if (extents.stops > num_items).any():
            position = int(np.argmax(extents.stops > num_items))
            raise CorruptFileError(
                f"batch {int(spans.batch[position])}: a list ends at item "
                f"{int(extents.stops[position])} of {int(num_items[position])}"
            )
        self._check_total(len(rows), extents.num_items, "items", self._offset_dtype)
        items = yield from self._items.read(
            self._item_rows(spans.batch, extents.starts, extents.stops)
        )
        buffers = [None, pa.py_buffer(extents.offsets(self._offset_dtype))]
        return pa.Array.from_buffers(self._dtype, len(rows), buffers, children=[items])

    def _item_rows(self, batch: Numbers, starts: Numbers, stops: Numbers) -> Rows:
        starts, stops = starts + self._item_bounds[batch], stops + self._item_bounds[batch]
        non_empty = stops > starts
        starts, stops = starts[non_empty], stops[non_empty]
        if not len(starts):
            return range(0)
        if _has_no_bytes(self._dtype.value_type):
            # These items have no bytes, and a corrupt page may claim any number of them, so no
            # memory is allocated for each.
            return range(int((stops - starts).sum()))
        if (starts[1:] == stops[:-1]).all():
            return range(int(starts[0]), int(stops[-1]))
        return ranges(starts, stops - starts)


def encode_offsets(
    array: pa.Array, cuts: Numbers, start: int
) -> tuple[EncodedPages, pa.Array, Numbers]:
    """Encode the offsets of lists.

    - `array`: Lists or large lists without nulls.
    - `cuts`: First list of each page, and the number of all lists.
    - `start`: Position of the first page in the file.

    Returns the pages, the items of all lists, and the first item of each page with the number of
    all items.
    """
    dtype = np.dtype(np.int64 if pat.is_large_list(array.type) else np.int32)
    offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, dtype)
    entries = np.diff(cuts) + 1
    firsts = offsets[cuts]
    stored = offsets[ranges(cuts[:-1], entries)] - np.repeat(firsts[:-1], entries)
    data = stored.astype(dtype.newbyteorder("<"), copy=False).view(np.uint8)
    positions = start + (np.cumsum(entries) - entries) * dtype.itemsize
    items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    item_cuts = (firsts - firsts[0]).astype(np.int64)
    return EncodedPages(FieldPages(positions, entries), [data]), items, item_cuts


def _has_no_bytes(dtype: pa.DataType) -> bool:
    if pat.is_struct(dtype):
        return all(_has_no_bytes(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(pat.is_null(dtype))


# --------------------------------------------------------------------------------------------------
# Fields of file version 0.1: their pages, and their number of values in each batch.
#
# ==================================  ==============================================================
# field                               pages ==================================
# ============================================================== struct
# none: zeros in the page table; its children have as many values;
#                                     a null is read as the values that the children had there, as
#                                     pylance does
# list, large list                    offsets, one more than lists; the child has the items
# dictionary                          positions; the values are shared by all batches
# string, binary, large ones          offsets to bytes
# null                                none, though the page table has a length
# fixed-size list, all others         values of a fixed width; nothing below has pages
# ==================================  ==============================================================
#
# A writer encodes the rows of several batches together: `cuts` has the bounds of the batches. The
# pages of a field follow each other, and the fields are in depth-first order, so a scan of few
# columns reads few ranges.
#
# Specification: format/file of the legacy format.

#: Number of pages of strings whose bytes are read, to estimate the bytes of the others.
_SAMPLE = 16
_WAY_OUT = "use data storage version 2.2"


@dataclass(frozen=True, slots=True, eq=False)
class FieldNode:
    """A field, and its pages in a file.

    - `field`: Its type selects what to read: a struct may lack children that the file has.
    - `pages`: None for a struct.
    - `children`: The children of a struct, in the order of its type; the items of a list; empty for
      other types.
    - `dictionary`: The only page of the values of a dictionary.
    """

    field: pa.Field
    pages: FieldPages | None = None
    children: tuple[FieldNode, ...] = ()
    dictionary: FieldPages | None = None


def has_pages(dtype: pa.DataType) -> bool:
    """Return whether the entries of such a field in the page table have a meaning."""
    return not pat.is_struct(dtype)


def open_field(node: FieldNode, counts: Numbers, size: int) -> FieldReader:
    """Return the reader of a top-level field.

    - `counts`: Rows of each batch.
    - `size`: Size of the file in bytes.

    Raises CorruptFileError: the pages lie outside the file, or have other numbers of values than
    the batches. Raises UnsupportedTypeError: file version 0.1 cannot store the type.
    """
    reader, _ = _open(node, node.field.name, counts, size)
    return reader


def _open(
    node: FieldNode, path: str, counts: Numbers | None, size: int
) -> tuple[FieldReader, Numbers]:
    # Below a list, only the pages know the number of values of a batch: `counts` is None before the
    # first field with pages.
    dtype = node.field.type
    if pat.is_struct(dtype):
        return _open_struct(node, path, counts, size)
    pages = node.pages
    if pages is None:
        raise CorruptFileError(f"field {path!r} has no pages")
    if pat.is_null(dtype):
        return NullReader(), pages.lengths if counts is None else counts
    is_list = pat.is_list(dtype) or pat.is_large_list(dtype)
    num_values = pages.lengths - 1 if is_list else pages.lengths
    if counts is not None and not np.array_equal(num_values, counts):
        batch = int(np.argmax(num_values != counts))
        raise CorruptFileError(
            f"field {path!r} has {int(num_values[batch])} values in batch {batch} where "
            f"{int(counts[batch])} are expected"
        )
    items = None
    if is_list:
        (child,) = node.children
        items = _open(child, f"{path}.{child.field.name}", None, size)
    try:
        return _open_pages(node, pages, num_values, items, size), num_values
    except LanceError as error:
        raise type(error)(f"field {path!r}: {error}") from None


def _open_pages(
    node: FieldNode,
    pages: FieldPages,
    counts: Numbers,
    items: tuple[FieldReader, Numbers] | None,
    size: int,
) -> FieldReader:
    dtype = node.field.type
    bounds = bounds_of(counts)
    if items is not None:
        return ListPagesReader(dtype, pages, bounds, items[0], bounds_of(items[1]), size)
    if is_variable(dtype):
        return VarBinaryReader(dtype, node.field.nullable, pages, bounds, size)
    if pat.is_dictionary(dtype):
        if node.dictionary is None:
            raise CorruptFileError("the schema does not say where its dictionary is")
        return DictionaryReader(dtype, pages, bounds, node.dictionary, size)
    return PlainReader(dtype, pages, bounds, size)


def _open_struct(
    node: FieldNode, path: str, counts: Numbers | None, size: int
) -> tuple[FieldReader, Numbers]:
    readers = []
    for child in node.children:
        reader, counts = _open(child, f"{path}.{child.field.name}", counts, size)
        readers.append(reader)
    if counts is None:
        raise UnsupportedTypeError(
            f"field {path!r}: structs without fields cannot be read from lists"
        )
    return StructReader(node.field.type, readers), counts


def stored_bytes(node: FieldNode, size: int) -> ReadPlan[int]:
    """Plan the estimate of the stored bytes of a field and all fields below it.

    The page table does not have the number of bytes of strings: it is estimated from some of their
    pages.

    - `node`: Not checked; damaged pages count as 0 bytes.
    - `size`: Of the file in bytes.
    """
    total = 0
    for child in node.children:
        total += yield from stored_bytes(child, size)
    pages, dtype = node.pages, node.field.type
    if pages is None or not len(pages.lengths) or pat.is_null(dtype):
        return total
    values = int(np.clip(pages.lengths, 0, 8 * size).sum())
    if is_variable(dtype):
        return total + 8 * values + (yield from _value_bytes(pages, values, size))
    return total + int(values * _bits(dtype)) // 8


def _bits(dtype: pa.DataType) -> int:
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return 64 if pat.is_large_list(dtype) else 32
    if pat.is_dictionary(dtype):
        return fixed_width(dtype.index_type)
    if pat.is_fixed_size_list(dtype):
        return _bits(dtype.value_type) * int(dtype.list_size)
    return fixed_width(dtype)


def _value_bytes(pages: FieldPages, values: int, size: int) -> ReadPlan[int]:
    # Writers put the bytes of a page directly before its offsets, so the first offset reveals their
    # number.
    non_empty = np.flatnonzero(
        (pages.lengths > 0) & (pages.positions >= 0) & (pages.positions <= size - 8)
    )
    if not len(non_empty):
        return 0
    sample = non_empty[
        np.linspace(0, len(non_empty) - 1, min(_SAMPLE, len(non_empty))).astype(np.int64)
    ]
    firsts = yield [ByteRange(int(position), 8) for position in pages.positions[sample]]
    begins = np.array([int.from_bytes(first.tobytes(), "little") for first in firsts], np.uint64)
    sizes = np.clip(pages.positions[sample] - np.minimum(begins, size).astype(np.int64), 0, size)
    return int(sizes.sum() / pages.lengths[sample].sum() * values)


def encode_field(array: pa.Array, cuts: Numbers, start: int) -> Iterator[EncodedPages]:
    """Yield the pages of a field and of each field below it, in the order of the file.

    - `array`: Only strings, bytes and the null type may have nulls; see `lossless`.
    - `cuts`: First row of each batch, and the number of all rows.
    - `start`: Position of the first page in the file.

    Yields one for each field; a struct has pages of zeros and no buffers.
    """
    dtype = array.type
    if pat.is_struct(dtype):
        none = np.zeros(len(cuts) - 1, np.int64)
        yield EncodedPages(FieldPages(none, none))
        for index in range(dtype.num_fields):
            for encoded in encode_field(array.field(index), cuts, start):
                start += encoded.size
                yield encoded
    elif pat.is_list(dtype) or pat.is_large_list(dtype):
        encoded, items, item_cuts = encode_offsets(array, cuts, start)
        yield encoded
        yield from encode_field(items, item_cuts, start + encoded.size)
    elif is_variable(dtype):
        yield encode_var_binary(array, cuts, start)
    elif pat.is_dictionary(dtype):
        yield encode_plain(array.indices, cuts, start)
    else:
        yield encode_plain(array, cuts, start)


def check_field(field: pa.Field, path: str = "") -> None:
    """Raise UnsupportedTypeError if file version 0.1 cannot store the field."""
    dtype = field.type
    path = f"{path}.{field.name}" if path else field.name
    if pat.is_null(dtype) or is_variable(dtype):
        return
    if pat.is_struct(dtype):
        if not dtype.num_fields:
            raise UnsupportedTypeError(
                f"field {path!r}: files of version 0.1 have no structs without fields; {_WAY_OUT}"
            )
        for index in range(dtype.num_fields):
            check_field(dtype.field(index), path)
        return
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        check_field(dtype.value_field, path)
        return
    try:
        if pat.is_dictionary(dtype):
            check_values(dtype.value_type)
        else:
            plain_bits(dtype)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}; {_WAY_OUT}") from None
