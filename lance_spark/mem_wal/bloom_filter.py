"""The Bloom filter of the keys of an SSTable: `bloom_filter.bin`.

The file is a split-block Bloom filter as in Parquet, without a header: blocks of 8 words of 32
bits, little-endian. The upper half of the hash of a key (`key_hash`) chooses the block, the lower
half a bit in each word. Writers make 1,024 blocks for any number of keys. So the filters of
SSTables with more than about 50,000 keys seem to have many other keys. Keys of superseded rows and
of tombstones are in it, too.

pylance 14 leaves values of some types out (`key_bytes.FULLY_HASHED` has the others). A writer here
adds the key without and with them, so that no reader misses a key. A reader here does not use the
filter of such a key. Specification: table/mem_wal.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import distinct
from lance_spark.errors import CorruptFileError
from lance_spark.mem_wal.key_bytes import FULLY_HASHED
from lance_spark.mem_wal.key_hash import key_hashes
from lance_spark.scan.indexes.zoned.split_blocks import BLOCK_BYTES, block_of, filter_of, masks_of

FILE = "bloom_filter.bin"
#: Bytes of a new filter.
FILTER_BYTES = 32 * 1024
MAX_FILTER_BYTES = 128 * 1024 * 1024


def encode_filter(columns: Sequence[pa.Array]) -> bytes:
    """Return the bytes of the filter of some keys.

    - `columns`: The columns of the key, in its order; none in a table without a key.
    """
    if not columns:
        return bytes(FILTER_BYTES)
    hashes = key_hashes(columns, as_pylance=True)
    if not _is_fully_hashed(columns):
        hashes = np.concatenate([distinct(hashes), key_hashes(columns)])
    return filter_of(hashes, FILTER_BYTES).tobytes()


def may_have(data: bytes, columns: Sequence[pa.Array], name: str) -> npt.NDArray[np.bool_]:
    """Return for each key whether an SSTable may have it; never False for a key that it has.

    - `data`: The filter.
    - `columns`: The columns of the key, in its order.
    - `name`: The name of the file in errors.

    Raises CorruptFileError.
    """
    if not data or len(data) % BLOCK_BYTES or len(data) > MAX_FILTER_BYTES:
        raise CorruptFileError(
            f"{name}: the file has {len(data)} bytes, but a Bloom filter consists of 1 to "
            f"{MAX_FILTER_BYTES // BLOCK_BYTES} blocks of {BLOCK_BYTES} bytes"
        )
    if not _is_fully_hashed(columns):
        return np.ones(len(columns[0]), np.bool_)
    hashes = key_hashes(columns)
    words = np.frombuffer(data, "<u4").reshape(-1, BLOCK_BYTES // 4)
    blocks = words[block_of(hashes, np.uint64(len(words))).astype(np.int64)]
    masks = masks_of(hashes)
    may_contain: npt.NDArray[np.bool_] = ((blocks & masks) == masks).all(axis=1)
    return may_contain


def _is_fully_hashed(columns: Sequence[pa.Array]) -> bool:
    return all(column.type in FULLY_HASHED for column in columns)
