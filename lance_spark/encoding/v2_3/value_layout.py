"""Converts value planes of file version 2.3 to page layouts of version 2.2 with the same bytes."""

from __future__ import annotations

from collections.abc import Iterable

from lance_spark.encoding.levels import Layer, layer_numbers
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb

_MAX_BITS = (1 << 32) - 1


def as_layout(values: pb.ValuePlane, layers: Iterable[Layer]) -> pb21.PageLayout:
    """Return the layout of version 2.2 that has the bytes of a value plane.

    Parameters
    ----------
    values : pb.ValuePlane
        Chunked, zipped, constant or none.
    layers : iterable of Layer
        Layers of the page, leaf first.

    Raises
    ------
    UnsupportedEncodingError
        The plane has no such layout.
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
    # Whether these are there at all says which buffers are.
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
