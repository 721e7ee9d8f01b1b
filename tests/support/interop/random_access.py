"""What reads of a few rows of a page may cost by the description of the page, and columns to try it
on.

The specification promises two reads for any value of a file of version 2.1 or later, once the page's search structures are in memory:

=====================  =========================================  ============================================
layout                 search structures                          a row
=====================  =========================================  ============================================
mini-block             chunk table, repetition index, dictionary  its chunk, or two of a list and all between
full-zip, fixed width  none                                       its bytes
full-zip, others       none                                       its two numbers in the index, then its bytes
constant               levels of lists, scalar                    its definition word, or nothing
sparse (2.3)           the structure, those of the values         as of the values
=====================  =========================================  ============================================

Version 2.0 promises nothing. A level of lists or strings is a read there, and compressed buffers are read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.meta import ColumnMeta, PageMeta
from lance_spark.proto import encodings_v2_0_pb2 as pb20
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb23

#: Reads of the same buffer that are nearer than this may be one read.
NEAR = 4 * 1024
NEAR_2_0 = 64 * 1024
#: Chunks have one or two sectors. This package writes longer chunks where this makes a page
#: smaller.
MAX_CHUNK = 48 * 1024


@dataclass(frozen=True)
class Cost:
    """What reads of rows of a page may cost.

    Attributes
    ----------
    kind : str
        For the test that all kinds occur.
    first, rounds : int
        Rounds of reads, of the first rows of a page and of those after.
    search : int
        Bytes of the search structures.
    row : int
        Bytes of a row beside its own.
    gap : int
        Bytes between two rows at most.
    own : bool
        Whether the row's own bytes are read besides.
    """

    kind: str
    first: int
    rounds: int
    search: int
    row: int
    gap: int
    own: bool = True


def costs(column: ColumnMeta, version: tuple[int, int], chunk_table: Callable) -> list[Cost]:
    """Return the cost of each page of a column; `chunk_table` gives the bytes of a buffer."""
    if version == (2, 0):
        return [_cost_2_0(page) for page in column.pages]
    result = []
    for page in column.pages:
        if version == (2, 3):
            result.append(_cost_2_3(page, chunk_table))
        else:
            result.append(_cost(pb21.PageLayout.FromString(page.encoding), page, chunk_table))
    return result


def _cost(layout: pb21.PageLayout, page: PageMeta, chunk_table: Callable) -> Cost:
    layout_name = layout.WhichOneof("layout")
    if layout_name == "blob_layout":
        return _cost(layout.blob_layout.inner_layout, page, chunk_table)
    if layout_name == "mini_block_layout":
        message = layout.mini_block_layout
        lists = message.repetition_index_depth > 0
        words = chunk_table(page.buffers[0])
        name = "mini"
        if message.HasField("dictionary"):
            name = "mini dictionary"
        elif lists:
            name = "mini lists"
        return _mini(name, words, message.has_large_chunk, lists, page)
    if layout_name == "full_zip_layout":
        return _zip(len(page.buffers) > 1)
    return _constant(layout.constant_layout, page)


def _mini(name: str, words: np.ndarray, large: bool, lists: bool, page: PageMeta) -> Cost:
    sizes = (words.view("<u4" if large else "<u2").astype(np.int64) // 16 + 1) * 8
    assert int(sizes.max()) <= MAX_CHUNK
    search = sum(buffer.length for buffer in page.buffers) - page.buffers[1].length
    return Cost(name, 2, 1, search, (1 + lists) * int(sizes.max()), 0, own=lists)


def _zip(indexed: bool) -> Cost:
    if indexed:
        # A short index is read whole and kept.
        return Cost("zip indexed", 2, 2, 4 * 1024, 64, 2 * NEAR)
    return Cost("zip fixed", 1, 1, 0, 64, NEAR)


def _constant(layout: pb21.ConstantLayout, page: PageMeta) -> Cost:
    sizes = [buffer.length for buffer in page.buffers]
    compressed = layout.def_compression.WhichOneof("compression") is not None
    if sizes and not sizes[-2:][0] and not compressed:
        return Cost("constant words", 1, 1, 0, 2, NEAR, own=False)
    return Cost("constant", min(sum(sizes), 1), 0, sum(sizes), 0, 0, own=False)


def _cost_2_3(page: PageMeta, chunk_table: Callable) -> Cost:
    layout = pb23.PlanarLayout.FromString(page.encoding)
    structure, values = layout.structure.WhichOneof("codec"), layout.values.WhichOneof("codec")
    dense = structure == "dense"
    if values == "chunked":
        lists = layout.values.chunked.levels.repetition_index_depth > 0
        cost = _mini("chunked", chunk_table(page.buffers[0]), True, lists, page)
    elif values == "zipped":
        strings = layout.values.zipped.WhichOneof("addressing") == "bits_per_offset"
        cost = _zip(strings or (dense and len(page.buffers) > 1))
    else:
        search = sum(buffer.length for buffer in page.buffers)
        cost = Cost(f"sparse {values}", min(search, 1), 0, search, 0, 0, own=False)
    if dense:
        return cost
    # The values of a list are adjacent, but rows without values have none.
    search = sum(buffer.length for buffer in page.buffers)
    return Cost(
        f"sparse {values}",
        cost.first + 1,
        cost.rounds,
        search,
        2 * cost.row,
        cost.gap,
    )


def _cost_2_0(page: PageMeta) -> Cost:
    encoding = pb20.ArrayEncoding.FromString(page.encoding)
    rounds = _rounds_2_0(encoding)
    text = str(encoding)
    if "compression" in text and "scheme" in text:
        # Compressed bytes are read and kept completely.
        return Cost("2.0 compressed", rounds, rounds, page.buffers[-1].length, 64, NEAR_2_0)
    if "dictionary" in text:
        search = sum(buffer.length for buffer in page.buffers[1:])
        return Cost("2.0 dictionary", 2, 1, search, 64, NEAR_2_0)
    encoding_name = encoding.WhichOneof("array_encoding")
    return Cost(f"2.0 {encoding_name}", rounds, rounds, 0, 64, rounds * NEAR_2_0)


def _rounds_2_0(encoding: pb20.ArrayEncoding) -> int:
    encoding_name = encoding.WhichOneof("array_encoding")
    if encoding_name == "nullable":
        inner = encoding.nullable
        if inner.HasField("no_nulls"):
            return _rounds_2_0(inner.no_nulls.values)
        return _rounds_2_0(inner.some_nulls.values) if inner.HasField("some_nulls") else 0
    if encoding_name == "fsst":
        return _rounds_2_0(encoding.fsst.binary)
    return {"binary": 2, "struct": 0}.get(encoding_name, 1)


# Columns whose pages have some MiB, or would have without compression.

I64 = pa.int64()
_WORDS = np.array([f"item number {i}" for i in range(1000)])


def numbers(rng: np.random.Generator, count: int) -> pa.Array:
    """Return integers that cannot be compressed."""
    return pa.array(rng.integers(0, 1 << 60, count))


def floats(rng: np.random.Generator, count: int) -> pa.Array:
    """Return floats that cannot be compressed."""
    return pa.array(rng.random(count, dtype=np.float32))


def strings(rng: np.random.Generator, count: int, size: int) -> pa.Array:
    """Return strings of half `size` to `size` letters."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(rng.integers(size // 2, size + 1, count), out=offsets[1:])
    letters = rng.integers(97, 123, int(offsets[-1]), dtype=np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def lists(rng: np.random.Generator, items: pa.Array, size: int) -> pa.Array:
    """Return lists of `size` items on average, some of them empty."""
    count = len(items) // size
    cuts = np.sort(rng.integers(0, len(items) + 1, count - 1))
    offsets = np.concatenate([[0], cuts, [len(items)]]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def some(rng: np.random.Generator, array: pa.Array) -> pa.Array:
    """Return the column with nulls."""
    return pc.if_else(pa.array(rng.random(len(array)) < 0.2), pa.scalar(None, array.type), array)


def vectors(rng: np.random.Generator, count: int, size: int) -> pa.Array:
    """Return vectors of floats."""
    return pa.FixedSizeListArray.from_arrays(floats(rng, count * size), size)


def struct(*children: pa.Array) -> pa.Array:
    """Return structs of children. A field is nullable if its child has nulls."""
    fields = [
        pa.field(f"f{i}", child.type, child.null_count > 0) for i, child in enumerate(children)
    ]
    return pa.StructArray.from_arrays(list(children), fields=fields)


Make = Callable[[np.random.Generator], pa.Array]
#: Columns, and the keys in the metadata of their fields.
COLUMNS: dict[str, tuple[Make, str]] = {
    "ints": (lambda rng: numbers(rng, 400_000), ""),
    "packed ints": (lambda rng: pa.array(rng.integers(0, 4000, 800_000), pa.int32()), ""),
    "nullable ints": (lambda rng: some(rng, numbers(rng, 400_000)), ""),
    "runs": (lambda rng: pa.array(np.repeat(rng.integers(0, 1 << 40, 40_000), 20)), ""),
    "bools": (lambda rng: pa.array(rng.random(2_000_000) < 0.5), ""),
    "decimals": (
        lambda rng: pa.array(rng.integers(0, 1 << 60, 150_000)).cast(pa.decimal128(38, 0)),
        "",
    ),
    "few strings": (lambda rng: pa.array(_WORDS[rng.integers(0, 1000, 400_000)]), ""),
    "dictionary": (
        lambda rng: pa.array(_WORDS[rng.integers(0, 1000, 400_000)]).dictionary_encode(),
        "",
    ),
    "strings": (lambda rng: strings(rng, 120_000, 40), ""),
    "zstd strings": (lambda rng: strings(rng, 120_000, 40), "compression=zstd"),
    "fsst strings": (lambda rng: strings(rng, 120_000, 40), "compression=fsst"),
    "zstd ints": (
        lambda rng: pa.array(rng.integers(0, 9, 400_000) << 33),
        "compression=zstd dict-divisor=1000000",
    ),
    "long strings": (lambda rng: strings(rng, 8_000, 1_000), ""),
    "zipped strings": (
        lambda rng: some(rng, strings(rng, 80_000, 60)),
        "structural-encoding=fullzip",
    ),
    "zipped zstd strings": (
        lambda rng: some(rng, strings(rng, 8_000, 1_000)),
        "structural-encoding=fullzip compression=zstd",
    ),
    "lists": (lambda rng: lists(rng, numbers(rng, 400_000), 5), ""),
    "nullable lists": (
        lambda rng: some(rng, lists(rng, some(rng, numbers(rng, 400_000)), 5)),
        "",
    ),
    "lists of lists": (lambda rng: lists(rng, lists(rng, numbers(rng, 400_000), 5), 3), ""),
    "lists of strings": (lambda rng: lists(rng, strings(rng, 120_000, 40), 4), ""),
    "long lists": (lambda rng: lists(rng, numbers(rng, 400_000), 20_000), ""),
    "struct of lists": (
        lambda rng: struct(
            lists(rng, numbers(rng, 300_000), 3), some(rng, strings(rng, 100_000, 30))
        ),
        "",
    ),
    "lists of structs": (
        lambda rng: lists(rng, struct(numbers(rng, 200_000), strings(rng, 200_000, 16)), 4),
        "",
    ),
    "short vectors": (lambda rng: vectors(rng, 100_000, 8), ""),
    "nullable short vectors": (lambda rng: some(rng, vectors(rng, 100_000, 8)), ""),
    "vectors": (lambda rng: vectors(rng, 6_000, 256), ""),
    "nullable vectors": (lambda rng: some(rng, vectors(rng, 6_000, 256)), ""),
    "lists of vectors": (lambda rng: lists(rng, vectors(rng, 6_000, 256), 3), ""),
    "packed": (lambda rng: struct(numbers(rng, 200_000), floats(rng, 200_000)), "packed=true"),
    "packed strings": (
        lambda rng: struct(numbers(rng, 80_000), strings(rng, 80_000, 40)),
        "packed=true",
    ),
    "constant": (lambda rng: pa.array(np.full(500_000, 7)), ""),
    "constant with nulls": (lambda rng: some(rng, pa.array(np.full(500_000, 7))), ""),
    "nulls": (lambda rng: pa.nulls(500_000, I64), ""),
    "lists of nulls": (lambda rng: lists(rng, pa.nulls(500_000, I64), 5), ""),
}


def column(name: str) -> tuple[pa.Array, pa.Field]:
    """Return a column and its field."""
    make, keys = COLUMNS[name]
    array = make(np.random.default_rng(5))
    metadata = dict(f"lance-encoding:{pair}".split("=") for pair in keys.split())
    return array, pa.field("c", array.type, array.null_count > 0, metadata or None)
