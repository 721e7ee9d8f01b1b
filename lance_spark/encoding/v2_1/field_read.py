"""Reading a field of file versions 2.1 to 2.3: pages of its leaf columns, combined to one Arrow
array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.blocks import (
    bitmap,
    decoded,
    fixed_width,
    from_bytes,
    unscaled,
    with_validity,
)
from lance_spark.encoding.levels import IndexArray, LayerSlots
from lance_spark.encoding.meta import ColumnMeta, PageLocation, PageMeta
from lance_spark.encoding.rows import Rows, expanded, split_rows
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.encoding.v2_1.leaf_columns import (
    Leaf,
    child_fields,
    is_leaf,
    is_unscaled,
    leaf_fields,
    storage_field,
)
from lance_spark.encoding.v2_1.page import PageReader, SlottedRows, errors_at, parse_layout
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans

if TYPE_CHECKING:
    from lance_spark.encoding.v2_1.layouts.mini_block import PageGroup, ScatteredRows

#: Number of descriptions of pages that are kept.
_MODELS = 16
#: About the bytes of the objects of an open page.
_READER_BYTES = 1024

OpenPage = Callable[[PageMeta, Leaf], PageReader]


def open_page(meta: PageMeta, leaf: Leaf) -> PageReader:
    """Return the reader for a page by its layout.

    Raises CorruptFileError: the page's message cannot be parsed, or contradicts the page's buffers.
    Raises UnsupportedEncodingError: the layout is not known to this release.
    """
    try:
        message = parse_layout(meta.encoding)
    except DecodeError as error:
        raise CorruptFileError(f"the page's description cannot be parsed: {error}") from None
    return open_layout(message, meta, leaf)


def open_layout(message: pb.PageLayout, meta: PageMeta, leaf: Leaf) -> PageReader:
    """Return the reader for a page by its parsed layout; see `open_page`."""
    layout = message.WhichOneof("layout")
    if layout == "mini_block_layout":
        from lance_spark.encoding.v2_1.layouts.mini_block import MiniBlockPage

        return MiniBlockPage(message.mini_block_layout, meta, leaf)
    if layout == "full_zip_layout":
        from lance_spark.encoding.v2_1.layouts.full_zip import FullZipPage

        return FullZipPage(message.full_zip_layout, meta, leaf)
    if layout == "constant_layout":
        from lance_spark.encoding.v2_1.layouts.constant import ConstantPage

        return ConstantPage(message.constant_layout, meta, leaf)
    if layout == "blob_layout":
        from lance_spark.encoding.v2_1.layouts.blob import BlobPage

        return BlobPage(message.blob_layout, meta, leaf, open_layout)
    raise UnsupportedEncodingError(f"page layout {layout or 'unknown'!r} cannot be read")


@dataclass(frozen=True, slots=True)
class LeafRows:
    """Some rows of one leaf column: its values, and the slots of its layers, leaf first."""

    values: pa.Array
    slots: tuple[LayerSlots, ...]


class StructuralField:
    """Reads rows of one field; a `FieldReader`.

    - `field`: Its type selects what to read: a struct may lack children that the file has.
    - `columns`: The leaf columns of `field`, depth first.
    - `file`: Name of the file, for errors.
    - `open_page`: Returns the reader for a page of a leaf; by default that of versions 2.1 and 2.2.

    Raises CorruptFileError: the number of columns differs from the number of leaves of the field.
    """

    def __init__(
        self,
        field: pa.Field,
        columns: Sequence[ColumnMeta],
        file: str,
        open_page: OpenPage = open_page,
    ) -> None:
        leaves = leaf_fields(field)
        if len(leaves) != len(columns):
            raise CorruptFileError(
                f"{file}: field {field.name!r} has {len(columns)} columns where its type needs "
                f"{len(leaves)}"
            )
        self._field = field
        self._leaves = [
            LeafReader(leaf, column, file, open_page)
            for leaf, column in zip(leaves, columns, strict=True)
        ]
        self._where = f"{file}, column {field.name!r}"

    @property
    def kept_bytes(self) -> int | None:
        """About how many bytes the open pages keep; None if that is not known."""
        total = 0
        for leaf in self._leaves:
            size = leaf.kept_bytes
            if size is None:
                return None
            total += size
        return total

    @property
    def num_pages(self) -> int:
        """The number of pages of the first leaf."""
        return self._leaves[0].num_pages

    @property
    def only_leaf(self) -> LeafReader | None:
        """The reader of the leaf, if the field is one without layers around it."""
        return self._leaves[0] if is_leaf(storage_field(self._field)) else None

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        """Plan the reading of rows; the array has the field's type, or a form of it that the field
        allows: see `leaf_columns`.
        """
        return (yield from self._built([leaf.read(rows) for leaf in self._leaves], len(rows)))

    def read_columns(self, rows: range, num_rows: int, count: int) -> ReadPlan[pa.Array]:
        """Plan the reading of the same rows of several columns, whose pages the field has one
        column after the other; the array has the rows of the first column first.

        - `num_rows`: Rows of a column.
        - `count`: Number of columns.
        """
        plans = [leaf.read_columns(rows, num_rows, count) for leaf in self._leaves]
        return (yield from self._built(plans, len(rows) * count))

    def _built(self, plans: Sequence[ReadPlan[LeafRows]], count: int) -> ReadPlan[pa.Array]:
        leaves = yield from gather_plans(plans)
        array, _ = _build(self._field, 0, iter(leaves))
        if len(array) != count:
            raise CorruptFileError(f"{self._where}: {len(array)} values for {count} rows")
        return array

    def joined(self, parts: list[LeafRows]) -> pa.Array:
        """Return rows of the only leaf as an array of the field's type."""
        return _build(self._field, 0, iter([_joined(parts)]))[0]


