"""The maximum size of the decoded values of a page, from its description.

| stored as | decoded |
| --- | --- |
| flat, variable, fixed-size list of these | as many bytes |
| FSST | eight times as many: a code of one byte stands for eight |
| bit-packed, runs, differences | the number of values times their width |
| dictionary | the number of values times all its items, as one item may be nearly all |
| constant | the number of rows times the value |

Each value with an offset or levels has sixteen bytes more. The size of values that a general
compressor compressed is not known, but a compressed dictionary begins with its length.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from lance_spark.encoding.compression import claimed_size, scheme_of
from lance_spark.encoding.meta import PageMeta
from lance_spark.encoding.v2_1.page import parse_layout
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes

_FSST = 8
#: Offset and levels of a value.
_BESIDE = 16


#: Returns the bytes of a range of the file.
Read = Callable[[ByteRange], Bytes]


def max_decoded_bytes(page: PageMeta, read: Read | None = None) -> int | None:
    """Return the maximum bytes of the decoded values of a page of version 2.1 or 2.2; None if
    unknown.

    - `read`: Reads a range of the file, if that costs no request.
    """
    stored = sum(buffer.length for buffer in page.buffers) + len(page.encoding)
    try:
        message = parse_layout(page.encoding)
    except DecodeError:
        return None
    layout_name = message.WhichOneof("layout")
    if layout_name == "mini_block_layout":
        return _mini_block(message.mini_block_layout, page, stored, read)
    if layout_name == "full_zip_layout":
        zipped = message.full_zip_layout
        values = _values(zipped.value_compression, stored, zipped.num_items)
        return None if values is None else values + zipped.num_items * _BESIDE
    if layout_name == "constant_layout":
        constant = message.constant_layout
        count = max(page.num_rows, constant.num_rep_values, constant.num_def_values)
        return int(count * (stored + _BESIDE))
    return None


def dictionary_item_bytes(page: PageMeta) -> float:
    """Return the mean bytes of an item of the dictionary of a page in the file; 0 without a
    dictionary.

    Values that repeat a long item take few bytes in a page, but each takes the bytes of the item
    once it is decoded.
    """
    try:
        message = parse_layout(page.encoding)
    except DecodeError:
        return 0.0
    if message.WhichOneof("layout") != "mini_block_layout":
        return 0.0
    layout = message.mini_block_layout
    if not layout.HasField("dictionary") or not layout.num_dictionary_items:
        return 0.0
    if len(page.buffers) < 3:
        return 0.0
    return float(page.buffers[2].length / layout.num_dictionary_items)


def _mini_block(
    layout: pb.MiniBlockLayout, page: PageMeta, stored: int, read: Read | None
) -> int | None:
    count = layout.num_items
    if layout.HasField("dictionary"):
        items = _dictionary(layout, page, read)
        values = None if items is None else items * count
    else:
        values = _values(layout.value_compression, stored, count)
    return None if values is None else int(values + count * _BESIDE)


def _dictionary(layout: pb.MiniBlockLayout, page: PageMeta, read: Read | None) -> int | None:
    encoding, count = layout.dictionary, layout.num_dictionary_items
    if len(page.buffers) < 3:
        return None
    offset, size = page.buffers[2]
    if encoding.WhichOneof("compression") != "general":
        return _values(encoding, size, count)
    if read is None:
        return None
    try:
        scheme = scheme_of(encoding.general.compression)
    except UnsupportedEncodingError:
        return None
    claimed = claimed_size(scheme, read(ByteRange(offset, min(size, 8))).tobytes())
    return None if claimed is None else _values(encoding.general.values, claimed, count)


def _values(encoding: pb.CompressiveEncoding, stored: int, count: int) -> int | None:
    compression = encoding.WhichOneof("compression")
    if compression == "flat":
        return None if encoding.flat.HasField("data") else stored
    if compression == "variable":
        return None if encoding.variable.HasField("values") else stored
    if compression == "fsst":
        inner = _values(encoding.fsst.values, stored, count)
        return None if inner is None else inner * _FSST
    if compression == "fixed_size_list":
        vectors = encoding.fixed_size_list
        return _values(vectors.values, stored, count * vectors.items_per_value)
    if compression in ("inline_bitpacking", "out_of_line_bitpacking", "range", "delta"):
        bits = getattr(encoding, compression).uncompressed_bits_per_value
        return int(count * bits // 8)
    if compression == "rle":
        bits = encoding.rle.values.flat.bits_per_value
        return int(count * bits // 8) if bits else None
    if compression == "byte_stream_split":
        return stored
    return None
