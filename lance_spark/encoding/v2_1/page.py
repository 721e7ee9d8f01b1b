"""Basis of all page layouts of file versions 2.1 and 2.2: the rows that a page returns, rows among
the entries of a page with lists, and byte ranges that are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.compression import claimed_size, scheme_of
from lance_spark.encoding.levels import (
    IndexArray,
    Layer,
    LayerSlots,
    Levels,
    Step,
    max_repetition,
    unravel,
)
from lance_spark.encoding.meta import PageLocation, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import ranges
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

#: Descriptions up to this many bytes recur in many pages, so their parsed form is cached. Longer
#: descriptions have symbol tables of FSST.
_SHORT = 512
#: Ranges that are closer than this are read as one: the bytes between are on the same page of
#: memory, or the next. Remote stores merge ranges at larger distances themselves.
NEAR = 4 * 1024
EntryIndex = slice | IndexArray


@dataclass(frozen=True, slots=True)
class PageRows:
    """Whole rows of one page.

    - `values`: Values of the leaf's type, one per visible entry. Their nulls are in `levels`.
    """

    values: pa.Array
    levels: Levels

    def slots(self, steps: Sequence[Step]) -> list[LayerSlots]:
        """Return the slots of every layer, leaf first; see `unravel`."""
        return unravel(self.levels, steps)


class SlottedRows(Protocol):
    """Whole rows of one page: values, one per slot of the leaf, and the slots of all layers."""

    @property
    def values(self) -> pa.Array: ...

    def slots(self, steps: Sequence[Step]) -> list[LayerSlots]:
        """Return the slots of every layer, leaf first; `steps` are the steps of the leaf."""
        ...


class PageReader(Protocol):
    """Reads rows of one page of any layout; keeps decoded parts of the page for the next read.

    A page that can stay open has a property `kept_bytes`: the bytes of these parts.
    """

    def read(self, rows: Rows) -> ReadPlan[SlottedRows]:
        """Plan the reading of some rows (at least one, all inside the page)."""
        ...


def parse_layout(encoding: bytes) -> pb.PageLayout:
    """Return the parsed description of a page. Equal bytes share one message: do not change it.

    Raises google.protobuf.message.DecodeError.
    """
    if len(encoding) <= _SHORT:
        return _parse_short(encoding)
    message: pb.PageLayout = pb.PageLayout.FromString(encoding)
    return message


@lru_cache(maxsize=256)
def _parse_short(encoding: bytes) -> pb.PageLayout:
    message: pb.PageLayout = pb.PageLayout.FromString(encoding)
    return message


def check_layers(layers: tuple[Layer, ...], leaf: Leaf) -> tuple[Layer, ...]:
    """Return the layers of a page; raise CorruptFileError if they do not match the column type."""
    if [layer.is_list for layer in layers] != [step.is_list for step in leaf.steps]:
        names = ", ".join(layer.name for layer in layers)
        raise CorruptFileError(f"layers {names} do not fit a column of type {leaf.field.type}")
    return layers


@contextmanager
def errors_at(location: PageLocation) -> Iterator[None]:
    """Name the page in errors raised inside.

    Decoders check descriptions before they use them. If numpy or Arrow refuses a page nevertheless,
    it is corrupt too.
    """
    try:
        yield
    except (CorruptFileError, UnsupportedEncodingError) as error:
        raise type(error)(f"{location}: {error}") from error
    except (ValueError, IndexError, OverflowError, pa.ArrowException) as error:
        raise CorruptFileError(f"{location}: cannot be decoded: {error}") from error


def runs_of(numbers: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the starts and ends of runs of consecutive numbers in a strictly increasing array."""
    edges = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2, append=numbers[-1:] + 2) != 1)
    return edges[:-1], edges[1:]


def joined(buffers: Sequence[Bytes]) -> Bytes:
    """Return the bytes of several buffers as one array; a single buffer is not copied."""
    return buffers[0] if len(buffers) == 1 else np.concatenate(buffers)


def placed(buffers: Sequence[Bytes]) -> tuple[Bytes, IndexArray]:
    """Return bytes that have several buffers, and where each starts.

    Parts of one array, as a file in memory, are not copied if they start at multiples of 8.
    """
    whole = buffers[0].base
    if (
        isinstance(whole, np.ndarray)
        and whole.dtype == np.uint8
        and whole.ndim == 1
        and whole.flags.c_contiguous
        and all(buffer.base is whole for buffer in buffers)
    ):
        addresses = [buffer.__array_interface__["data"][0] for buffer in buffers]
        starts = np.array(addresses, np.int64) - whole.__array_interface__["data"][0]
        if not (starts % 8).any():
            return whole, starts
    ends = np.cumsum([len(buffer) for buffer in buffers])
    return joined(buffers), np.append(0, ends[:-1])


