"""Blob pages of version 2.1, read and written: the positions of the values of a blob column.

``BlobLayout { inner_layout, layers }``: the page itself has the inner layout, whose values are
packed structs of 16 bytes, never null. Values of size zero are the nulls:

=========  =========  ============================================================================
bytes      field      content
=========  =========  ============================================================================
0 to 7     position   byte of the file where the value starts; without a size: 0 for an empty value,
                      otherwise repetition level, and definition level << 16
8 to 15    size       bytes of the value
=========  =========  ============================================================================

Repetition levels of values that are not null are not stored, so neither this package nor pylance
can read lists of blobs. Specification: format/file/encoding, "Blob page layout".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import (
    Layer,
    Levels,
    layer_numbers,
    max_definition,
    max_repetition,
    parse_layers,
)
from lance_spark.encoding.meta import EncodedPage, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import PageReader, PageRows, check_layers
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError, UnsupportedTypeError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ReadPlan


class BlobPage(PageReader):
    """Reads the positions and sizes of blobs.

    - `leaf`: Leaf of a struct of position and size.
    - `open_layout`: Opens the reader of the inner layout.

    Raises CorruptFileError: the layers do not match the type of the column. Raises
    UnsupportedEncodingError: the column is below a list.
    """

    def __init__(
        self,
        layout: pb.BlobLayout,
        meta: PageMeta,
        leaf: Leaf,
        open_layout: Callable[[pb.PageLayout, PageMeta, Leaf], PageReader],
    ) -> None:
        self._layers = check_layers(parse_layers(layout.layers), leaf)
        if any(layer.is_list for layer in self._layers):
            raise UnsupportedEncodingError(
                "lists of blobs in files of version 2.1 do not say where a list ends"
            )
        if layout.inner_layout.WhichOneof("layout") == "blob_layout":
            raise CorruptFileError("a blob page inside a blob page")
        inner = leaf._replace(steps=leaf.steps[:1])
        self._inner = open_layout(layout.inner_layout, meta, inner)

    def read(self, rows: Rows) -> ReadPlan[PageRows]:
        """Plan the reading of some rows."""
        descriptors = yield from self._inner.read(rows)
        values = descriptors.values
        if not isinstance(descriptors, PageRows) or descriptors.levels.definition is not None:
            raise CorruptFileError("places of blobs have levels of their own")
        if not max_definition(self._layers):
            return PageRows(values, Levels(self._layers, len(values)))
        positions = values.field(0).to_numpy()
        sizes = values.field(1).to_numpy()
        stated = np.where(sizes == 0, positions >> np.uint64(16), 0)
        if int(stated.max(initial=0)) > max_definition(self._layers):
            raise CorruptFileError(f"definition level {int(stated.max())} of a blob")
        levels = Levels(self._layers, len(values), None, stated.astype(np.uint16))
        return PageRows(values, levels)


def write_blob(column: LeafColumn, encode: Callable[[LeafColumn], EncodedPage]) -> EncodedPage:
    """Return the page with the positions and sizes of blobs.

    - `column`: Of structs of position and size.
    - `encode`: Encodes the same structs without levels and nulls.

    Raises UnsupportedTypeError: the blobs are in lists.
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
    # pylance reads only the default layout here, so the hints of the column are ignored.
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
