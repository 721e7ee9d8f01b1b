"""Fields and pages of file version 2.3. Only reading is supported.

Fields and leaf columns are those of versions 2.1 and 2.2. A page has a structure plane and a value
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

Specification: PlanarLayout in protos/encodings_v2_3.proto.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.levels import parse_layers
from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageMeta
from lance_spark.encoding.v2_1.field_read import StructuralField
from lance_spark.encoding.v2_1.layouts.opening import open_layout
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import SlottedReader
from lance_spark.encoding.v2_3.value_layout import as_layout
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_3_pb2 as pb


def open_field(field: pa.Field, columns: Sequence[ColumnMeta], file: str) -> FieldReader:
    """Return the reader of a field; see `lance_spark.encoding.v2_1.field.open_field`."""
    return StructuralField(field, columns, file, open_page)


def open_page(meta: PageMeta, leaf: Leaf) -> SlottedReader:
    """Return the reader for a page by its planes.

    Raises
    ------
    CorruptFileError
        The page's message cannot be parsed, or contradicts itself or the page's buffers.
    UnsupportedEncodingError
        A plane is not known to this release.
    """
    try:
        message = pb.PlanarLayout.FromString(meta.encoding)
    except DecodeError as error:
        raise CorruptFileError(f"the page's description cannot be parsed: {error}") from None
    structure = message.structure.WhichOneof("codec")
    if structure == "sparse":
        from lance_spark.encoding.v2_3.sparse_page import SparsePage

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
