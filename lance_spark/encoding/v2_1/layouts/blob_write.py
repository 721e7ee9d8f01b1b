"""Writes blob pages of version 2.1; `blob_read` documents the layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import Layer, Levels, layer_numbers, max_repetition
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.errors import UnsupportedTypeError
from lance_spark.proto import encodings_v2_1_pb2 as pb


def write_blob(column: LeafColumn, encode: Callable[[LeafColumn], EncodedPage]) -> EncodedPage:
    """Return the page of a column that says where blobs are.

    Parameters
    ----------
    column : LeafColumn
        Of structs of position and size.
    encode : callable
        Encodes the same structs without levels, none of them null.

    Raises
    ------
    UnsupportedTypeError
        The blobs are in lists.
    """
    levels = column.levels
    if max_repetition(levels.layers):
        raise UnsupportedTypeError(
            f"column {column.leaf.path!r}: lists of blobs need data storage version 2.2"
        )
    values = column.values
    if levels.definition is not None:
        stated = levels.definition.astype(np.uint64) << np.uint64(16)
        positions, sizes = (values.field(position).fill_null(0).to_numpy() for position in (0, 1))
        null = levels.definition != 0
        children = [
            pa.array(np.where(null, stated, positions)),
            pa.array(np.where(null, np.uint64(0), sizes)),
        ]
        values = pa.Array.from_buffers(values.type, len(values), [None], children=children)
    # Other layouts than the default one, which the column's metadata may ask for, pylance does not
    # read here.
    plain_field = column.leaf.field.with_metadata({"lance-encoding:packed": "true"})
    leaf = column.leaf._replace(field=plain_field, steps=column.leaf.steps[:1])
    plain = Levels((Layer.ALL_VALID_ITEM,), len(values))
    inner = encode(LeafColumn(leaf, column.num_rows, values, None, plain))
    layout = pb.PageLayout(
        blob_layout=pb.BlobLayout(
            inner_layout=pb.PageLayout.FromString(inner.encoding),
            layers=layer_numbers(levels.layers),
        )
    )
    return replace(inner, encoding=layout.SerializeToString())
