"""Writes pages of version 2.3 without values: all values are null, or there are none.

The page has a sparse structure (`lance_spark.encoding.v2_3.sparse` reads it). Numbers of a layer,
such as positions, are one buffer of 64-bit numbers; there is no buffer if there are no numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.levels import LayerSlots, Step, unravel
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.source import Bytes

_Validity = pb.SparseValiditySet


def write_without_values(column: LeafColumn) -> EncodedPage:
    """Return the page of a column without values that are not null."""
    steps = column.leaf.steps
    planar = pb.PlanarLayout()
    planar.values.no_values.SetInParent()
    buffers: list[Bytes] = []
    slots = unravel(column.levels, steps)
    for layer, step in zip(reversed(slots), reversed(steps), strict=True):
        _write_layer(planar.structure.sparse.layers.add(), layer, step, buffers)
    return EncodedPage(tuple(buffers), column.num_rows, planar.SerializeToString())


def _write_layer(
    message: pb.SparseStructuralLayer, layer: LayerSlots, step: Step, buffers: list[Bytes]
) -> None:
    if layer.lengths is not None:
        lists = message.list
        non_empty = np.flatnonzero(layer.lengths)
        lists.num_child_slots = int(layer.lengths.sum())
        lists.num_non_empty_positions = len(non_empty)
        lists.non_empty_positions.CopyFrom(_sequence(non_empty, buffers))
        lists.counts.CopyFrom(_sequence(layer.lengths[non_empty], buffers))
        validity = lists.validity
    elif step.is_vector:
        message.fixed_size_list.dimension = step.dimension
        validity = message.fixed_size_list.validity
    else:
        validity = message.validity
    nulls = np.zeros(0, np.int64) if layer.validity is None else np.flatnonzero(~layer.validity)
    if len(nulls) == layer.count:
        validity.meaning = _Validity.SPARSE_VALIDITY_VALID_POSITIONS
        nulls = nulls[:0]
    else:
        validity.meaning = _Validity.SPARSE_VALIDITY_NULL_POSITIONS
    validity.num_positions = len(nulls)
    validity.positions.CopyFrom(_sequence(nulls, buffers))


def _sequence(numbers: npt.NDArray[np.int64], buffers: list[Bytes]) -> pb21.CompressiveEncoding:
    """Return the encoding of some numbers, and add its buffer."""
    encoding = pb21.CompressiveEncoding()
    if len(numbers):
        encoding.flat.bits_per_value = 64
        buffers.append(np.ascontiguousarray(numbers, "<u8").view(np.uint8))
    else:
        encoding.constant.SetInParent()
    return encoding
