"""Data files of encodings that no current release writes, or that it writes for large values
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from lance_spark.proto import encodings_v2_0_pb2 as pb
from tests.encoding.v2_0.files import make
from tests.encoding.v2_0.test_handmade import READ, flat, some_nulls
from tests.encoding.v2_3.pages import SPARSE, nulls_at
from tests.encoding.v2_3.test_hostile import Case
from tests.support.encodings.fixed import pack

Made = tuple[pa.DataType, int, list[bytes], pb.ArrayEncoding]


def files_2_0(folder: Path) -> Iterator[bytes]:
    """Yield files made by hand: each arm of `ArrayEncoding` that version 2.0 has."""
    made: list[Made] = [
        (dtype, rows, data, encoding) for dtype, rows, data, encoding, _ in READ.values()
    ]
    for dtype, rows, buffers, encoding in (*made, _packed(), _of_one_width()):
        path = make(folder / "rare.lance", pa.field("c", dtype), rows, buffers, encoding)
        yield Path(path).read_bytes()


def _packed() -> Made:
    rows, width = 1_500, 17
    words = np.zeros(2 * 1024, "<u4")
    words[:rows] = np.arange(rows) * 80
    message = pb.BitpackedForNonNeg(
        compressed_bits_per_value=width,
        uncompressed_bits_per_value=32,
        buffer=pb.Buffer(buffer_index=1),
    )
    bits = np.packbits(np.arange(rows) % 5 > 0, bitorder="little").tobytes()
    buffers = [bits, pack(words.reshape(-1, 1024), width).tobytes()]
    encoding = some_nulls(pb.ArrayEncoding(bitpacked_for_non_neg=message))
    return pa.uint32(), rows, buffers, encoding


def _of_one_width() -> Made:
    text = "".join(f"{number:05d}" for number in range(300)).encode()
    message = pb.FixedSizeBinary(bytes=flat(8), byte_width=5)
    return pa.string(), 300, [text], pb.ArrayEncoding(fixed_size_binary=message)


def indexed() -> Case:
    """Return few wide values, repeated many times: a dictionary saves bytes in sparse pages."""
    rng = np.random.default_rng(4)
    items = pa.array([rng.bytes(4_200) for _ in range(16)])
    return nulls_at(items.take(pa.array(rng.integers(0, 16, 300))), 0.2), SPARSE
