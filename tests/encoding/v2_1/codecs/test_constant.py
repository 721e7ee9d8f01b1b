"""Constant: only the message holds the value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.blocks import FixedWidthBlock, from_block
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    Chunks,
    decode_block,
    decode_blocks,
    decode_chunks,
    decode_values,
)
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb

NOTHING = np.zeros(0, np.uint8)


def message(value: bytes) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(constant=pb.Constant(value=value))


def test_every_way_of_use():
    encoding = message(b"\x01\x02\x03")
    empty = ChunkBuffer(NOTHING, np.zeros(2, np.int64), np.zeros(2, np.int64))
    counts = np.array([2, 1])
    for result in (
        decode_block(encoding, NOTHING, 3),
        decode_blocks(encoding, empty, counts),
        decode_chunks(encoding, Chunks((), counts)),
        decode_chunks(encoding, Chunks((empty,), counts)),
        decode_values(encoding, FixedWidthBlock(NOTHING, 8, 3)),
    ):
        assert (result.bits_per_value, result.num_values) == (24, 3)
        assert result.data.tobytes() == b"\x01\x02\x03" * 3


def test_hostile_counts():
    with pytest.raises(CorruptFileError, match="in one page"):
        decode_block(message(b"\1\2"), NOTHING, 1 << 40)


@pytest.mark.parametrize("without", [pb.Constant(), pb.Constant(value=b"")])
def test_no_value(without):
    """All values are null: they have no bits."""
    result = decode_block(pb.CompressiveEncoding(constant=without), NOTHING, 3)
    assert (result.bits_per_value, result.num_values, len(result.data)) == (0, 3, 0)
    assert from_block(result, pa.null()).equals(pa.nulls(3))
    with pytest.raises(CorruptFileError, match="values of 0 bits"):
        from_block(result, pa.int8())
