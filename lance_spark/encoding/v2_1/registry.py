"""The codecs of file versions 2.1 to 2.3 by the name of their field in the `CompressiveEncoding`
oneof.

Modules are imported when a page first asks for them: planning never does.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks, Codec
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

_CODECS = {
    "flat": ("v2_1.codecs.flat", "FlatCodec"),
    "variable": ("v2_1.codecs.variable", "VariableCodec"),
    "constant": ("v2_1.codecs.constant", "ConstantCodec"),
    "out_of_line_bitpacking": ("v2_1.codecs.out_of_line_bitpacking", "OutOfLineBitpackingCodec"),
    "inline_bitpacking": ("v2_1.codecs.inline_bitpacking", "InlineBitpackingCodec"),
    "fsst": ("v2_1.codecs.strings.fsst", "FsstCodec"),
    "dictionary": ("v2_1.codecs.dictionary", "DictionaryCodec"),
    "rle": ("v2_1.codecs.rle", "RleCodec"),
    "byte_stream_split": ("v2_1.codecs.byte_stream_split", "ByteStreamSplitCodec"),
    "general": ("v2_1.codecs.general", "GeneralCodec"),
    "fixed_size_list": ("v2_1.codecs.fixed_size_list", "FixedSizeListCodec"),
    "packed_struct": ("v2_1.codecs.packed_struct", "PackedStructCodec"),
    "variable_packed_struct": ("v2_1.codecs.variable_packed_struct", "VariablePackedStructCodec"),
    "range": ("v2_3.range", "RangeCodec"),
    "delta": ("v2_3.delta", "DeltaCodec"),
}


@cache
def codec(name: str) -> Codec:
    """Return the codec of a oneof field name.

    Raises
    ------
    UnsupportedEncodingError
        The name is not known to this release.
    """
    try:
        module, cls = _CODECS[name]
    except KeyError:
        raise UnsupportedEncodingError(f"unknown compressive encoding {name!r}") from None
    instance: Codec = getattr(import_module(f"lance_spark.encoding.{module}"), cls)()
    return instance


def _split(encoding: pb.CompressiveEncoding) -> tuple[Codec, object]:
    name = encoding.WhichOneof("compression")
    if name is None:
        raise UnsupportedEncodingError(
            "the page names a compressive encoding that this release does not know"
        )
    return codec(name), getattr(encoding, name)


def decode_chunks(encoding: pb.CompressiveEncoding, chunks: Chunks) -> DataBlock:
    """Decode mini-block chunks as `encoding` says; see `Codec.decode_chunks`."""
    result, message = _split(encoding)
    return result.decode_chunks(message, chunks)


def decode_block(encoding: pb.CompressiveEncoding, data: Bytes, num_values: int) -> DataBlock:
    """Decode one buffer as `encoding` says; see `Codec.decode_block`."""
    result, message = _split(encoding)
    return result.decode_block(message, data, num_values)


def decode_blocks(
    encoding: pb.CompressiveEncoding, buffer: ChunkBuffer, num_values: npt.NDArray[np.int64]
) -> FixedWidthBlock:
    """Decode many single buffers, such as the levels of all chunks; see `Codec.decode_blocks`."""
    result, message = _split(encoding)
    return result.decode_blocks(message, buffer, num_values)


def decode_values(encoding: pb.CompressiveEncoding, values: DataBlock) -> DataBlock:
    """Decode the values of a full-zip page as `encoding` says; see `Codec.decode_values`."""
    result, message = _split(encoding)
    return result.decode_values(message, values)
