"""Damaged pages and messages of versions 2.1 and 2.2 give errors of this package or other values,
never anything else.

pylance writes the pages, a column for every layout and compression it has.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import pytest
from lance.file import LanceFileWriter

from lance_spark.encoding.meta import ColumnMeta
from lance_spark.encoding.v2_1.field_read import StructuralField
from lance_spark.encoding.v2_1.leaf_columns import leaf_fields
from lance_spark.errors import LanceError
from lance_spark.file.footer import Tail, read_columns, read_footer
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange, run_plans
from tests.file.sources import StrictSource
from tests.support.cells import number_of
from tests.support.interop.tables import PATTERNS, build

ROWS = 1_100
FLIPS = number_of(30, 1_000)
SECONDS = 1.0
#: A good page here takes less than a hundredth of it. The length before a Zstandard frame can claim
#: 64 MiB after a flip of one bit.
MAX_BYTES = 65 << 20

Case = tuple[pa.Array, dict[str, str]]
Damaged = tuple[pa.Field, Sequence[ColumnMeta], bytes]
_HINT = "lance-encoding:"


def made(
    dtype: pa.DataType,
    pattern: str = "random",
    nulls: float = 0.0,
    *,
    long: bool = False,
    **hints: str,
) -> Case:
    rng = np.random.default_rng(7)
    values = PATTERNS[pattern](ROWS, rng).astype(np.int64)
    metadata = {_HINT + key.replace("_", "-"): value for key, value in hints.items()}
    return build(dtype, values, nulls, rng, long=long), metadata


def words() -> pa.Array:
    rng = np.random.default_rng(3)
    known = [f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta") for b in range(40)]
    return pa.array([" ".join(rng.choice(known, 8)) for _ in range(ROWS)])


def vectors_with_null_items(dimension: int, dtype: pa.DataType) -> pa.Array:
    rng = np.random.default_rng(5)
    items = build(dtype, rng.integers(0, 2**40, ROWS * dimension), 0.1, rng)
    return pa.FixedSizeListArray.from_arrays(items, dimension)


def lists_of(items: pa.Array) -> pa.Array:
    offsets = np.minimum(np.arange(0, ROWS + 3, 3), len(items)).astype(np.int32)
    mask = pa.array(np.arange(len(offsets) - 1) % 5 == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)


def dictionary_array() -> pa.Array:
    rng = np.random.default_rng(9)
    items = pa.array([f"item {i}" for i in range(50)])
    return pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 50, ROWS), pa.int16()), items)


PACKED = {"packed": "true"}
STRUCT = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.float64(), False)])
TEXT_STRUCT = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.string(), False)])

CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "flat": ("2.1", lambda: made(pa.int64())),
    "flat_nulls": ("2.2", lambda: made(pa.float32(), nulls=0.3)),
    "bool": ("2.1", lambda: made(pa.bool_(), nulls=0.3)),
    "decimal": ("2.2", lambda: made(pa.decimal128(28, 4), nulls=0.1)),
    "bitpacked": ("2.2", lambda: made(pa.int64(), "low", 0.2)),
    "bitpacked_2_1": ("2.1", lambda: made(pa.uint16(), "sequential")),
    "runs": ("2.1", lambda: made(pa.int32(), "runs", rle_threshold="0.9")),
    "runs_2_2": ("2.2", lambda: made(pa.int64(), "runs", 0.2)),
    "byte_planes": ("2.2", lambda: made(pa.float64(), compression="lz4", bss="on")),
    "lz4": ("2.2", lambda: made(pa.int64(), "sequential", compression="lz4")),
    "zstd": ("2.1", lambda: made(pa.int64(), "long", compression="zstd")),
    "strings": ("2.1", lambda: made(pa.string(), nulls=0.2, compression="none")),
    "strings_lz4": ("2.2", lambda: made(pa.large_string(), nulls=0.2, compression="lz4")),
    "strings_zstd": ("2.2", lambda: made(pa.binary(), compression="zstd")),
    "fsst": ("2.1", lambda: (words(), {_HINT + "compression": "fsst"})),
    "fsst_2_2": ("2.2", lambda: (words(), {})),
    "dictionary": ("2.1", lambda: made(pa.string(), "low", 0.2)),
    "dictionary_2_2": ("2.2", lambda: made(pa.string(), "low")),
    "dictionary_fixed": ("2.2", lambda: made(pa.decimal128(28, 4), "low", dict_divisor="2")),
    "dictionary_array": ("2.2", lambda: (dictionary_array(), {})),
    "lists": ("2.1", lambda: made(pa.list_(pa.int32()), nulls=0.3)),
    "lists_2_2": ("2.2", lambda: made(pa.large_list(pa.string()), nulls=0.3)),
    "lists_of_lists": ("2.2", lambda: made(pa.list_(pa.list_(pa.int16())), nulls=0.3)),
    "structs": ("2.2", lambda: made(pa.struct([("a", pa.int32()), ("b", pa.string())]), nulls=0.3)),
    "lists_of_structs": (
        "2.1",
        lambda: made(pa.list_(pa.struct([("r", pa.list_(pa.string()))])), nulls=0.3),
    ),
    "maps": ("2.2", lambda: made(pa.map_(pa.string(), pa.int32()), nulls=0.3)),
    "full_zip": ("2.1", lambda: made(pa.int64(), nulls=0.2, structural_encoding="fullzip")),
    "full_zip_wide": ("2.2", lambda: made(pa.list_(pa.float32(), 128), nulls=0.2)),
    "full_zip_strings": (
        "2.1",
        lambda: made(pa.string(), "long", 0.2, structural_encoding="fullzip"),
    ),
    "full_zip_fsst": ("2.2", lambda: (words(), {_HINT + "structural-encoding": "fullzip"})),
    "full_zip_zstd": (
        "2.2",
        lambda: (
            pa.array([text * 40 for text in words()[:200].to_pylist()]),
            {_HINT + "structural-encoding": "fullzip", _HINT + "compression": "zstd"},
        ),
    ),
    "full_zip_lists": (
        "2.2",
        lambda: made(pa.list_(pa.field("item", pa.list_(pa.float64(), 40))), nulls=0.2),
    ),
    "full_zip_nested_lists": (
        "2.1",
        lambda: (lists_of(lists_of(made(pa.list_(pa.int64(), 40), nulls=0.2)[0])), {}),
    ),
    "full_zip_string_lists": (
        "2.2",
        lambda: (
            lists_of(pa.array([text * 30 for text in words().to_pylist()])),
            {_HINT + "structural-encoding": "fullzip"},
        ),
    ),
    "null_items": ("2.1", lambda: (vectors_with_null_items(5, pa.int32()), {})),
    "null_items_full_zip": ("2.2", lambda: (vectors_with_null_items(99, pa.int32()), {})),
    "vectors_of_vectors": ("2.2", lambda: made(pa.list_(pa.list_(pa.int16(), 3), 2), nulls=0.2)),
    "lists_of_vectors": ("2.2", lambda: made(pa.list_(pa.list_(pa.float32(), 4)), nulls=0.2)),
    "vectors_of_structs": ("2.2", lambda: made(pa.list_(STRUCT, 3))),
    "packed": ("2.1", lambda: (made(STRUCT)[0], PACKED)),
    "packed_text": ("2.2", lambda: (made(TEXT_STRUCT)[0], PACKED)),
    "all_null": ("2.1", lambda: made(pa.int32(), nulls=1.0)),
    "null_structs": ("2.2", lambda: made(pa.struct([("a", pa.int32())]), nulls=1.0)),
    "null_lists": ("2.1", lambda: made(pa.list_(pa.list_(pa.int32())), nulls=1.0)),
    "null_lists_2_2": ("2.2", lambda: made(pa.list_(pa.list_(pa.int32())), nulls=1.0)),
    "constant": ("2.2", lambda: made(pa.int64(), "constant")),
    "constant_nulls": ("2.2", lambda: made(pa.int16(), "constant", 0.3)),
    "constant_string": ("2.2", lambda: made(pa.string(), "constant", 0.3, long=True)),
    "constant_lists": ("2.2", lambda: made(pa.list_(pa.int8()), "constant", 0.3)),
}


#: Arrow's buffers return their memory to their pool, which must still exist.
POOLS: list[pa.MemoryPool] = []


def has_text(dtype: pa.DataType) -> bool:
    if pat.is_dictionary(dtype):
        dtype = dtype.value_type
    if pat.is_string(dtype) or pat.is_large_string(dtype):
        return True
    return any(has_text(dtype.field(i).type) for i in range(dtype.num_fields))


def check(array: pa.Array) -> None:
    """Arrow finds faults in values only: bytes that are not UTF-8, decimals of too many digits."""
    array.validate()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        text = has_text(array.type) and "UTF8" in str(error)
        if not text and not (pat.is_decimal(array.type) and "precision" in str(error)):
            raise


def reads(field: pa.Field, columns: Sequence[ColumnMeta], source: StrictSource) -> bool:
    """Read in two ways, in little time and memory; return False if an error of this package is
    raised.
    """
    readable, seconds = timed_read(field, columns, source)
    if seconds >= SECONDS:
        # A process of many tests may have run the garbage collector meanwhile.
        readable, seconds = timed_read(field, columns, source)
    assert seconds < SECONDS
    return readable


def timed_read(
    field: pa.Field, columns: Sequence[ColumnMeta], source: StrictSource
) -> tuple[bool, float]:
    """Return whether a column can be read, and the processor time that it took."""
    per_row = leaf_fields(field)[0].slots_per_row
    rows = columns[0].pages[0].num_rows // per_row
    some = np.array([3, 90, rows - 1]) if 90 < rows - 1 < 1 << 40 else np.array([0, 1])
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    POOLS.append(pool)
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    started = time.process_time()
    readable = False
    try:
        reader = StructuralField(field, columns, "memory")
        whole, part = run_plans(source, [reader.read(range(rows)), reader.read(some)])
        check(whole)
        check(part)
        assert (len(whole), len(part)) == (rows, len(some))
        readable = True
    except LanceError:
        pass
    finally:
        pa.set_memory_pool(usual)
    seconds = time.process_time() - started
    assert tracemalloc.get_traced_memory()[1] - before < MAX_BYTES
    assert pool.max_memory() < MAX_BYTES
    return readable, seconds


@pytest.fixture(scope="module", autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture(scope="module", params=CASES)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    version, case = CASES[request.param]
    array, metadata = case()
    field = pa.field("c", array.type, metadata=metadata or None)
    table = pa.table([array], schema=pa.schema([field]))
    path = tmp_path_factory.mktemp("f") / "f.lance"
    with LanceFileWriter(str(path), table.schema, version=version) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    tail = Tail(LocalSource(str(path)))
    footer = read_footer(tail)
    columns = read_columns(tail, footer, range(len(footer.column_metadata)))
    raw = path.read_bytes()
    assert reads(field, columns, StrictSource(raw))
    return field, columns, raw


def seed_of(field: pa.Field, columns: Sequence[ColumnMeta]) -> int:
    return sum(len(page.encoding) for column in columns for page in column.pages)


@pytest.mark.sample(5)
def test_flipped_bits_of_pages(damaged: Damaged) -> None:
    field, columns, raw = damaged
    spans = [b for column in columns for page in column.pages for b in page.buffers if b.length]
    if not spans:
        return
    rng = np.random.default_rng(seed_of(field, columns))
    for i in range(FLIPS):
        data = bytearray(raw)
        for _ in range(rng.integers(1, 4)):
            offset, length = spans[rng.integers(len(spans))]
            # Headers and tables are at the beginning.
            place = rng.integers(min(length, 64) if i % 2 else length)
            if i % 3:
                data[offset + place] ^= 1 << int(rng.integers(8))
            else:
                data[offset + place] = int(rng.choice([0, 1, 127, 128, 255]))
        reads(field, columns, StrictSource(data))


@pytest.mark.sample(5)
def test_flipped_bits_of_messages(damaged: Damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(raw)
    rng = np.random.default_rng(seed_of(field, columns))
    failed = 0
    for i in range(FLIPS):
        number = int(rng.integers(len(columns)))
        page = columns[number].pages[0]
        encoding = bytearray(page.encoding)
        at = int(rng.integers(len(encoding)))
        if i % 3:
            encoding[at] ^= 1 << int(rng.integers(8))
        elif i % 2:
            del encoding[at]
        else:
            encoding[at] = int(rng.choice([0, 1, 127, 128, 255]))
        broken = replace(page, encoding=bytes(encoding))
        failed += not reads(field, with_page(columns, number, broken), source)
    assert failed


@pytest.mark.sample(5)
def test_numbers_of_messages(damaged: Damaged) -> None:
    """Set every number of a message, at any depth, to other numbers."""
    field, columns, raw = damaged
    source = StrictSource(raw)
    for number, column in enumerate(columns):
        page = column.pages[0]
        message = pb.PageLayout.FromString(page.encoding)
        for owner, name in numbers_in(message):
            good = getattr(owner, name)
            for value in (
                0,
                1,
                2,
                7,
                8,
                9,
                good + 1,
                max(good - 1, 0),
                good * 1000,
                1 << 31,
                (1 << 32) - 1,
                1 << 45,
                (1 << 63) - 1,
                (1 << 64) - 1,
            ):
                try:
                    setattr(owner, name, value)
                except ValueError:
                    continue
                broken = replace(page, encoding=message.SerializeToString())
                reads(field, with_page(columns, number, broken), source)
            setattr(owner, name, good)


def numbers_in(message: object) -> Iterator[tuple[object, str]]:
    for descriptor, value in list(message.ListFields()):
        if isinstance(value, int) and not isinstance(value, bool):
            yield message, descriptor.name
        elif hasattr(value, "ListFields"):
            yield from numbers_in(value)


def with_page(columns: Sequence[ColumnMeta], number: int, page: object) -> list[ColumnMeta]:
    first = columns[number].pages
    broken = replace(columns[number], pages=(page, *first[1:]))
    return [*columns[:number], broken, *columns[number + 1 :]]


@pytest.mark.sample(2)
def test_buffers_cut_short(damaged: Damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(raw)
    rng = np.random.default_rng(seed_of(field, columns))
    for number, column in enumerate(columns):
        page = column.pages[0]
        for i, buffer in enumerate(page.buffers):
            lengths = {0, 1, buffer.length // 2, max(buffer.length - 1, 0)}
            lengths |= set(rng.integers(0, buffer.length + 1, 8).tolist())
            for length in sorted(lengths):
                cut = ByteRange(buffer.offset, length)
                buffers = (*page.buffers[:i], cut, *page.buffers[i + 1 :])
                broken = with_page(columns, number, replace(page, buffers=buffers))
                reads(field, broken, source)
        for kept in range(len(page.buffers)):
            broken = with_page(columns, number, replace(page, buffers=page.buffers[:kept]))
            reads(field, broken, source)


def test_pages_that_claim_more_rows(damaged: Damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(raw)
    pages = [column.pages[0] for column in columns]
    if not any(page.buffers for page in pages):
        return
    for rows in (pages[0].num_rows * 1000, 1 << 40, (1 << 63) - 1):
        broken = [
            replace(column, pages=(replace(page, num_rows=rows),))
            for column, page in zip(columns, pages, strict=True)
        ]
        assert not reads(field, broken, source)
