"""Damaged pages of encodings that no writer makes; the checks are the same as in `test_hostile`.

Pages that end in an error name themselves: file, column and page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import UnsupportedEncodingError
from lance_spark.file.footer import Tail, read_columns, read_footer
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.local import LocalSource
from tests.encoding.v2_1 import test_hostile
from tests.encoding.v2_1.handmade_cases import CASES
from tests.encoding.v2_1.mini_block_cases import (
    Case,
    bits,
    one_buffer,
    rle,
    text_case,
    text_chunk,
)
from tests.encoding.v2_1.test_hostile import Damaged, StrictSource, reads, traced
from tests.support.encodings.handmade import CE, file_of, flat, ours

__all__ = ["traced"]

NAMES = [
    "rle both zstd",
    "rle values packed",
    "rle lengths packed",
    "rle lengths lz4 of packed",
    "packed values",
    "wide integers",
    "wide integers, signs",
    "null items, general",
    "null items, inline packed",
    "packed struct, general inside",
    "fsst of general",
    "dictionary 64, old header",
    "dictionary zstd of lz4",
    "dictionary of numbers, runs",
    "dictionary in dictionary",
    "dictionary in dictionary of numbers",
    "levels inline packed",
    "levels zstd of runs",
    "levels runs, lengths zstd",
    "levels dictionary",
    "constant values",
    "index of depth 3",
    "zip vectors, all null",
    "zip text rows, fsst",
    "constant text in lists",
    "constant large text of 32 bits",
    "constant vector",
    "null lists packed",
    "null lists runs",
]


@pytest.fixture(scope="module", params=NAMES)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    case = CASES[request.param]()
    raw = file_of(case.array, case.version, case.make, case.field)
    path = tmp_path_factory.mktemp("f") / "f.lance"
    path.write_bytes(raw)
    tail = Tail(LocalSource(str(path)))
    footer = read_footer(tail)
    columns = read_columns(tail, footer, range(len(footer.column_metadata)))
    field = case.field or pa.field("c", case.array.type)
    assert reads(field, columns, StrictSource(raw))
    return field, columns, raw


test_flipped_bits_of_pages = test_hostile.test_flipped_bits_of_pages
test_flipped_bits_of_messages = test_hostile.test_flipped_bits_of_messages
test_numbers_of_messages = test_hostile.test_numbers_of_messages
test_buffers_cut_short = test_hostile.test_buffers_cut_short
test_pages_that_claim_more_rows = test_hostile.test_pages_that_claim_more_rows


SCHEME = pb.BufferCompression(scheme=pb.COMPRESSION_ALGORITHM_ZSTD)


def as_is(part: np.ndarray) -> bytes:
    return part.tobytes()


#: Encodings that messages can express and no Lance reader supports: pylance ignores the compressors
#: named here.
REFUSED: dict[str, Callable[[], Case]] = {
    "flat values that went through a compressor": lambda: one_buffer(
        CE(flat=pb.Flat(bits_per_value=64, data=SCHEME)), as_is
    ),
    "bit-packed chunks that went through a compressor": lambda: one_buffer(
        CE(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=64, values=SCHEME)),
        as_is,
    ),
    "strings whose bytes are compressed on their own": lambda: text_case(
        CE(variable=pb.Variable(offsets=flat(32), values=SCHEME)), text_chunk
    ),
    "string offsets": lambda: text_case(
        CE(variable=pb.Variable(offsets=CE(constant=pb.Constant()))), text_chunk
    ),
    "runs whose values and lengths are both bit-packed": lambda: rle(bits(40), bits(6)),
    "encoding 'dictionary' cannot be used inside mini-blocks": lambda: one_buffer(
        CE(dictionary=pb.Dictionary(indices=flat(8), items=flat(64))), as_is
    ),
    "byte stream split whose values are not flat": lambda: one_buffer(
        CE(byte_stream_split=pb.ByteStreamSplit(values=CE(constant=pb.Constant()))), as_is
    ),
    "flat values of 7 bits": lambda: one_buffer(flat(7), as_is),
    "names a compressive encoding that this release does not know": lambda: one_buffer(CE(), as_is),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_by_name(tmp_path: Path, message: str) -> None:
    case = REFUSED[message]()
    path = tmp_path / "f.lance"
    path.write_bytes(file_of(case.array, case.version, case.make, case.field))
    with pytest.raises(UnsupportedEncodingError) as caught:
        ours(path)
    assert message in str(caught.value)
    assert "f.lance, column 'c', page 0" in str(caught.value)