def little_endian(data: Bytes, width: int) -> IndexArray:
    """Return unsigned little-endian numbers of `width` bytes as int64.

    Raises CorruptFileError: a number does not fit.
    """
    numbers = data.view(f"<u{width}")
    if width == 8 and int(numbers.max(initial=0)) > np.iinfo(np.int64).max:
        raise CorruptFileError("a 64-bit number is out of bounds")
    return numbers.astype(np.int64)


def buffer_at(meta: PageMeta, index: int) -> ByteRange:
    """Return a buffer of the page; raise CorruptFileError if the page has no such buffer."""
    if index >= len(meta.buffers):
        raise CorruptFileError(f"buffer {index} is missing: the page has {len(meta.buffers)}")
    return meta.buffers[index]


class Fetched(NamedTuple):
    """Bytes that were read, and the start and end of each range in them."""

    data: Bytes
    starts: IndexArray
    ends: IndexArray


def fetch(base: int, starts: IndexArray, ends: IndexArray) -> ReadPlan[Fetched]:
    """Plan the reading of at least one range, ``base + starts[i]`` to ``base + ends[i]``; neither
    starts nor ends decrease.
    """
    is_gap = starts[1:] - ends[:-1] > NEAR
    group = np.concatenate([[0], np.cumsum(is_gap)])
    heads = np.flatnonzero(np.append(True, is_gap))
    tails = np.append(heads[1:], len(starts)) - 1
    firsts, lasts = starts[heads], ends[tails]
    sizes = lasts - firsts
    byte_offsets = (firsts + base).tolist()
    buffers = yield list(map(ByteRange, byte_offsets, sizes.tolist()))
    shift = (np.cumsum(sizes) - sizes - firsts)[group]
    return Fetched(joined(buffers), starts + shift, ends + shift)


def fetch_rows(base: int, stride: int, rows: Rows, length: int) -> ReadPlan[Fetched]:
    """Plan the reading of `length` bytes for each of some rows; row ``r`` begins at byte ``base + r
    * stride``.
    """
    if isinstance(rows, range):
        numbers = np.arange(len(rows)) * stride
        size = (len(rows) - 1) * stride + length
        (data,) = yield [ByteRange(base + rows.start * stride, size)]
        return Fetched(data, numbers, numbers + length)
    return (yield from fetch(base, rows * stride, rows * stride + length))


def levels_at(levels: Levels, entries: EntryIndex) -> Levels:
    """Return the levels of some entries, in that order."""
    repetition, definition = levels.repetition, levels.definition
    count = entries.stop - entries.start if isinstance(entries, slice) else len(entries)
    return Levels(
        levels.layers,
        count,
        None if repetition is None else repetition[entries],
        None if definition is None else definition[entries],
    )


def starts_rows(levels: Levels, count: int) -> bool:
    """Return whether levels describe exactly this number of rows."""
    assert levels.repetition is not None
    begins = levels.repetition == max_repetition(levels.layers)
    return int(np.count_nonzero(begins)) == count and bool(begins[0])


def values_of(levels: Levels, entries: EntryIndex) -> EntryIndex:
    """Return which values belong to some entries: each visible entry of a page has a value."""
    visible = levels.visible()
    if visible is None:
        return entries
    if isinstance(entries, slice):
        before = int(np.count_nonzero(visible[: entries.start]))
        return slice(before, before + int(np.count_nonzero(visible[entries])))
    order: IndexArray = np.cumsum(visible) - 1
    return order[entries[visible[entries]]]


def entries_of(
    levels: Levels,
    rows: Rows,
    run_ends: IndexArray | None = None,
    first_rows: IndexArray | None = None,
) -> EntryIndex:
    """Return which entries belong to some rows.

    - `levels`: With repetition levels.
    - `rows`: At least one.
    - `run_ends`: End of each run of entries, if the levels were joined from runs and rows are
      missing between them. Only the requested rows need to be complete. None: all entries are one
      run, of whole rows from row 0 on.
    - `first_rows`: Number of the first row that starts in each run.

    Raises CorruptFileError: some rows are missing.
    """
    assert levels.repetition is not None
    if run_ends is None or first_rows is None:
        run_ends, first_rows = np.array([levels.num_entries]), np.zeros(1, np.int64)
    starts = np.flatnonzero(levels.repetition == max_repetition(levels.layers))
    run_of = np.searchsorted(run_ends, starts, side="right")
    first_start = np.searchsorted(starts, np.append(0, run_ends[:-1]))
    numbers = first_rows[run_of] + np.arange(len(starts)) - first_start[run_of]
    # A row ends at the start of the next row, or at the end of its run.
    stops = np.minimum(np.append(starts[1:], levels.num_entries), run_ends[run_of])
    edges = np.array([rows.start, rows.stop - 1]) if isinstance(rows, range) else rows
    entry_indices = np.searchsorted(numbers, edges)
    if int(entry_indices[-1]) >= len(numbers) or (numbers[entry_indices] != edges).any():
        raise CorruptFileError("the repetition levels do not hold the rows that they should")
    if isinstance(rows, range):
        return slice(int(starts[entry_indices[0]]), int(stops[entry_indices[1]]))
    return ranges(starts[entry_indices], stops[entry_indices] - starts[entry_indices])


