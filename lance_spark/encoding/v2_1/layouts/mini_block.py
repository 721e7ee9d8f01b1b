"""Reads mini-block pages: values in chunks of a few KiB, compressed chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import (
    DataBlock,
    FixedWidthBlock,
    LowHalves,
    from_block,
    item_type,
    look_up,
    unscaled,
    unsigned,
)
from lance_spark.encoding.levels import IndexArray, LevelArray, Levels, max_repetition, parse_layers
from lance_spark.encoding.meta import PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    Chunks,
    decode_block,
    decode_blocks,
    decode_chunks,
    decode_low,
    decode_some,
    ranges,
)
from lance_spark.encoding.v2_1.layouts.fetched_rows import ChunkRows
from lance_spark.encoding.v2_1.layouts.mini_block_table import (
    ChunkTable,
    ChunkTables,
    has_same_codes,
    has_same_encoding,
    parse_chunk_table,
    parse_chunk_tables,
    parse_row_index,
)
from lance_spark.encoding.v2_1.leaf_columns import Leaf, is_unscaled, keeps_dictionary
from lance_spark.encoding.v2_1.page import (
    EntryIndex,
    PageRows,
    buffer_at,
    check_layers,
    entries_of,
    joined,
    levels_at,
    placed,
    runs_of,
    starts_rows,
    values_of,
)
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

# --------------------------------------------------------------------------------------------------
# Reads mini-block pages: values in chunks of a few KiB, compressed chunk by chunk.
#
# Buffers of the page, in order:
#
# ======================  ==========================================================================
# buffer                  content
# ======================  ==========================================================================
# chunk table             one word per chunk (`mini_block_table`)
# chunks                  back to back, each a multiple of 8 bytes
# dictionary              iff the layout has one: its items as a single buffer
# repetition index        iff there are lists (`mini_block_table`)
# ======================  ==========================================================================
#
# A chunk, little-endian; every part starts at a multiple of 8 bytes:
#
# ==================  ==============================================================================
# part                content
# ==================  ==============================================================================
# header              u16 number of levels or 0; u16 size of the repetition levels, if any; u16
#                     size of the definition levels, if any; the size of each value buffer, u16 (u32
#                     if `has_large_chunk`)
# repetition levels   iff the layout has `rep_compression`
# definition levels   iff the layout has `def_compression`
# value buffers       `num_buffers` of them
# ==================  ==============================================================================
#
# A chunk can have more levels than values: the levels of null and empty lists have no value. All
# requested chunks are decoded together.

#: Maximum number of items of a dictionary that is kept: it travels with each batch.
_MAX_KEPT_ITEMS = 4096


@dataclass(frozen=True, slots=True)
class DecodedChunks:
    """Some chunks, one after the other.

    - `block`: All values, or those that were wanted; for strings in FSST, their codes.
    - `levels`: Checked; `Levels.layers` of the page.
    - `num_levels`: Levels of each chunk; 0 if the page has none.
    - `is_part`: Whether the block has only the values that were wanted.
    """

    block: DataBlock
    levels: Levels
    num_levels: IndexArray
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class _ChunkParts:
    """Positions of the parts of the requested chunks."""

    num_levels: IndexArray
    repetition: ChunkBuffer | None
    definition: ChunkBuffer | None
    values: tuple[ChunkBuffer, ...]


class MiniBlockPage:
    """Reads rows of one mini-block page.

    Raises CorruptFileError: the layout does not fit the column or the page's buffers.
    """

    def __init__(self, layout: pb.MiniBlockLayout, meta: PageMeta, leaf: Leaf) -> None:
        self.layout = self._layout = layout
        self.meta = self._meta = meta
        self.dtype = self._dtype = leaf.field.type
        self._keeps_dictionary = keeps_dictionary(leaf.field)
        self._is_unscaled = is_unscaled(leaf.field)
        self._layers = check_layers(parse_layers(layout.layers), leaf)
        self._depth = layout.repetition_index_depth
        self._has_dictionary = layout.HasField("dictionary")
        self._table: ChunkTable | None = None
        self._items: pa.Array | None = None
        self._values = layout.value_compression
        # FSST codes are expanded only for the requested strings.
        self.has_codes = self._values.HasField("fsst")
        lists = sum(layer.is_list for layer in self._layers)
        if bool(lists) != bool(self._depth) or bool(lists) != layout.HasField("rep_compression"):
            raise CorruptFileError(
                f"{lists} list layers with a repetition index of depth {self._depth}"
            )
        if not 1 <= layout.num_buffers <= 64 and layout.num_items:
            raise CorruptFileError(f"chunks of {layout.num_buffers} value buffers")

    def like(self, meta: PageMeta) -> MiniBlockPage:
        """Return the reader of another page of the column that has the same description."""
        page = MiniBlockPage.__new__(MiniBlockPage)
        page.__dict__.update(self.__dict__)
        page.meta = page._meta = meta
        page._table = page._items = None
        return page

    @property
    def kept_bytes(self) -> int:
        """Bytes of the chunk table and the dictionary."""
        size = 0 if self._table is None else self._table.nbytes
        return size if self._items is None else size + int(self._items.nbytes)

    def read(self, rows: Rows) -> ReadPlan[PageRows]:
        """Plan the reading of some rows. A whole page takes one round, and so does every read
        except the first.
        """
        chunk_data = buffer_at(self._meta, 1)
        whole_page = len(rows) == self._meta.num_rows
        if self._table is None:
            ranges = self._index_ranges()
            buffers = yield [*ranges, chunk_data] if whole_page else ranges
            self._open(buffers)
            if whole_page:
                assert self._table is not None
                chunks = np.arange(len(self._table.bytes_at) - 1)
                return self._decode(chunks, buffers[-1], rows, self._table.bytes_at[:-1])
        table = self._table
        assert table is not None
        chunks = table.chunks_of(rows)
        heads, tails = runs_of(chunks)
        firsts = table.bytes_at[chunks]
        starts = firsts[heads]
        sizes = table.bytes_at[chunks[tails - 1] + 1] - starts
        byte_offsets = (starts + chunk_data.offset).tolist()
        chunk_ranges = list(map(ByteRange, byte_offsets, sizes.tolist()))
        buffers = yield chunk_ranges
        data, run_starts = self.placed(buffers)
        inside = firsts - np.repeat(firsts[heads], tails - heads)
        return self._decode(chunks, data, rows, inside + np.repeat(run_starts, tails - heads))

    def fetch(self, rows: IndexArray) -> ReadPlan[ChunkRows | PageRows]:
        """Plan the fetching of few rows, which are decoded together with those of other pages."""
        layout = self._layout
        if self._depth or layout.num_items != self._meta.num_rows:
            return (yield from self.read(rows))
        if self._table is None:
            self._open((yield self._index_ranges()))
        table = self._table
        assert table is not None
        holders = np.searchsorted(table.values_at, rows, side="right") - 1
        base = buffer_at(self._meta, 1).offset
        ranges: list[ByteRange] = []
        counts: list[int] = []
        entries: list[int] = []
        last, shift, total = -1, 0, 0
        for row, chunk in zip(rows.tolist(), holders.tolist(), strict=True):
            if chunk != last:
                start, stop = table.bytes_at[chunk : chunk + 2].tolist()
                first, end = table.values_at[chunk : chunk + 2].tolist()
                ranges.append(ByteRange(base + start, stop - start))
                counts.append(end - first)
                last, shift = chunk, total - first
                total += end - first
            entries.append(row + shift)
        return ChunkRows(self, (yield ranges), counts, entries)

    def placed(self, buffers: Sequence[Bytes]) -> tuple[Bytes, IndexArray]:
        """Return bytes that have some chunks, and where the bytes of each buffer start."""
        layout = self._layout
        has_levels = layout.HasField("rep_compression") or layout.HasField("def_compression")
        if self._values.HasField("inline_bitpacking") and not has_levels:
            # Few values need few of the bytes.
            return placed(buffers)
        ends = np.cumsum([len(buffer) for buffer in buffers])
        return joined(buffers), np.append(0, ends[:-1])

    def _index_ranges(self) -> list[ByteRange]:
        ranges = [buffer_at(self._meta, 0)]
        if self._has_dictionary:
            ranges.append(buffer_at(self._meta, 2))
        if self._depth:
            ranges.append(buffer_at(self._meta, 2 + self._has_dictionary))
        return ranges

    def _open(self, buffers: Sequence[Bytes]) -> None:
        layout = self._layout
        width = 4 if layout.has_large_chunk else 2
        row_index = None
        if self._depth:
            row_index = parse_row_index(
                buffers[1 + self._has_dictionary],
                depth=self._depth,
                num_chunks=len(buffers[0]) // width,
                num_rows=self._meta.num_rows,
            )
        if self._has_dictionary:
            self._items = self.open_dictionary(buffers[1])
        self._table = parse_chunk_table(
            buffers[0],
            large=layout.has_large_chunk,
            num_values=layout.num_items,
            data_size=buffer_at(self._meta, 1).length,
            rows=row_index,
        )

    def open_dictionary(self, data: Bytes) -> pa.Array:
        """Return the items of the page's dictionary, from its buffer."""
        layout = self._layout
        items = decode_block(layout.dictionary, data, layout.num_dictionary_items)
        if items.num_values != layout.num_dictionary_items:
            raise CorruptFileError(
                f"a dictionary of {items.num_values} items where "
                f"{layout.num_dictionary_items} were announced"
            )
        array = from_block(items, item_type(self._dtype))
        return unscaled(array) if self._is_unscaled else array

    def _decode(self, chunks: IndexArray, data: Bytes, rows: Rows, starts: IndexArray) -> PageRows:
        table = self._table
        assert table is not None
        sizes = table.bytes_at[chunks + 1] - table.bytes_at[chunks]
        counts = table.values_at[chunks + 1] - table.values_at[chunks]
        if table.rows is None:
            entries = self._entries(chunks, counts, rows)
            return self.decode_rows(data, starts, sizes, counts, entries)
        return self._select_rows(chunks, self.decode(data, starts, sizes, counts), rows)

    def decode_rows(
        self,
        data: Bytes,
        starts: IndexArray,
        sizes: IndexArray,
        counts: IndexArray,
        entries: EntryIndex,
        owners: Sequence[tuple[MiniBlockPage, IndexArray]] = (),
    ) -> PageRows:
        """Decode some values of chunks, each of which is a row; see `decode`.

        - `owners` (sequence of (MiniBlockPage, int64 array), optional): The pages of the chunks and
          the entries of each, one page after the other, if the chunks belong to several pages. Each
          can have symbols of its own.
        """
        wanted = entries if isinstance(entries, np.ndarray) else None
        decoded = self.decode(data, starts, sizes, counts, wanted)
        if self.has_codes and len(owners) > 1:
            from lance_spark.encoding.v2_1.codecs import fsst

            encodings = [page.layout.value_compression for page, _ in owners]
            texts = fsst.expand_few(encodings, decoded.block, [of_page for _, of_page in owners])
            if texts is not None:
                return PageRows(from_block(texts, self._dtype), levels_at(decoded.levels, entries))
            arrays = [page.array(decoded.block, of_page) for page, of_page in owners]
            return PageRows(pa.concat_arrays(arrays), levels_at(decoded.levels, entries))
        own = slice(0, decoded.block.num_values) if decoded.is_part else entries
        return PageRows(self.array(decoded.block, own), levels_at(decoded.levels, entries))

    def decode(
        self,
        data: Bytes,
        starts: IndexArray,
        sizes: IndexArray,
        counts: IndexArray,
        wanted: IndexArray | None = None,
    ) -> DecodedChunks:
        """Decode chunks that lie at ``data[starts[i] : starts[i] + sizes[i]]``, inside `data`, of
        `counts` values.

        If few values are wanted, the others may be left out. Their positions are given. Raises
        CorruptFileError: a chunk contradicts itself or the layout.
        """
        parts = self._parts(data, starts, sizes)
        total = int(counts.sum())
        repetition = self._levels(self._layout.rep_compression, parts.repetition, parts.num_levels)
        definition = self._levels(self._layout.def_compression, parts.definition, parts.num_levels)
        entries = total
        for levels in (repetition, definition):
            if levels is not None:
                entries = len(levels)
        result = Levels(self._layers, entries, repetition, definition)
        result.check()
        visible = result.visible()
        if (entries if visible is None else int(np.count_nonzero(visible))) != total:
            raise CorruptFileError(f"the levels of {total} values do not stand for that many")
        values = self._values.fsst.values if self.has_codes else self._values
        content = Chunks(parts.values, counts)
        some = None if wanted is None or self.has_codes else decode_some(values, content, wanted)
        if some is not None:
            return DecodedChunks(some, result, parts.num_levels, is_part=True)
        is_low = self._is_unscaled and not self._has_dictionary
        low = decode_low(values, content) if is_low else None
        block = decode_chunks(values, content) if low is None else low
        if block.num_values != total:
            raise CorruptFileError(f"{block.num_values} values where there must be {total}")
        return DecodedChunks(block, result, parts.num_levels)

    def _parts(self, data: Bytes, starts: IndexArray, sizes: IndexArray) -> _ChunkParts:
        layout = self._layout
        has_rep, has_def = layout.HasField("rep_compression"), layout.HasField("def_compression")
        width = 4 if layout.has_large_chunk else 2
        num_buffers = layout.num_buffers
        header = 2 + 2 * has_rep + 2 * has_def + width * num_buffers
        if int(sizes.min(initial=header)) < header:
            raise CorruptFileError(f"a chunk is shorter than its header of {header} bytes")
        words = data[: len(data) // 2 * 2].view("<u2")
        position = starts // 2
        num_levels = words[position].astype(np.int64)
        part_sizes: list[IndexArray] = []
        position = position + 1
        for _ in range(has_rep + has_def):
            part_sizes.append(words[position].astype(np.int64))
            position = position + 1
        for _ in range(num_buffers):
            size = words[position].astype(np.int64)
            if width == 4:
                size |= words[position + 1].astype(np.int64) << 16
            part_sizes.append(size)
            position = position + width // 2
        position = starts + (header + 7) // 8 * 8
        ends = starts + sizes
        buffers: list[ChunkBuffer] = []
        for size in part_sizes:
            if (position + size > ends).any():
                raise CorruptFileError("a chunk is shorter than its buffers")
            buffers.append(ChunkBuffer(data, position, size))
            position = position + (size + 7) // 8 * 8
        return _ChunkParts(
            num_levels,
            buffers.pop(0) if has_rep else None,
            buffers.pop(0) if has_def else None,
            tuple(buffers),
        )

    def _levels(
        self, encoding: pb.CompressiveEncoding, buffer: ChunkBuffer | None, counts: IndexArray
    ) -> LevelArray | None:
        if buffer is None:
            return None
        levels = unsigned(decode_blocks(encoding, buffer, counts))
        return levels.astype(np.uint16, copy=False)

    def _entries(self, chunks: IndexArray, counts: IndexArray, rows: Rows) -> EntryIndex:
        """Return the positions of rows among the values of some chunks."""
        assert self._table is not None
        firsts = self._table.values_at
        if isinstance(rows, range):
            start = rows.start - int(firsts[chunks[0]])
            return slice(start, start + len(rows))
        holder = np.searchsorted(firsts[chunks], rows, side="right") - 1
        before = np.cumsum(counts) - counts
        entries: IndexArray = rows - firsts[chunks][holder] + before[holder]
        return entries

    def _select_rows(self, chunks: IndexArray, decoded: DecodedChunks, rows: Rows) -> PageRows:
        table, block, levels = self._table, decoded.block, decoded.levels
        assert table is not None
        assert table.rows is not None
        if len(rows) == self._meta.num_rows and starts_rows(levels, len(rows)):
            return PageRows(self.array(block, slice(0, block.num_values)), levels)
        heads, tails = runs_of(chunks)
        run_ends = np.cumsum(decoded.num_levels)[tails - 1]
        first_rows = table.rows.first_started(chunks[heads])
        entries = entries_of(levels, rows, run_ends, first_rows)
        values = self.array(block, values_of(levels, entries))
        return PageRows(values, levels_at(levels, entries))

    def look_up(self, indices: FixedWidthBlock, items: pa.Array) -> pa.Array:
        """Return items of a dictionary; as a dictionary array, if the reader accepts it."""
        dtype = self._dtype
        if self._keeps_dictionary and len(items) <= _MAX_KEPT_ITEMS:
            dtype = pa.dictionary(pa.int32(), dtype)
        return look_up(indices, items, dtype)

    def array(self, block: DataBlock, entries: EntryIndex) -> pa.Array:
        """Return some of the values as an array."""
        if self._items is not None:
            if not isinstance(block, FixedWidthBlock):
                raise CorruptFileError("the positions in the dictionary are not numbers")
            positions = unsigned(block)[entries]
            cut = FixedWidthBlock(
                np.ascontiguousarray(positions).view(np.uint8), block.bits_per_value, len(positions)
            )
            return self.look_up(cut, self._items)
        if self.has_codes:
            from lance_spark.encoding.v2_1.codecs import fsst

            return from_block(fsst.expand_some(self._values, block, entries), self._dtype)
        array = from_block(block, pa.int64() if isinstance(block, LowHalves) else self._dtype)
        if isinstance(entries, slice):
            return array.slice(entries.start, entries.stop - entries.start)
        return array.take(pa.array(entries))


# --------------------------------------------------------------------------------------------------
# Reads mini-block pages of one layout together, as if their chunks belonged to one page.
#
# Writers end the pages of lists early, so a column may have some hundreds of small pages. In any
# column, pages that are decoded together need not be joined afterwards. Whole pages need no
# repetition index: levels show where rows start. Of a short page without lists, a range of rows can
# be read. Pages of FSST codes can have symbols of their own.

#: Maximum values and bytes of pages that are decoded together, so that intermediate results take no
#: more memory than these.
_MAX_VALUES = 1 << 22
_MAX_BYTES = 32 << 20
#: Bytes of chunks up to which a page is short.
_SHORT_PAGE = 1 << 20

#: Equal items are searched if the dictionaries of all pages together have at most this number of
#: items.
_FEW_ITEMS = 1 << 12


class PageGroup:
    """Consecutive pages of a column.

    - `page`: The first page.
    - `rows`: The rows of it that are read: all, or a range.
    """

    def __init__(self, page: object, rows: Rows) -> None:
        self._pages: list[MiniBlockPage] = []
        self._rows: list[Rows] = []
        self._values = self._bytes = 0
        # Positions are not joined if the result has their dictionary too.
        if (
            isinstance(page, MiniBlockPage)
            and not (page.layout.HasField("dictionary") and pat.is_dictionary(page.dtype))
            and _can_be_read(page, rows)
        ):
            self._add(page, rows)

    def add(self, page: object, rows: Rows) -> bool:
        """Add the next page; return False if it cannot be decoded together with the others.

        - `rows`: The rows of the page that are read.
        """
        return (
            isinstance(page, MiniBlockPage)
            and _can_be_read(page, rows)
            and self._fits(page)
            and self._add(page, rows)
        )

    def _fits(self, page: MiniBlockPage) -> bool:
        return bool(
            self._pages
            and self._values + page.layout.num_items <= _MAX_VALUES
            and self._bytes + buffer_at(page.meta, 1).length <= _MAX_BYTES
            and (
                has_same_encoding(self._pages[0].layout, page.layout)
                or has_same_codes(self._pages[0].layout, page.layout)
            )
        )

    def _add(self, page: MiniBlockPage, rows: Rows) -> bool:
        self._pages.append(page)
        self._rows.append(rows)
        self._values += page.layout.num_items
        self._bytes += buffer_at(page.meta, 1).length
        return True

    def read(self) -> ReadPlan[PageRows]:
        """Plan the reading of all rows.

        Raises CorruptFileError: a page is corrupt; the error does not name it.
        """
        first, count = self._pages[0], len(self._pages)
        numbers = (0, 2) if first.layout.HasField("dictionary") else (0,)
        wanted = [buffer_at(page.meta, number) for number in numbers for page in self._pages]
        contents = [buffer_at(page.meta, 1) for page in self._pages]
        is_whole = all(map(_is_whole, self._pages, self._rows))
        buffers = yield [*wanted, *contents] if is_whole else wanted
        tables = parse_chunk_tables(
            buffers[:count],
            large=first.layout.has_large_chunk,
            num_values=[page.layout.num_items for page in self._pages],
            data_sizes=[content.length for content in contents],
        )
        entries = None
        if is_whole:
            chunk_data = buffers[len(wanted) :]
        else:
            tables, byte_ranges, entries = self._part(tables, contents)
            chunk_data = yield byte_ranges
        data, page_starts = _one_run(chunk_data)
        sizes, counts, last_chunks = tables.sizes, tables.counts, tables.last_chunks
        ends = np.cumsum(sizes)
        first_chunks = tables.first_chunks
        before = ends[first_chunks] - sizes[first_chunks]
        starts = ends - sizes
        starts += np.repeat(np.array(page_starts) - before, np.diff(last_chunks, prepend=-1))
        decoded = first.decode(data, starts, sizes, counts)
        ends = np.cumsum(decoded.num_levels)[last_chunks]
        value_ends = np.cumsum(counts)[last_chunks]
        self._check(decoded.levels, ends, value_ends)
        values = self._array(decoded.block, value_ends, buffers[count : len(wanted)])
        if entries is None:
            return PageRows(values, decoded.levels)
        return PageRows(values.take(pa.array(entries)), levels_at(decoded.levels, entries))

    def _part(
        self, tables: ChunkTables, contents: Sequence[ByteRange]
    ) -> tuple[ChunkTables, list[ByteRange], IndexArray | None]:
        """Return the chunks with the rows, where those of each page lie, and the positions of the
        rows among the values of these chunks; None if the chunks have no other rows.

        - `tables`: The chunks of all pages.
        - `contents`: Where the chunks of each page lie.
        """
        sizes, counts, first_chunks = tables.sizes, tables.counts, tables.first_chunks
        ends, value_ends = np.cumsum(sizes), np.cumsum(counts)
        begins, value_begins = ends - sizes, value_ends - counts
        lengths = np.array([len(rows) for rows in self._rows])
        starts = value_begins[first_chunks] + np.array([rows[0] for rows in self._rows])
        firsts = np.searchsorted(value_ends, starts, side="right")
        lasts = np.searchsorted(value_ends, starts + lengths - 1, side="right")
        shift = np.array([content.offset for content in contents]) - begins[first_chunks]
        byte_starts = (begins[firsts] + shift).tolist()
        byte_sizes = (ends[lasts] - begins[firsts]).tolist()
        num_chunks = lasts - firsts + 1
        chunks = ranges(firsts, num_chunks)
        decoded = value_ends[lasts] - value_begins[firsts]
        entries = None
        if (decoded != lengths).any():
            skipped = starts - value_begins[firsts]
            entries = ranges(np.cumsum(decoded) - decoded + skipped, lengths)
        return (
            ChunkTables(sizes[chunks], counts[chunks], np.cumsum(num_chunks) - 1),
            list(map(ByteRange, byte_starts, byte_sizes)),
            entries,
        )

    def _array(
        self, block: DataBlock, value_ends: IndexArray, dictionaries: Sequence[Bytes]
    ) -> pa.Array:
        """Return the values of all pages."""
        first = self._pages[0]
        if dictionaries:
            return self._looked_up(block, value_ends, dictionaries)
        if not first.has_codes or len(self._pages) == 1:
            return first.array(block, slice(0, block.num_values))
        from lance_spark.encoding.v2_1.codecs import fsst

        encodings = [page.layout.value_compression for page in self._pages]
        texts = fsst.expand_pages(encodings, block, value_ends)
        return pa.concat_arrays([from_block(text, first.dtype) for text in texts])

    def _looked_up(
        self, block: DataBlock, value_ends: IndexArray, dictionaries: Sequence[Bytes]
    ) -> pa.Array:
        """Return the items at positions in the dictionaries of the pages."""
        opened = zip(self._pages, dictionaries, strict=True)
        items = [page.open_dictionary(data) for page, data in opened]
        sizes = np.array([len(page_items) for page_items in items])
        positions = unsigned(block)
        counts = np.diff(value_ends, prepend=0)
        if (np.maximum.reduceat(positions, value_ends - counts) >= sizes).any():
            raise CorruptFileError("a position is outside its dictionary")
        before = (np.cumsum(sizes) - sizes).astype(np.uint32)
        item_positions = positions + np.repeat(before, counts)
        every = pa.concat_arrays(items)
        if len(every) <= _FEW_ITEMS:
            # Pages often have equal items. The fewer items there are, the more of them stay in the
            # cache of the processor.
            unique = every.dictionary_encode()
            item_positions = unique.indices.to_numpy().astype(np.uint32).take(item_positions)
            every = unique.dictionary
        result = FixedWidthBlock(
            item_positions.view(np.uint8), item_positions.itemsize * 8, len(item_positions)
        )
        return self._pages[0].look_up(result, every)

    def _check(self, levels: Levels, ends: IndexArray, value_ends: IndexArray) -> None:
        """Check that the levels of each page, up to `ends`, match its values and rows."""
        if levels.repetition is None and levels.definition is None:
            return
        firsts = ends - np.diff(ends, prepend=0)
        visible = levels.visible()
        decoded_ends = (
            ends if visible is None else np.cumsum(np.add.reduceat(visible, firsts, dtype=np.int64))
        )
        if (decoded_ends != value_ends).any():
            raise CorruptFileError("the levels of a page do not stand for its values")
        if levels.repetition is None:
            return
        begins = levels.repetition == max_repetition(levels.layers)
        rows = np.add.reduceat(begins, firsts, dtype=np.int64)
        if not begins[firsts].all() or (rows != [page.meta.num_rows for page in self._pages]).any():
            raise CorruptFileError("the repetition levels do not hold the rows that they should")


def _is_whole(page: MiniBlockPage, rows: Rows) -> bool:
    return len(rows) == page.meta.num_rows


def _can_be_read(page: MiniBlockPage, rows: Rows) -> bool:
    """Return whether rows of a page can be read together with those of others."""
    return _is_whole(page, rows) or (
        isinstance(rows, range)
        and buffer_at(page.meta, 1).length <= _SHORT_PAGE
        and not page.layout.repetition_index_depth
        and page.layout.num_items == page.meta.num_rows
    )


def _one_run(buffers: Sequence[Bytes]) -> tuple[Bytes, list[int]]:
    """Return memory that holds all buffers, and the start of each in it. A single buffer is not
    copied.
    """
    base = buffers[0].base
    if isinstance(base, np.ndarray) and base.dtype == np.uint8 and base.flags.c_contiguous:
        first = _address(buffers[0])
        buffer_starts = [_address(buffer) - first for buffer in buffers]
        if all(
            buffer.base is base and buffer_start >= 0 and buffer_start % 8 == 0
            for buffer, buffer_start in zip(buffers, buffer_starts, strict=True)
        ):
            start = first - _address(base)
            end = max(
                buffer_start + len(buffer)
                for buffer_start, buffer in zip(buffer_starts, buffers, strict=True)
            )
            return base.reshape(-1)[start : start + end], buffer_starts
    sizes = [len(buffer) for buffer in buffers]
    return np.concatenate(buffers), (np.cumsum(sizes) - sizes).tolist()


def _address(data: Bytes) -> int:
    return int(data.__array_interface__["data"][0])


# --------------------------------------------------------------------------------------------------
# Reads few rows of each of several mini-block pages, as if their chunks belonged to one page.
#
# Most of the cost of a chunk is the fixed cost of a decoder's call. Pages with lists or a
# dictionary are read one by one.

#: Most rows of a page that are few.
FEW_ROWS = 64
#: Maximum rows that are read together: a chunk of each is decoded.
_MAX_ROWS = 1024


class ScatteredRows:
    """Some rows of consecutive pages of a column.

    - `page`: The first page.
    - `rows`: Its rows, `FEW_ROWS` at most.
    """

    def __init__(self, page: object, rows: Rows) -> None:
        self._pages: list[MiniBlockPage] = []
        self._rows: list[Rows] = []
        self._num_rows = 0
        if isinstance(page, MiniBlockPage) and _is_flat(page):
            self._add(page, rows)

    def add(self, page: object, rows: Rows) -> bool:
        """Add the next page; return False if it cannot be decoded together with the others."""
        return (
            isinstance(page, MiniBlockPage)
            and bool(self._pages)
            and len(rows) <= FEW_ROWS
            and self._num_rows + len(rows) <= _MAX_ROWS
            and _is_flat(page)
            and has_same_encoding(self._pages[0].layout, page.layout)
            and self._add(page, rows)
        )

    def _add(self, page: MiniBlockPage, rows: Rows) -> bool:
        self._pages.append(page)
        self._rows.append(rows)
        self._num_rows += len(rows)
        return True

    def read(self) -> ReadPlan[PageRows]:
        """Plan the reading of the rows.

        Raises CorruptFileError: a page is corrupt; the error does not name it.
        """
        first = self._pages[0]
        data = [buffer_at(page.meta, 1) for page in self._pages]
        words = yield [buffer_at(page.meta, 0) for page in self._pages]
        tables = parse_chunk_tables(
            words,
            large=first.layout.has_large_chunk,
            num_values=[page.layout.num_items for page in self._pages],
            data_sizes=[buffer.length for buffer in data],
        )
        sizes, counts = tables.sizes, tables.counts
        ends, value_ends = np.cumsum(sizes), np.cumsum(counts)
        # Of each page: its first chunk, and its first byte and value among those of all.
        firsts = tables.first_chunks
        first_bytes, first_values = (ends - sizes)[firsts], (value_ends - counts)[firsts]
        values = np.concatenate(
            [np.asarray(rows) + start for rows, start in zip(self._rows, first_values, strict=True)]
        )
        holder = np.searchsorted(value_ends, values, side="right")
        chunks = holder[np.diff(holder, prepend=-1) != 0]
        place = np.cumsum(np.diff(holder, prepend=holder[:1]) != 0)
        offset = np.array([buffer.offset for buffer in data]) - first_bytes
        starts = ends[chunks] - sizes[chunks]
        own_sizes, own_counts = sizes[chunks], counts[chunks]
        starts += offset[np.searchsorted(tables.last_chunks, chunks)]
        ranges = list(map(ByteRange, starts.tolist(), own_sizes.tolist()))
        read, read_starts = first.placed((yield ranges))
        before = np.cumsum(own_counts) - own_counts
        entries = values - (value_ends[chunks] - own_counts)[place] + before[place]
        return first.decode_rows(read, read_starts, own_sizes, own_counts, entries)


def _is_flat(page: MiniBlockPage) -> bool:
    """Return whether each value of a page is a row, and not an item of a dictionary."""
    layout = page.layout
    return bool(
        not layout.repetition_index_depth
        and not layout.HasField("dictionary")
        and layout.num_items == page.meta.num_rows
    )
