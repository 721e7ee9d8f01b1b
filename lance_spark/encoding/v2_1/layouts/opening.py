"""Opens the reader of a page of file versions 2.1 and 2.2, by its layout."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import PageMeta
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import PageReader, parse_layout
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb


def open_page(meta: PageMeta, leaf: Leaf) -> PageReader:
    """Return the reader for a page by its layout.

    Raises
    ------
    CorruptFileError
        The page's message cannot be parsed, or contradicts the page's buffers.
    UnsupportedEncodingError
        The layout is not known to this release.
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
        from lance_spark.encoding.v2_1.layouts.mini_block_read import MiniBlockPage

        return MiniBlockPage(message.mini_block_layout, meta, leaf)
    if layout == "full_zip_layout":
        from lance_spark.encoding.v2_1.layouts.full_zip_read import FullZipPage

        return FullZipPage(message.full_zip_layout, meta, leaf)
    if layout == "constant_layout":
        from lance_spark.encoding.v2_1.layouts.constant_read import ConstantPage

        return ConstantPage(message.constant_layout, meta, leaf)
    if layout == "blob_layout":
        from lance_spark.encoding.v2_1.layouts.blob_read import BlobPage

        return BlobPage(message.blob_layout, meta, leaf, open_layout)
    raise UnsupportedEncodingError(f"page layout {layout or 'unknown'!r} cannot be read")