# --------------------------------------------------------------------------------------------------
# The maximum size of the decoded values of a page, from its description.
#
# | stored as | decoded |
# | --- | --- |
# | flat, variable, fixed-size list of these | as many bytes |
# | FSST | eight times as many: a code of one byte stands for eight |
# | bit-packed, runs, differences | the number of values times their width |
# | dictionary | the number of values times all its items, as one item may be nearly all |
# | constant | the number of rows times the value |
# | compressed flat values | the number of values times their width |
#
# Each value with an offset or levels has sixteen bytes more. The size of other compressed values is
# not known, but a compressed dictionary begins with its length.

_FSST = 8
#: Offset and levels of a value.
_BESIDE = 16


#: Returns the bytes of a range of the file.
Read = Callable[[ByteRange], Bytes]


def max_decoded_bytes(page: PageMeta, read: Read | None = None) -> int | None:
    """Return the maximum bytes of the decoded values of a page of version 2.1 or 2.2; None if
    unknown.

    - `read`: Reads a range of the file, if that costs no request.
    """
    stored = sum(buffer.length for buffer in page.buffers) + len(page.encoding)
    try:
        message = parse_layout(page.encoding)
    except DecodeError:
        return None
    layout_name = message.WhichOneof("layout")
    if layout_name == "mini_block_layout":
        return _mini_block(message.mini_block_layout, page, stored, read)
    if layout_name == "full_zip_layout":
        zipped = message.full_zip_layout
        values = _values(zipped.value_compression, stored, zipped.num_items)
        return None if values is None else values + zipped.num_items * _BESIDE
    if layout_name == "constant_layout":
        constant = message.constant_layout
        count = max(page.num_rows, constant.num_rep_values, constant.num_def_values)
        return int(count * (stored + _BESIDE))
    return None


def dictionary_item_bytes(page: PageMeta) -> float:
    """Return the mean bytes of an item of the dictionary of a page in the file; 0 without a
    dictionary.

    Values that repeat a long item take few bytes in a page, but each takes the bytes of the item
    once it is decoded.
    """
    try:
        message = parse_layout(page.encoding)
    except DecodeError:
        return 0.0
    if message.WhichOneof("layout") != "mini_block_layout":
        return 0.0
    layout = message.mini_block_layout
    if not layout.HasField("dictionary") or not layout.num_dictionary_items:
        return 0.0
    if len(page.buffers) < 3:
        return 0.0
    return float(page.buffers[2].length / layout.num_dictionary_items)


def _mini_block(
    layout: pb.MiniBlockLayout, page: PageMeta, stored: int, read: Read | None
) -> int | None:
    count = layout.num_items
    if layout.HasField("dictionary"):
        items = _dictionary(layout, page, read)
        values = None if items is None else items * count
    else:
        values = _values(layout.value_compression, stored, count)
    return None if values is None else int(values + count * _BESIDE)


def _dictionary(layout: pb.MiniBlockLayout, page: PageMeta, read: Read | None) -> int | None:
    encoding, count = layout.dictionary, layout.num_dictionary_items
    if len(page.buffers) < 3:
        return None
    offset, size = page.buffers[2]
    if encoding.WhichOneof("compression") != "general":
        return _values(encoding, size, count)
    if read is None:
        return None
    try:
        scheme = scheme_of(encoding.general.compression)
    except UnsupportedEncodingError:
        return None
    claimed = claimed_size(scheme, read(ByteRange(offset, min(size, 8))).tobytes())
    return None if claimed is None else _values(encoding.general.values, claimed, count)


def _values(encoding: pb.CompressiveEncoding, stored: int, count: int) -> int | None:
    compression = encoding.WhichOneof("compression")
    if compression == "flat":
        return None if encoding.flat.HasField("data") else stored
    if compression == "variable":
        return None if encoding.variable.HasField("values") else stored
    if compression == "fsst":
        inner = _values(encoding.fsst.values, stored, count)
        return None if inner is None else inner * _FSST
    if compression == "fixed_size_list":
        vectors = encoding.fixed_size_list
        return _values(vectors.values, stored, count * vectors.items_per_value)
    if compression in ("inline_bitpacking", "out_of_line_bitpacking", "range", "delta"):
        bits = getattr(encoding, compression).uncompressed_bits_per_value
        return int(count * bits // 8)
    if compression == "rle":
        bits = encoding.rle.values.flat.bits_per_value
        return int(count * bits // 8) if bits else None
    if compression == "byte_stream_split":
        return stored
    if compression == "general" and encoding.general.values.HasField("flat"):
        return int(count * encoding.general.values.flat.bits_per_value // 8)
    return None
