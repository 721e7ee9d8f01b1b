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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.levels import IndexArray, LayerSlots, Step, parse_layers
from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.field_read import StructuralField, open_layout
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import PageReader
from lance_spark.encoding.v2_3.sparse import Selected, SparseSlots, num_payloads, parse_shapes
from lance_spark.encoding.v2_3.value_plane import (
    IndexedValues,
    PlainValues,
    as_layout,
    num_buffers,
    spread,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


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
