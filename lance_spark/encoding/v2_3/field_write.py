"""Writing a field of file version 2.3: the pages of version 2.2, described as two planes.

===================  ===============================================
page of version 2.2  written as
===================  ===============================================
mini-block           dense structure, chunked values
full-zip             dense structure, zipped values
one scalar           dense structure, a constant
all null             dense structure, no values
===================  ===============================================

A dense structure without values has no levels. So a page without values below lists and structs has
a sparse structure. Other sparse structures are read, and
not written: pylance chooses them for most nulls, and reads dense ones as well.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.levels import LayerSlots, Step, unravel
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.shred import LeafColumn, shred
from lance_spark.encoding.v2_1.strategy import encode_leaf, is_empty_struct
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.source import Bytes

# --------------------------------------------------------------------------------------------------
# Writes pages of version 2.3 without values: all values are null, or there are none.
#
# The page has a sparse structure (`lance_spark.encoding.v2_3.sparse` reads it). Numbers of a layer,
# such as positions, are one buffer of 64-bit numbers; there is no buffer if there are no numbers.

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


# --------------------------------------------------------------------------------------------------
# Writing a field of file version 2.3: the pages of version 2.2, described as two planes.


def encode_field(array: pa.Array, field: pa.Field, version: tuple[int, int]) -> list[EncodedPage]:
    """Return one page for each leaf column of a field; see `v2_1.field_write.encode_field`."""
    return [_encode_leaf(column, version) for column in shred(array, field)]


def _encode_leaf(column: LeafColumn, version: tuple[int, int]) -> EncodedPage:
    if is_empty_struct(column) or not (column.has_values or column.has_one_level):
        return write_without_values(column)
    page = encode_leaf(column, version)
    layout = pb21.PageLayout.FromString(page.encoding)
    return replace(page, encoding=_planar(layout))


def _planar(page: pb21.PageLayout) -> bytes:
    name = page.WhichOneof("layout")
    planar = pb.PlanarLayout()
    if name == "mini_block_layout":
        _chunked(page.mini_block_layout, planar.values.chunked)
    elif name == "full_zip_layout":
        _zipped(page.full_zip_layout, planar.values.zipped)
    elif page.constant_layout.HasField("inline_value"):
        planar.values.constant.scalar = page.constant_layout.inline_value
    else:
        planar.values.no_values.SetInParent()
    planar.structure.dense.layers.extend(getattr(page, name).layers)
    return planar.SerializeToString()


def _chunked(layout: pb21.MiniBlockLayout, values: pb.ChunkedValues) -> None:
    values.compression.CopyFrom(layout.value_compression)
    values.num_buffers = layout.num_buffers
    values.num_items = layout.num_items
    levels = values.levels
    levels.repetition_index_depth = layout.repetition_index_depth
    levels.SetInParent()
    # The presence of these messages determines which buffers exist.
    if layout.HasField("rep_compression"):
        levels.repetition.CopyFrom(layout.rep_compression)
    if layout.HasField("def_compression"):
        levels.definition.CopyFrom(layout.def_compression)
    if layout.HasField("dictionary"):
        values.dictionary.CopyFrom(layout.dictionary)
        values.num_dictionary_items = layout.num_dictionary_items


def _zipped(layout: pb21.FullZipLayout, values: pb.ZippedValues) -> None:
    values.compression.CopyFrom(layout.value_compression)
    values.levels.bits_repetition = layout.bits_rep
    values.levels.bits_definition = layout.bits_def
    values.levels.SetInParent()
    values.num_items = layout.num_items
    values.num_visible_items = layout.num_visible_items
    if layout.WhichOneof("details") == "bits_per_offset":
        values.bits_per_offset = layout.bits_per_offset
    else:
        values.bits_per_value = layout.bits_per_value