class LeafReader:
    """Reads rows of one leaf column, page by page."""

    def __init__(
        self, leaf: Leaf, column: ColumnMeta, file: str, open_page: OpenPage = open_page
    ) -> None:
        self._open_page = open_page
        self._leaf = leaf
        self._column = column
        self._file = file
        self._lengths = [page.num_rows for page in column.pages]
        self._is_unscaled = is_unscaled(leaf.field)
        self._pages: dict[int, PageReader] = {}
        # Pages with the same description differ only in their buffers.
        self._models: dict[bytes, Any] = {}

    @property
    def kept_bytes(self) -> int | None:
        """About how many bytes the open pages keep; None if that is not known."""
        total = _READER_BYTES
        for page in self._pages.values():
            size: int | None = getattr(page, "kept_bytes", None)
            if size is None:
                return None
            total += _READER_BYTES + size
        return total

    @property
    def num_pages(self) -> int:
        """The number of pages."""
        return len(self._lengths)

    def read(self, rows: Rows) -> ReadPlan[LeafRows]:
        """Plan the reading of rows, counted from the column's first."""
        leaf_rows = expanded(rows, self._leaf.slots_per_row)
        pieces = split_rows(leaf_rows, self._lengths)
        if sum(len(piece) for _, piece in pieces) != len(leaf_rows):
            raise CorruptFileError(
                f"{self._file}, column {self._leaf.path!r}: the pages hold {sum(self._lengths)} "
                "rows, fewer than the file"
            )
        return (yield from self._read_pieces(pieces))

    def read_columns(self, rows: range, num_rows: int, count: int) -> ReadPlan[LeafRows]:
        """Plan the reading of rows of several columns; see `StructuralField.read_columns`."""
        leaf_rows = expanded(rows, self._leaf.slots_per_row)
        column_rows = num_rows * self._leaf.slots_per_row
        pieces: list[tuple[int, Rows]] = []
        lengths: list[int] = []
        of_column: list[tuple[int, Rows]] = []
        page = 0
        for _ in range(count):
            # Mostly, the pages of all columns have the same numbers of rows.
            if not lengths or lengths != self._lengths[page : page + len(lengths)]:
                stop, total = page, 0
                while total < column_rows and stop < len(self._lengths):
                    total += self._lengths[stop]
                    stop += 1
                lengths = self._lengths[page:stop]
                of_column = split_rows(leaf_rows, lengths)
            pieces += [(page + number, own) for number, own in of_column]
            page += len(lengths)
        return (yield from self._read_pieces(pieces))

    def _read_pieces(self, pieces: list[tuple[int, Rows]]) -> ReadPlan[LeafRows]:
        if not pieces:
            return self._empty_rows()
        return _joined((yield from gather_plans(list(self._plans(pieces)))))

    def fetch(self, rows: IndexArray) -> list[ReadPlan[Any]]:
        """Return a plan for each page with some of few rows; see `fetched_rows.decoded`."""
        pages = [(self._page(number), own) for number, own in split_rows(rows, self._lengths)]
        return [getattr(page, "fetch", page.read)(own) for page, own in pages]

    def rows_of_page(self, page: SlottedRows) -> LeafRows:
        """Return rows with the slots of their layers. Raises CorruptFileError."""
        slots = page.slots(self._leaf.steps)
        if len(page.values) != slots[0].count:
            raise CorruptFileError(f"{len(page.values)} values for {slots[0].count} slots")
        return LeafRows(self._in_form(page.values), tuple(slots))

    def _plans(self, pieces: list[tuple[int, Rows]]) -> Iterator[ReadPlan[LeafRows]]:
        """Yield a plan for each page, or for several that are decoded together."""
        if len(pieces) == 1:
            yield self._read_page(*pieces[0])
            return
        from lance_spark.encoding.v2_1.layouts.constant import inline_rows, repeats_inline
        from lance_spark.encoding.v2_1.layouts.mini_block import FEW_ROWS, PageGroup, ScatteredRows

        inline = self._open_page is open_page and repeats_inline(self._leaf)
        constants: list[bytes] = []
        grouped: list[tuple[int, Rows]] = []
        group: PageGroup | ScatteredRows | None = None
        for number, rows in pieces:
            values = None
            if inline:
                values = inline_rows(self._column.pages[number], self._leaf, len(rows))
            if values is not None:
                if group is not None:
                    yield self._read_group(group, grouped)
                    group = None
                constants.append(values)
                continue
            if constants:
                yield self._constants(constants)
                constants = []
            is_range = len(rows) == self._lengths[number] or isinstance(rows, range)
            is_few = not is_range and len(rows) <= FEW_ROWS
            page = None
            if is_range or is_few:
                with errors_at(PageLocation(self._file, self._leaf.path, number)):
                    page = self._page(number)
            if group is not None and group.add(page, rows):
                grouped.append((number, rows))
                continue
            if group is not None:
                yield self._read_group(group, grouped)
            grouped, group = [(number, rows)], None
            if is_range:
                group = PageGroup(page, rows)
            elif is_few:
                group = ScatteredRows(page, rows)
            else:
                yield self._read_page(number, rows)
        if group is not None:
            yield self._read_group(group, grouped)
        if constants:
            yield self._constants(constants)

    def _constants(self, parts: list[bytes]) -> ReadPlan[LeafRows]:
        """Plan the reading of pages whose values are known without a read."""
        yield from ()
        dtype = self._leaf.field.type
        data = np.frombuffer(b"".join(parts), np.uint8)
        count = len(data) * 8 // fixed_width(dtype)
        values = self._in_form(from_bytes(data, count, dtype))
        return LeafRows(values, (LayerSlots(count, None),) * len(self._leaf.steps))

    def _in_form(self, values: pa.Array) -> pa.Array:
        """Return the unscaled values of decimals, if these are wanted."""
        return unscaled(values) if self._is_unscaled and pat.is_decimal(values.type) else values

    def _read_group(
        self, group: PageGroup | ScatteredRows, pieces: list[tuple[int, Rows]]
    ) -> ReadPlan[LeafRows]:
        if len(pieces) > 1:
            try:
                with errors_at(PageLocation(self._file, self._leaf.path, pieces[0][0])):
                    return self.rows_of_page((yield from group.read()))
            except (CorruptFileError, UnsupportedEncodingError):
                # One by one, so that the error names the corrupt page.
                pass
        plans = [self._read_page(number, rows) for number, rows in pieces]
        return _joined((yield from gather_plans(plans)))

    def _read_page(self, number: int, rows: Rows) -> ReadPlan[LeafRows]:
        with errors_at(PageLocation(self._file, self._leaf.path, number)):
            return self.rows_of_page((yield from self._page(number).read(rows)))

    def _page(self, number: int) -> PageReader:
        reader = self._pages.get(number)
        if reader is None:
            meta: PageMeta = self._column.pages[number]
            model = self._models.get(meta.encoding)
            if model is None:
                reader = self._open_page(meta, self._leaf)
                if hasattr(reader, "like") and len(self._models) < _MODELS:
                    self._models[meta.encoding] = reader
            else:
                reader = model.like(meta)
            self._pages[number] = reader
        return reader

    def _empty_rows(self) -> LeafRows:
        no_lengths = np.zeros(0, np.int64)
        slots = (
            LayerSlots(0, None, no_lengths if step.is_list else None) for step in self._leaf.steps
        )
        return LeafRows(self._in_form(pa.array([], self._leaf.field.type)), tuple(slots))


