"""Fields and pages of file version 2.3. Only reading is supported.

Fields and leaf columns are as in versions 2.1 and 2.2. A page has a structure plane and a value
plane.

Most pairs of planes have the bytes of a layout of version 2.2, and are read by its reader:

=========================  =========================================================================
structure and values       read as
=========================  =========================================================================
dense, chunked             `MiniBlockLayout`
dense, zipped              `FullZipLayout`
dense, constant or none    `ConstantLayout`
sparse, any                structure by `v2_3.sparse`; values, which have no levels,
                           as pages of non-null items in the layouts above, or by their index
=========================  =========================================================================

To read rows of a sparse page, the slots of the rows are read first, then the values of these slots.
The buffers of the values are stored before the buffers of the structure. A whole page takes one
round. A few rows take one round for the structure, which is kept, and the rounds of their values.

Specification: PlanarLayout in protos/encodings_v2_3.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.blocks import is_variable, item_type, strings_of, unstored_nulls
from lance_spark.encoding.levels import (
    BoolArray,
    IndexArray,
    Layer,
    LayerSlots,
    Step,
    layer_numbers,
    parse_layers,
)
from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import bounds, has_payload
from lance_spark.encoding.v2_1.field_read import StructuralField, open_layout
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import PageReader, buffer_at
from lance_spark.encoding.v2_3.sequence import PositionSequence, decode_sequence
from lance_spark.encoding.v2_3.sparse import Selected, SparseSlots, num_payloads, parse_shapes
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans

# --------------------------------------------------------------------------------------------------
# Value planes of file version 2.3.
#
# Most value planes have the bytes of a page layout of version 2.2 (`as_layout`). Values of sparse
# pages are read by the number of their slot: no levels are stored with them.
#
# ===========  ================================  ===============================================
# values       buffers                           stored for
# ===========  ================================  ===============================================
# chunked      chunk table, chunks[, dictionary] every leaf slot, null or not
# zipped       values[, index of values]         leaf slots that are valid in all layers
# indexed      indices, buffers of zipped        every leaf slot an index; each distinct value
# constant     none                              one value for all
# none         none                              nothing: all are null
# ===========  ================================  ===============================================
#
# Indices are a sequence of 32-bit numbers (`lance_spark.encoding.v2_3.sequence`); a sequence
# without stored numbers has an empty buffer. Specification: ValuePlane in
# protos/encodings_v2_3.proto.

_MAX_BITS = (1 << 32) - 1


def as_layout(values: pb.ValuePlane, layers: Iterable[Layer]) -> pb21.PageLayout:
    """Return the layout of version 2.2 that has the bytes of a value plane.

    - `values`: Chunked, zipped, constant or none.
    - `layers`: Layers of the page, leaf first.

    Raises UnsupportedEncodingError: the plane has no such layout.
    """
    numbers = layer_numbers(layers)
    codec = values.WhichOneof("codec")
    if codec == "chunked":
        mini_block = _mini_block(values.chunked)
        mini_block.layers.extend(numbers)
        return pb21.PageLayout(mini_block_layout=mini_block)
    if codec == "zipped":
        full_zip = _full_zip(values.zipped)
        full_zip.layers.extend(numbers)
        return pb21.PageLayout(full_zip_layout=full_zip)
    if codec == "constant":
        constant = pb21.ConstantLayout(layers=numbers, inline_value=values.constant.scalar)
        return pb21.PageLayout(constant_layout=constant)
    if codec == "no_values":
        return pb21.PageLayout(constant_layout=pb21.ConstantLayout(layers=numbers))
    raise UnsupportedEncodingError(f"values stored as {codec or 'something unknown'!r}")


def _mini_block(values: pb.ChunkedValues) -> pb21.MiniBlockLayout:
    levels = values.levels
    layout = pb21.MiniBlockLayout(
        value_compression=values.compression,
        num_dictionary_items=values.num_dictionary_items,
        num_buffers=values.num_buffers,
        repetition_index_depth=levels.repetition_index_depth,
        num_items=values.num_items,
        has_large_chunk=True,
    )
    # The presence of these messages determines which buffers exist.
    if levels.HasField("repetition"):
        layout.rep_compression.CopyFrom(levels.repetition)
    if levels.HasField("definition"):
        layout.def_compression.CopyFrom(levels.definition)
    if values.HasField("dictionary"):
        layout.dictionary.CopyFrom(values.dictionary)
    return layout


def _full_zip(values: pb.ZippedValues) -> pb21.FullZipLayout:
    layout = pb21.FullZipLayout(
        bits_rep=values.levels.bits_repetition,
        bits_def=values.levels.bits_definition,
        value_compression=values.compression,
    )
    if max(values.bits_per_value, values.bits_per_offset) > _MAX_BITS:
        raise CorruptFileError("values of more than 4 Gibit")
    if values.WhichOneof("addressing") == "bits_per_offset":
        layout.bits_per_offset = values.bits_per_offset
    else:
        layout.bits_per_value = values.bits_per_value
    return layout


def num_buffers(values: pb.ValuePlane) -> int:
    """Return the number of buffers of a page that belong to its values."""
    codec = values.WhichOneof("codec")
    if codec == "chunked":
        return 2 + values.chunked.HasField("dictionary")
    if codec == "zipped":
        return _zipped_buffers(values.zipped)
    if codec == "indexed":
        return 1 + _zipped_buffers(values.indexed.items)
    if codec in ("constant", "no_values"):
        return 0
    raise UnsupportedEncodingError("values stored in a way that this release does not know")


def _zipped_buffers(values: pb.ZippedValues) -> int:
    return 2 if values.WhichOneof("addressing") == "bits_per_offset" else 1


class PlainValues:
    """Values that the layouts of version 2.2 read: a value for each leaf slot or, if zipped, for
    each live slot.

    - `values`: Chunked, zipped, constant or none.
    - `meta`: It has the buffers of the values.
    - `slots`: Leaf slots of the page.
    - `only_live`: Whether slots that are not live are left out.
    - `count`: Values that are stored.

    Raises CorruptFileError: the values have levels, or their number differs from the number of
    slots.
    """

    def __init__(self, values: pb.ValuePlane, meta: PageMeta, leaf: Leaf, slots: int) -> None:
        self.only_live = values.WhichOneof("codec") == "zipped"
        self.count = values.zipped.num_items if self.only_live else slots
        if self.count > slots:
            raise CorruptFileError(f"{self.count} values for {slots} slots")
        self._type = leaf.field.type
        self._page = _open_items(values, meta, leaf, self.count)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        """Plan the reading of some of the stored values."""
        if not len(rows):
            return pa.array([], self._type)
        return (yield from self._page.read(rows)).values


def _open_items(values: pb.ValuePlane, meta: PageMeta, leaf: Leaf, count: int) -> PageReader:
    """Return the reader of a page of `count` items, of which none or all are null."""
    codec = values.WhichOneof("codec")
    if values.chunked.HasField("levels") or values.zipped.HasField("levels"):
        raise CorruptFileError("values with levels below a sparse structure")
    layer = Layer.NULLABLE_ITEM if codec == "no_values" else Layer.ALL_VALID_ITEM
    layout = as_layout(values, [layer])
    if codec == "chunked":
        if values.chunked.num_items not in (0, count):
            raise CorruptFileError(f"{values.chunked.num_items} values for {count} slots")
        layout.mini_block_layout.num_items = count
    return open_layout(layout, replace(meta, num_rows=count), leaf._replace(steps=(Step(),)))


class IndexedValues:
    """Values as indices into distinct values; the indices are kept after the first read.

    - `meta`: It has the buffers of the values.
    - `slots`: Leaf slots of the page.
    """

    def __init__(self, values: pb.IndexedValues, meta: PageMeta, leaf: Leaf, slots: int) -> None:
        self._encoding = values.indices
        self._meta = meta
        self._type = leaf.field.type
        self._slots = slots
        self._num_items = values.items.num_items
        dtype = item_type(self._type)
        self._items = _open_items(
            pb.ValuePlane(zipped=values.items),
            replace(meta, buffers=meta.buffers[1:]),
            leaf._replace(field=leaf.field.with_type(dtype)),
            self._num_items,
        )
        self._indices: PositionSequence | None = None

    def read(self, slots: Rows, live: BoolArray) -> ReadPlan[pa.Array]:
        """Plan the reading of the values of some slots; slots that are not live get any value."""
        if self._indices is None:
            self._indices = yield from self._load()
        slot_rows = np.arange(slots.start, slots.stop) if isinstance(slots, range) else slots
        item_rows, result = np.unique(self._indices.values_at(slot_rows[live]), return_inverse=True)
        if not len(item_rows):
            return unstored_nulls(len(slots), self._type)
        if int(item_rows[-1]) >= self._num_items:
            raise CorruptFileError(f"index {int(item_rows[-1])} among {self._num_items} values")
        items = (yield from self._items.read(item_rows)).values
        if not pat.is_dictionary(self._type):
            return spread(items.take(pa.array(result)), live)
        positions = np.zeros(len(slots), np.int64)
        positions[live] = result
        indices = pa.array(positions).cast(self._type.index_type)
        return pa.DictionaryArray.from_arrays(indices, items, ordered=self._type.ordered)

    def _load(self) -> ReadPlan[PositionSequence]:
        data = None
        location = buffer_at(self._meta, 0)
        if has_payload(self._encoding):
            (data,) = yield [location]
        elif location.length:
            raise CorruptFileError(f"{location.length} bytes of indices that are not stored")
        return decode_sequence(self._encoding, data, self._slots, bits=32)


def spread(values: pa.Array, live: BoolArray) -> pa.Array:
    """Return an array with the given values in live slots, and arbitrary content in the others."""
    if len(values) == len(live):
        return values
    if not len(values):
        return unstored_nulls(len(live), values.type)
    dtype = values.type
    if is_variable(dtype):
        # Not by `take`, which would allocate memory for values of average length in every slot.
        offsets = strings_of(values).offsets[bounds(live)]
        buffers = [None, pa.py_buffer(offsets), values.buffers()[2]]
        return pa.Array.from_buffers(dtype, len(live), buffers)
    if pat.is_struct(dtype):
        children = [spread(values.field(i), live) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(dtype))
    return values.take(pa.array(np.maximum(np.cumsum(live) - 1, 0)))


# --------------------------------------------------------------------------------------------------
# Fields and pages of file version 2.3. Only reading is supported.


@dataclass(frozen=True, slots=True)
class SlotRows:
    """Whole rows of one page: values of all leaf slots, and the slots of all layers."""

    values: pa.Array
    layers: tuple[LayerSlots, ...]

    def slots(self, steps: Sequence[Step]) -> list[LayerSlots]:
        """Return the slots of every layer, leaf first."""
        return list(self.layers)


class SparsePage:
    """Reads rows of one sparse page; the structure is kept after the first read.

    Raises CorruptFileError: the planes do not fit the column, the page's buffers or each other.
    """

    def __init__(self, layout: pb.PlanarLayout, meta: PageMeta, leaf: Leaf) -> None:
        self._scale = leaf.slots_per_row
        if self._scale < 1 or meta.num_rows % self._scale:
            raise CorruptFileError(f"{meta.num_rows} slots do not make rows of {self._scale}")
        self._num_rows = meta.num_rows // self._scale
        self._shapes = parse_shapes(layout.structure.sparse, self._num_rows, leaf.steps)
        of_values = num_buffers(layout.values)
        if len(meta.buffers) != of_values + num_payloads(self._shapes):
            raise CorruptFileError(
                f"{len(meta.buffers)} buffers, of which {of_values} are for values and "
                f"{num_payloads(self._shapes)} for the structure"
            )
        self._payloads = meta.buffers[of_values:]
        slots = self._shapes[-1].child_slots
        value_meta = replace(meta, buffers=meta.buffers[:of_values])
        self._plain: PlainValues | None = None
        self._indexed: IndexedValues | None = None
        codec = layout.values.WhichOneof("codec")
        # A page can claim any number of values without bytes, so their number is first taken from
        # the structure.
        self._at_once = codec in ("chunked", "zipped")
        if codec == "indexed":
            self._indexed = IndexedValues(layout.values.indexed, value_meta, leaf, slots)
        else:
            self._plain = PlainValues(layout.values, value_meta, leaf, slots)
        self._slots: SparseSlots | None = None
        self._live_before: IndexArray | None = None

    def read(self, rows: Rows) -> ReadPlan[SlotRows]:
        """Plan the reading of some rows."""
        rows = self._slots_to_rows(rows)
        plain = self._plain
        whole_page = len(rows) == self._num_rows
        if self._slots is None and plain is not None and self._at_once and whole_page:
            # The ranges of a whole page are known without its structure.
            plans = [self._open(), plain.read(range(plain.count))]
            _, values = yield from gather_plans(plans)
            return self._finish(self._select(rows), values)
        if self._slots is None:
            yield from self._open()
        selected = self._select(rows)
        if plain is not None:
            values = yield from plain.read(self._places(selected))
            return self._finish(selected, values)
        assert self._indexed is not None
        values = yield from self._indexed.read(selected.leaf, selected.live)
        return SlotRows(values, selected.slots)

    def _slots_to_rows(self, rows: Rows) -> Rows:
        """Return numbers of rows for numbers of slots, if each row has several slots."""
        if self._scale == 1:
            return rows
        if isinstance(rows, range):
            return range(rows.start // self._scale, rows.stop // self._scale)
        return rows[:: self._scale] // self._scale

    def _open(self) -> ReadPlan[None]:
        payloads = (yield self._payloads) if self._payloads else []
        self._slots = SparseSlots(self._shapes, payloads)

    def _select(self, rows: Rows) -> Selected:
        assert self._slots is not None
        return self._slots.select(rows)

    def _places(self, selected: Selected) -> Rows:
        """Return which of the stored values belong to the selected slots."""
        assert self._plain is not None
        if not self._plain.only_live:
            return selected.leaf
        if self._live_before is None:
            live = self._select(range(self._num_rows)).live
            if int(np.count_nonzero(live)) != self._plain.count:
                raise CorruptFileError(f"{self._plain.count} values for other slots than are valid")
            self._live_before = np.cumsum(live) - live
        before, leaf = self._live_before, selected.leaf
        if isinstance(leaf, range):
            if not len(leaf):
                return range(0)
            start = int(before[leaf.start])
            return range(start, start + int(np.count_nonzero(selected.live)))
        return before[leaf[selected.live]]

    def _finish(self, selected: Selected, values: pa.Array) -> SlotRows:
        assert self._plain is not None
        if self._plain.only_live:
            if int(np.count_nonzero(selected.live)) != len(values):
                raise CorruptFileError(f"{len(values)} values for other slots than are valid")
            values = spread(values, selected.live)
        return SlotRows(values, selected.slots)


def open_field(field: pa.Field, columns: Sequence[ColumnMeta], file: str) -> FieldReader:
    """Return the reader of a field; see `StructuralField`."""
    return StructuralField(field, columns, file, open_page)


def open_page(meta: PageMeta, leaf: Leaf) -> PageReader:
    """Return the reader for a page by its planes.

    Raises CorruptFileError: the page's message cannot be parsed, or contradicts itself or the
    page's buffers. Raises UnsupportedEncodingError: a plane is not known to this release.
    """
    try:
        message = pb.PlanarLayout.FromString(meta.encoding)
    except DecodeError as error:
        raise CorruptFileError(f"the page's description cannot be parsed: {error}") from None
    structure = message.structure.WhichOneof("codec")
    if structure == "sparse":
        return SparsePage(message, meta, leaf)
    if structure != "dense":
        raise UnsupportedEncodingError("a structure that this release does not know")
    values = message.values
    codec = values.WhichOneof("codec")
    if (codec == "chunked" and not values.chunked.HasField("levels")) or (
        codec == "zipped" and not values.zipped.HasField("levels")
    ):
        raise CorruptFileError("a dense structure without levels")
    layers = parse_layers(message.structure.dense.layers)
    return open_layout(as_layout(values, layers), meta, leaf)
