"""Sparse structure: nulls and lists, layer by layer, as positions and counts.

Layers are listed from the outermost inwards, one for each layer around the leaf and one for the
leaf itself. A layer has slots, numbered from 0. The outermost layer has one slot for each row of
the page. A slot has these slots of the next layer below it:

===============  ===================================================================================
layer            slots of the next layer
===============  ===================================================================================
validity         the same: a struct, or the leaf
list             `counts` for each of `non_empty_positions`, none for all other slots
fixed_size_list  `dimension` for each slot, null or not
===============  ===================================================================================

Every layer has a set of positions, of the null slots or of the others. The sequences that have a
buffer are in the last buffers of the page, the outermost layer first. A list has first the
positions, then the counts, then the validity. Slots below a null struct are null themselves; slots
below a null fixed-size list need not be null. The number of rows in the metadata of the page is
multiplied by all dimensions. Specification: SparseStructure in protos/encodings_v2_3.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lance_spark.encoding.levels import BoolArray, IndexArray, LayerSlots, Step
from lance_spark.encoding.rows import Rows, expanded
from lance_spark.encoding.v2_1.codec import has_payload, ranges
from lance_spark.encoding.v2_3.sequence import PositionSequence as Numbers
from lance_spark.encoding.v2_3.sequence import (
    check_increasing,
    decode_sequence,
    find_positions,
    sum_of,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.source import Bytes

_MAX_SLOTS = 1 << 62
#: Maximum number of slots that are read at once: a sparse page can claim any number of slots that
#: have no bytes.
_MAX_READ = 1 << 30


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The message of a layer, without its buffers."""

    message: pb.SparseListLayer | pb.SparseFixedSizeListLayer | pb.SparseValiditySet
    slots: int
    child_slots: int

    @property
    def validity(self) -> pb.SparseValiditySet:
        message = self.message
        return message if isinstance(message, pb.SparseValiditySet) else message.validity

    def sequences(self) -> Iterator[tuple[pb21.CompressiveEncoding, int]]:
        """Yield the encoding of each sequence of the layer, and its number of numbers, in the order
        of their buffers.
        """
        message = self.message
        if isinstance(message, pb.SparseListLayer):
            yield message.non_empty_positions, message.num_non_empty_positions
            yield message.counts, message.num_non_empty_positions
        yield self.validity.positions, self.validity.num_positions


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer with its decoded sequences; the sequences of lists are None for other layers."""

    shape: LayerShape
    nulls: bool
    positions: Numbers
    non_empty: Numbers | None
    counts: Numbers | None


@dataclass(frozen=True, slots=True)
class Selected:
    """The slots and values of some rows of a page.

    - `slots`: Slots of every layer, leaf first.
    - `leaf`: Leaf slots that belong to the rows.
    - `live` (bool array, one per leaf slot): False for slots that are null, or below a null.
    """

    slots: tuple[LayerSlots, ...]
    leaf: Rows
    live: BoolArray


def parse_shapes(
    structure: pb.SparseStructure, num_rows: int, steps: Sequence[Step]
) -> tuple[LayerShape, ...]:
    """Return the layers of a page, outermost first.

    - `num_rows`: Rows of the page, not multiplied by dimensions.
    - `steps`: The part of the column type that each layer describes, leaf first.

    Raises CorruptFileError: the layers do not match the column type.
    """
    if len(structure.layers) != len(steps):
        raise CorruptFileError(
            f"{len(structure.layers)} sparse layers for a column that has {len(steps)}"
        )
    shapes: list[LayerShape] = []
    slots = num_rows
    for layer, step in zip(structure.layers, reversed(steps), strict=True):
        shape = _shape(layer, slots, step)
        slots = shape.child_slots
        if slots >= _MAX_SLOTS:
            raise CorruptFileError(f"a layer of {slots} slots")
        shapes.append(shape)
    return tuple(shapes)


def _shape(layer: pb.SparseStructuralLayer, slots: int, step: Step) -> LayerShape:
    layer_type = layer.WhichOneof("layer")
    if layer_type is None:
        raise UnsupportedEncodingError("a sparse layer of a kind that this release does not know")
    if (layer_type == "list") != step.is_list or (layer_type == "validity" and step.dimension != 1):
        raise CorruptFileError(
            f"a sparse layer of kind {layer_type!r} is not one of the column's type"
        )
    if layer_type == "list":
        message = layer.list
        if message.num_non_empty_positions > slots:
            raise CorruptFileError(
                f"{message.num_non_empty_positions} lists with items among {slots} lists"
            )
        shape = LayerShape(message, slots, message.num_child_slots)
    elif layer_type == "fixed_size_list":
        if layer.fixed_size_list.dimension != step.dimension:
            raise CorruptFileError(
                f"fixed-size lists of {layer.fixed_size_list.dimension} in a column of lists of "
                f"{step.dimension}"
            )
        shape = LayerShape(layer.fixed_size_list, slots, slots * step.dimension)
    else:
        shape = LayerShape(layer.validity, slots, slots)
    if shape.validity.meaning not in (1, 2):
        raise UnsupportedEncodingError(f"validity of meaning {shape.validity.meaning}")
    if any(encoding.WhichOneof("compression") is None for encoding, _ in shape.sequences()):
        raise UnsupportedEncodingError(
            "a sequence encoded in a way that this release does not know"
        )
    if shape.validity.num_positions > slots:
        raise CorruptFileError(f"{shape.validity.num_positions} positions among {slots} slots")
    return shape


def num_payloads(shapes: Sequence[LayerShape]) -> int:
    """Return the number of buffers of the layers."""
    return sum(has_payload(encoding) for shape in shapes for encoding, _ in shape.sequences())


class SparseSlots:
    """The decoded structure of a page.

    - `payloads`: The layers' buffers.

    Raises CorruptFileError: positions do not increase, or counts differ from the slots of the next
    layer.
    """

    def __init__(self, shapes: Sequence[LayerShape], payloads: Sequence[Bytes]) -> None:
        waiting = iter(payloads)
        self._layers = tuple(_decode(shape, waiting) for shape in shapes)

    def select(self, rows: Rows) -> Selected:
        """Return the slots and values of some rows."""
        slots = rows
        _require_readable(len(rows))
        live = np.ones(len(rows), np.bool_)
        results: list[LayerSlots] = []
        for layer in self._layers:
            validity = _validity(layer, slots)
            if validity is not None:
                live = live & validity
            shape = layer.shape
            if layer.non_empty is not None and layer.counts is not None:
                count = len(slots)
                lengths, slots = _children(layer.non_empty, layer.counts, slots)
                live = np.repeat(live, lengths)
                results.append(LayerSlots(count, validity, lengths))
                continue
            results.append(LayerSlots(len(slots), validity))
            if isinstance(shape.message, pb.SparseFixedSizeListLayer):
                dimension = shape.message.dimension
                _require_readable(len(slots) * dimension)
                slots = expanded(slots, dimension)
                live = np.repeat(live, dimension)
        return Selected(tuple(reversed(results)), slots, live)


def _decode(shape: LayerShape, payloads: Iterator[Bytes]) -> _Layer:
    numbers = [
        decode_sequence(encoding, next(payloads) if has_payload(encoding) else None, count)
        for encoding, count in shape.sequences()
    ]
    positions = numbers.pop()
    check_increasing(positions, shape.slots, "positions of nulls")
    nulls = shape.validity.meaning == pb.SparseValiditySet.SPARSE_VALIDITY_NULL_POSITIONS
    if not numbers:
        return _Layer(shape, nulls, positions, None, None)
    non_empty, counts = numbers
    check_increasing(non_empty, shape.slots, "positions of lists")
    if sum_of(counts) != shape.child_slots:
        raise CorruptFileError(f"lists of {sum_of(counts)} items in all, not {shape.child_slots}")
    return _Layer(shape, nulls, positions, non_empty, counts)


def _validity(layer: _Layer, slots: Rows) -> BoolArray | None:
    if not layer.positions.count:
        return None if layer.nulls else np.zeros(len(slots), np.bool_)
    if isinstance(slots, range):
        first, last = layer.positions.rank(np.array([slots.start, slots.stop])).tolist()
        listed = np.zeros(len(slots), np.bool_)
        listed[layer.positions.values_at(np.arange(first, last)) - slots.start] = True
    else:
        listed, _ = find_positions(layer.positions, slots)
    validity: BoolArray = ~listed if layer.nulls else listed
    return validity


def _children(non_empty: Numbers, counts: Numbers, slots: Rows) -> tuple[IndexArray, Rows]:
    """Return the lengths of lists, and the slots of their items."""
    lengths = np.zeros(len(slots), np.int64)
    if isinstance(slots, range):
        bounds = non_empty.rank(np.array([slots.start, slots.stop]))
        indices = np.arange(bounds[0], bounds[1])
        lengths[non_empty.values_at(indices) - slots.start] = counts.values_at(indices)
        start, stop = counts.total(bounds).tolist()
        _require_readable(stop - start)
        return lengths, range(start, stop)
    listed, indices = find_positions(non_empty, slots)
    indices = indices[listed]
    lengths[listed] = counts.values_at(indices)
    _require_readable(int(lengths.sum()))
    return lengths, ranges(counts.total(indices), counts.values_at(indices))


def _require_readable(slots: int) -> None:
    if slots > _MAX_READ:
        raise CorruptFileError(f"{slots} slots at once; if they are meant, read fewer rows")