def _joined(parts: list[LeafRows]) -> LeafRows:
    if len(parts) == 1:
        return parts[0]
    arrays = [part.values for part in parts]
    if len({array.type for array in arrays}) > 1:
        # Only some pages have a dictionary.
        arrays = [decoded(array) for array in arrays]
    elif pat.is_dictionary(arrays[0].type):
        arrays = pa.chunked_array(arrays).unify_dictionaries().chunks
    values = pa.concat_arrays(arrays)
    layers = zip(*(part.slots for part in parts), strict=True)
    return LeafRows(values, tuple(_join(list(layer)) for layer in layers))


def _join(parts: list[LayerSlots]) -> LayerSlots:
    count = sum(part.count for part in parts)
    validity = lengths = None
    if any(part.validity is not None for part in parts):
        flags = [np.ones(p.count, np.bool_) if p.validity is None else p.validity for p in parts]
        validity = np.concatenate(flags)
    if parts[0].lengths is not None:
        lengths = np.concatenate([part.lengths for part in parts if part.lengths is not None])
    return LayerSlots(count, validity, lengths)


def _build(
    field: pa.Field, depth: int, leaves: Iterator[LeafRows]
) -> tuple[pa.Array, tuple[LayerSlots, ...]]:
    """Return the array and the layers of a field `depth` layers below the top; take its leaves."""
    stored = storage_field(field)
    dtype = stored.type
    if is_leaf(stored):
        leaf = next(leaves)
        array = _leaf_array(leaf, dtype)
        return _wrapped(array, field.type), leaf.slots
    built = [_build(child, depth + 1, leaves) for child in child_fields(stored)]
    children = [child for child, _ in built]
    slots = built[0][1]
    layer = slots[len(slots) - 1 - depth]
    mask = None if layer.validity is None or layer.validity.all() else bitmap(layer.validity)
    buffers = [mask]
    if pat.is_struct(dtype):
        if any(len(child) != layer.count for child in children):
            raise CorruptFileError(
                f"the children of struct {field.name!r} have different numbers of values"
            )
    elif not pat.is_fixed_size_list(dtype):
        buffers.append(pa.py_buffer(_list_offsets(dtype, layer, len(children[0]))))
    array = pa.Array.from_buffers(dtype, layer.count, buffers, children=children)
    return _wrapped(array, field.type), slots


def _leaf_array(leaf: LeafRows, dtype: pa.DataType) -> pa.Array:
    if pat.is_struct(dtype) and dtype.num_fields == 0:
        # A struct without children is stored like nulls, but is always valid.
        return leaf.values
    return with_validity(leaf.values, leaf.slots[0].validity)


def _list_offsets(
    dtype: pa.DataType, layer: LayerSlots, num_items: int
) -> npt.NDArray[np.signedinteger]:
    assert layer.lengths is not None
    offsets = bounds(layer.lengths)
    if int(offsets[-1]) != num_items:
        raise CorruptFileError(
            f"lists of {int(offsets[-1])} items in all, but {num_items} are there"
        )
    if pat.is_large_list(dtype):
        return offsets
    if num_items > np.iinfo(np.int32).max:
        raise UnsupportedEncodingError(
            f"{num_items} items are too many for a column of type {dtype}: read fewer rows at once"
        )
    return offsets.astype(np.int32)


def _wrapped(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, array)
    return array
