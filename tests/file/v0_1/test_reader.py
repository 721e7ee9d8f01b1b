"""Files of version 0.1: the container, what is read of it, statistics, and damaged files.
pylance writes them.
"""

from __future__ import annotations

import datetime
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.file.v0_1.statistics import Op, prune
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.scan.predicates.conditions import candidate_ranges
from tests.file.sources import MemorySource
from tests.support.interop.tables import build

FileOf = Callable[[pa.Table, str], Path]
FLIPS = int(os.environ.get("LANCE_SPARK_TEST_FLIPS", "50"))
ROWS = 1_100


def sample(rows: int = ROWS, nulls: float = 0.1) -> pa.Table:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**40, rows)
    kinds = {
        "i": pa.int64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "l": pa.list_(pa.list_(pa.int16())),
        "t": pa.struct([("x", pa.list_(pa.string())), ("y", pa.float32())]),
        "v": pa.list_(pa.float32(), 4),
        "n": pa.list_(pa.null()),
    }
    table = pa.table({name: build(kind, values, nulls, rng) for name, kind in kinds.items()})
    colours = pa.array(["red", "green", "blue"])
    indices = pa.array(values % 3, pa.int8())
    return table.append_column("d", pa.DictionaryArray.from_arrays(indices, colours))


@pytest.fixture
def data(file_of: FileOf) -> bytes:
    return file_of(sample(), "0.1").read_bytes()


def opened(data: bytes) -> tuple[LegacyFileReader, MemorySource]:
    source = MemorySource(data)
    reader = open_file(source)
    assert isinstance(reader, LegacyFileReader)
    return reader, source


def field(reader: LegacyFileReader, name: str) -> Field:
    return reader.schema.field(name)


def test_what_a_file_says(data: bytes) -> None:
    reader, source = opened(data)
    assert reader.version == (0, 1)
    assert reader.num_rows == ROWS
    assert reader.schema.names == ["i", "s", "b", "l", "t", "v", "n", "d"]
    assert reader.column_bytes([field(reader, "i")]) == 8 * ROWS
    assert reader.column_bytes([field(reader, "v"), field(reader, "d")]) == 17 * ROWS
    (texts,) = reader.read([field(reader, "s")], range(ROWS))
    exact = texts.buffers()[2].size + 8 * (ROWS + 2)
    assert reader.column_bytes([field(reader, "s")]) == pytest.approx(exact, rel=0.05)
    reader.close()
    assert source.closed


def test_the_reader_is_chosen_by_the_footer(file_of: FileOf) -> None:
    table = pa.table({"i": [1, 2, 3]})
    for version, kind in (("0.1", LegacyFileReader), ("2.0", FileReader), ("2.2", FileReader)):
        source = MemorySource(file_of(table, version).read_bytes())
        reader = open_file(source)
        assert type(reader) is kind
        assert len(source.calls) == 1
    with pytest.raises(CorruptFileError, match="LANC"):
        open_file(MemorySource(bytes(100)))
    with pytest.raises(CorruptFileError, match="too few"):
        open_file(MemorySource(b"LANC"))
    with pytest.raises(UnsupportedFeatureError, match=r"7\.0"):
        open_file(MemorySource(bytes(60) + struct.pack("<HH4s", 7, 0, b"LANC")))


def test_what_is_read(file_of: FileOf) -> None:
    table = pa.table({"i": np.arange(300_000), "s": [f"{i}" for i in range(300_000)]})
    source = MemorySource(file_of(table, "0.1").read_bytes())
    reader = open_file(source)
    assert len(source.calls) == 1
    number, text = (reader.schema.field(name) for name in "is")
    # The page table lies before the tail; then one read for a value, two for a string.
    for wanted, reads in ((number, 1), (text, 2)):
        reader.read([wanted], np.array([7]))
        for rows in (np.array([150_000]), np.array([5, 6, 1_023, 1_024, 299_999])):
            source.calls.clear()
            (result,) = reader.read([wanted], rows)
            assert len(source.calls) == reads
            assert result.to_pylist() == table[wanted.name].take(pa.array(rows)).to_pylist()
            assert sum(length for call in source.calls for _, length in call) <= 30 * len(rows)
    source.calls.clear()
    (result,) = reader.read([number], range(1_000, 250_000))
    assert result.equals(table["i"].combine_chunks()[1_000:250_000])
    assert len(source.calls) == 1


def test_pages_that_follow_one_another_are_one_range(file_of: FileOf) -> None:
    table = pa.table({"i": np.arange(100_000)})
    reader, source = opened(file_of(table, "0.1").read_bytes())
    reader.read(reader.schema.fields, range(1))
    source.calls.clear()
    (result,) = reader.read(reader.schema.fields, range(100_000))
    assert [len(call) for call in source.calls] == [1]
    assert result.equals(table["i"].combine_chunks())


def test_rows_outside(data: bytes) -> None:
    reader, _ = opened(data)
    for rows in (range(1_090, 1_101), np.array([-1, 5]), np.array([1_100]), range(0, 10, 2)):
        with pytest.raises(InvalidInputError):
            reader.read(reader.schema.fields, rows)
    assert [len(a) for a in reader.read(reader.schema.fields, range(5, 5))] == [0] * 8


def test_fields_that_are_not_there(data: bytes) -> None:
    reader, _ = opened(data)
    for id_ in (-1, 90_000, 2**31 - 1):
        with pytest.raises(CorruptFileError):
            reader.read([Field("z", id_, "int64")], range(10))
    assert reader.column_bytes([Field("z", 90_000, "int64")]) == 0


# Files as other releases wrote them: the parts behind the pages made anew


def parts(data: bytes) -> tuple[file_pb2.Metadata, table_pb2.Manifest]:
    (position,) = struct.unpack_from("<Q", data, len(data) - 16)
    metadata = file_pb2.Metadata.FromString(section(data, position))
    return metadata, table_pb2.Manifest.FromString(section(data, metadata.manifest_position))


def section(data: bytes, position: int) -> bytes:
    (length,) = struct.unpack_from("<I", data, position)
    return data[position + 4 : position + 4 + length]


def with_metadata(data: bytes, metadata: file_pb2.Metadata, minor: int = 2) -> bytes:
    message = metadata.SerializeToString()
    tail = struct.pack("<I", len(message)) + message
    return data + tail + struct.pack("<QHH4s", len(data), 0, minor, b"LANC")


def later_file(tmp_path: Path) -> tuple[bytes, pa.Table]:
    """A file of columns that were added to a table."""
    import lance

    # pylance takes no nulls there.
    added = sample(nulls=0.0).drop_columns(["d", "n"])
    added = added.rename_columns([f"added_{name}" for name in added.column_names])
    base = pa.table(
        {"id": np.arange(ROWS), "s": pa.StructArray.from_arrays([pa.nulls(ROWS, pa.int8())], ["c"])}
    )
    dataset = lance.write_dataset(base, str(tmp_path / "t"), data_storage_version="0.1")
    dataset.merge(added.append_column("id", base["id"]), "id")
    (newest,) = [
        file
        for file in (tmp_path / "t" / "data").iterdir()
        if parts(file.read_bytes())[1].fields[0].id
    ]
    return newest.read_bytes(), lance.dataset(str(tmp_path / "t")).to_table().drop_columns(
        ["id", "s"]
    )


@pytest.mark.parametrize("minor", [0, 1, 2])
@pytest.mark.parametrize("statistics", [True, False])
def test_page_tables_of_added_columns(tmp_path: Path, minor: int, statistics: bool) -> None:
    data, expected = later_file(tmp_path)
    metadata, manifest = parts(data)
    first = min(f.id for f in manifest.fields)
    last = max(f.id for f in manifest.fields)
    assert first == 3
    if not statistics:
        metadata.ClearField("statistics")
    batches = len(metadata.batch_offsets) - 1
    width = 16 * batches
    entries = data[metadata.page_table_position :][: (last - first + 1) * width]
    files = {"from the first id on": with_metadata(data, metadata, minor)}
    if minor < 2:
        metadata.page_table_position = len(data)
        longer = data + bytes(first * width) + entries
        files["from 0 on"] = with_metadata(longer, metadata, minor)
    for name, file in files.items():
        for ids in ((), tuple(range(first, last + 1)), (-2, *range(first + 1, last + 1))):
            reader = open_file(MemorySource(file), ids)
            for one in reader.schema.fields:
                (result,) = reader.read([one], range(ROWS))
                assert result.equals(expected[one.name].combine_chunks()), (name, ids, one.name)


def test_a_file_without_a_schema(data: bytes) -> None:
    reader, _ = opened(data)
    fields = [f for f in reader.schema.fields if f.name != "d"]
    metadata, _ = parts(data)
    metadata.ClearField("manifest_position")
    bare = with_metadata(data, metadata)
    ids = tuple(node.id for f in reader.schema.fields for node in f.walk())
    other = open_file(MemorySource(bare), ids)
    assert other.schema.fields == ()
    assert other.num_rows == ROWS
    for ours, theirs in zip(
        other.read(fields, range(ROWS)), reader.read(fields, range(ROWS)), strict=True
    ):
        assert ours.equals(theirs)
    with pytest.raises(CorruptFileError, match="dictionary"):
        other.read([field(reader, "d")], range(1))


# Statistics


def measured() -> dict[str, pa.Array]:
    rng = np.random.default_rng(6)
    n = 5_000
    values = np.sort(rng.integers(-(2**40), 2**40, n))
    floats = values / 7
    floats[rng.random(n) < 0.1] = np.nan
    floats[1_024:2_048] = np.nan
    zeros = np.zeros(n)
    zeros[::3] = -0.0
    long = [f"{'x' * (i % 90)}{v}" for i, v in enumerate(values.tolist())]
    high = ["\U0010ffff" * 30] * n
    mask = rng.random(n) < 0.2
    mask[2_048:3_072] = True
    decimals = pa.array([Decimal(v) / 100 for v in values.tolist()], pa.decimal128(20, 2))
    return {
        "int64": pa.array(values),
        "int64_nulls": pa.array(values, mask=mask),
        "uint8": pa.array((values % 200).astype(np.uint8)),
        "float64": pa.array(floats),
        "float32": pa.array(floats.astype(np.float32)),
        "zeros": pa.array(zeros),
        "bool": pa.array(values > 0),
        "bool_nulls": pa.array(values > 0, mask=mask),
        "string": pa.array([f"{v:020}" for v in (values + 2**40).tolist()]),
        "string_long": pa.array(long),
        "string_high": pa.array(high),
        "string_empty": pa.array(["" if i % 1_024 else "z" for i in range(n)]),
        "string_nulls": pa.array([f"{v:020}" for v in (values + 2**40).tolist()], mask=mask),
        "large_binary": pa.array(
            [struct.pack(">q", v + 2**40) for v in values.tolist()], pa.large_binary()
        ),
        "binary_high": pa.array([b"\xff" * (60 + i % 10) for i in range(n)], pa.binary()),
        "date32": pa.array((values // 2**24).astype(np.int32), pa.date32()),
        "date64": pa.array((values // 2**24) * 86_400_000, pa.date64()),
        "decimal": decimals,
        "timestamp": pa.array(values, pa.timestamp("us")),
    }


MEASURED = measured()
STATED = [name for name in MEASURED if name != "timestamp"]


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> LegacyFileReader:
    import lance

    path = tmp_path_factory.mktemp("stated")
    inner = pa.StructArray.from_arrays([MEASURED["int64"]], ["x"])
    table = pa.table({**MEASURED, "t": inner, "l": pa.array([[1]] * 5_000)})
    lance.write_dataset(table, str(path / "t"), data_storage_version="0.1")
    (file,) = (path / "t" / "data").iterdir()
    reader, _ = opened(file.read_bytes())
    return reader


def values_of(reader: LegacyFileReader, name: str) -> pa.Array:
    (result,) = reader.read([field(reader, name)], range(reader.num_rows))
    return result


@pytest.mark.parametrize("name", STATED)
def test_bounds_hold(stated: LegacyFileReader, name: str) -> None:
    statistics = stated.statistics(field(stated, name).id)
    assert statistics is not None
    written = MEASURED[name]
    assert statistics.minimum.type == statistics.maximum.type == written.type
    assert statistics.bounds.tolist() == [0, 1_024, 2_048, 3_072, 4_096, 5_000]
    for i, (start, stop) in enumerate(zip(statistics.bounds, statistics.bounds[1:], strict=False)):
        batch = written[start:stop]
        assert statistics.null_count[i].as_py() == batch.null_count
        known = batch.drop_null()
        if pa.types.is_floating(known.type):
            known = known.filter(pc.invert(pc.is_nan(known)))
        low, high = statistics.minimum[i], statistics.maximum[i]
        if low.is_valid:
            assert pc.all(pc.less_equal(low, known), min_count=0).as_py()
        if high.is_valid:
            assert pc.all(pc.greater_equal(high, known), min_count=0).as_py()
        if name in ("int64", "uint8", "decimal", "date32", "date64", "string", "large_binary"):
            assert (low, high) == (pc.min(known), pc.max(known))


def test_fields_without_statistics(stated: LegacyFileReader, data: bytes) -> None:
    for name in ("timestamp", "l", "t"):
        assert stated.statistics(field(stated, name).id) is None
    assert stated.statistics(99_999) is None
    inner = stated.statistics(stated.schema.field("t.x").id)
    outer = stated.statistics(field(stated, "int64").id)
    assert inner is not None
    assert outer is not None
    assert inner.minimum == outer.minimum
    metadata, _ = parts(data)
    metadata.ClearField("statistics")
    reader, _ = opened(with_metadata(data, metadata))
    assert reader.statistics(0) is None


@pytest.mark.parametrize(
    ("children", "below", "above"),
    [
        # Rows that `i < 1_000` and `i > 2_000` can hold for, of the batches 0 to 1_023 and 1_024 to
        # 2_047.
        (("null_count", "min_value", "max_value"), [range(1_024)], [range(1_024, 2_048)]),
        (("null_count", "min_value"), [range(1_024)], [range(2_048)]),
        (("null_count", "max_value"), [range(2_048)], [range(1_024, 2_048)]),
        (("min_value", "max_value"), [range(2_048)], [range(2_048)]),
        (("null_count",), None, None),
        ((), None, None),
    ],
)
def test_missing_statistics_rule_nothing_out(
    file_of: FileOf, children: tuple[str, ...], below: list[range] | None, above: list[range] | None
) -> None:
    data = file_of(pa.table({"i": np.arange(2_048)}), "0.1").read_bytes()
    metadata, _ = parts(data)
    for child in metadata.statistics.schema:
        if child.name in ("null_count", "min_value", "max_value") and child.name not in children:
            child.name = f"{child.name}_of_another_kind"
    reader, _ = opened(with_metadata(data, metadata))
    number = field(reader, "i")
    assert candidate_ranges(reader, number, "<", 1_000) == below
    assert candidate_ranges(reader, number, ">", 2_000) == above


OPS: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def matching(values: pa.Array, op: Op, value: object) -> np.ndarray:
    """Rows that a condition holds for, if NaN is greater than all or unordered."""
    if op == "is_null":
        return values.is_null().to_numpy(False)
    if op == "is_not_null":
        return values.is_valid().to_numpy(False)
    result = pc.fill_null(OPS[op](values, pa.scalar(value, values.type)), False).to_numpy(False)
    if pa.types.is_floating(values.type) and op in (">", ">=", "!="):
        result = result | np.isnan(values.to_numpy(zero_copy_only=False))
    return result


def rows_of(ranges: list[range]) -> np.ndarray:
    flags = np.zeros(5_000, bool)
    for item in ranges:
        flags[item.start : item.stop] = True
    return flags


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_no_row_is_lost(stated: LegacyFileReader, drawn: st.DataObject) -> None:
    name = drawn.draw(st.sampled_from(STATED))
    op: Op = drawn.draw(st.sampled_from([*OPS, "is_null", "is_not_null"]))
    statistics = stated.statistics(field(stated, name).id)
    assert statistics is not None
    values = values_of(stated, name)
    at = drawn.draw(st.integers(0, 4_999))
    value = values[at].as_py()
    if value is None:
        value = MEASURED[name].drop_null()[at % 3_000].as_py()
    if isinstance(value, int | float) and not isinstance(value, bool) and name != "uint8":
        value += drawn.draw(st.sampled_from([0, 0, 1, -1]))
    kept = rows_of(prune(statistics, op, value))
    assert not (matching(values, op, value) & ~kept).any(), (name, op, value)
    by_scalar = prune(statistics, op, pa.scalar(value, values.type))
    assert (rows_of(by_scalar) == kept).all()


@pytest.mark.parametrize(
    ("name", "op", "value", "ranges"),
    [
        ("int64", "<", -(2**41), []),
        ("int64", ">", 2**41, []),
        ("int64", ">=", MEASURED["int64"][4_096].as_py(), [range(4_096, 5_000)]),
        ("int64", "==", MEASURED["int64"][1_500].as_py(), [range(1_024, 2_048)]),
        ("int64", "<=", MEASURED["int64"][1_500].as_py(), [range(2_048)]),
        ("int64", "!=", 5, [range(5_000)]),
        ("int64", "is_null", None, []),
        ("int64", "is_not_null", None, [range(5_000)]),
        # Values that have no place in the type rule nothing out.
        ("int64", "==", 2**70, [range(5_000)]),
        ("int64", "==", "text", [range(5_000)]),
        ("int64", "<", 0.5, [range(5_000)]),
        ("date32", "<", datetime.datetime(1_000, 1, 1, 12), [range(5_000)]),
        ("date32", "<", datetime.date(1_000, 1, 1), []),
        ("decimal", ">", 10**16, []),
        ("decimal", ">", Decimal("1e16"), []),
        ("int64", "==", None, [range(5_000)]),
        ("float64", "==", float("nan"), [range(5_000)]),
        ("float64", ">", 1e300, [range(5_000)]),
        # The batch of NaN alone has no bounds.
        ("float64", "<", -1e300, [range(1_024, 2_048)]),
        ("zeros", "==", -0.0, [range(5_000)]),
        ("zeros", "<", 0.0, []),
        ("uint8", "==", 250, []),
        ("date32", ">", datetime.date(9_000, 1, 1), []),
        ("decimal", "<", Decimal("-1e16"), []),
        ("string", "==", MEASURED["string"][4_999].as_py(), [range(4_096, 5_000)]),
        ("string", "is_null", None, []),
        ("string_empty", "is_null", None, [range(5_000)]),
        ("string_high", "!=", "\U0010ffff" * 30, [range(5_000)]),
    ],
)
def test_batches_are_ruled_out(
    stated: LegacyFileReader, name: str, op: Op, value: object, ranges: list[range]
) -> None:
    statistics = stated.statistics(field(stated, name).id)
    assert statistics is not None
    assert prune(statistics, op, value) == ranges


def test_batches_with_nulls_are_kept(stated: LegacyFileReader) -> None:
    statistics = stated.statistics(field(stated, "int64_nulls").id)
    assert statistics is not None
    assert prune(statistics, "==", 2**50) == [range(5_000)]
    with pytest.raises(InvalidInputError, match="operator"):
        prune(statistics, "like", 1)  # type: ignore[arg-type]


# Damage


def read_all(data: bytes) -> None:
    reader = open_file(MemorySource(data))
    for one in reader.schema.fields:
        for rows in (range(reader.num_rows), np.array([0, 5, 1_050])):
            if len(rows) and rows[-1] < reader.num_rows:
                (result,) = reader.read([one], rows)
                result.validate()
        reader.column_bytes([one])
        if isinstance(reader, LegacyFileReader):
            statistics = reader.statistics(one.id)
            if statistics is not None:
                prune(statistics, "==", 1)


def survives(data: bytes, note: str) -> None:
    """Reading gives values or an error of this package, soon, and with little memory."""
    tracemalloc.start()
    started = time.monotonic()
    try:
        read_all(data)
    except LanceError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 << 20, note
    assert time.monotonic() - started < 5, note


def test_truncated_files(data: bytes) -> None:
    for length in [*range(40), *range(40, len(data), len(data) // 60)]:
        with pytest.raises(LanceError):
            read_all(data[:length])
        # The end is there, and what it points at is not.
        survives(data[length:], f"without the first {length}")


@pytest.mark.slow
def test_flipped_bytes(data: bytes) -> None:
    rng = random.Random(4)
    metadata, _ = parts(data)
    for turn in range(FLIPS):
        changed = bytearray(data)
        start = metadata.page_table_position if turn % 4 else 0
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(start, len(data))
            changed[at] = rng.choice([0, 255, 1, 128, rng.randrange(256)])
        survives(bytes(changed), f"turn {turn}")


NUMBERS = [0, 1, -1, 7, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**62)]


@pytest.mark.slow
def test_page_tables_that_lie(data: bytes) -> None:
    metadata, manifest = parts(data)
    entries = (1 + max(f.id for f in manifest.fields)) * (len(metadata.batch_offsets) - 1) * 2
    rng = random.Random(5)
    for entry in range(entries):
        for number in NUMBERS if entry % 12 == 0 else rng.sample(NUMBERS, 2):
            changed = bytearray(data)
            struct.pack_into("<q", changed, metadata.page_table_position + 8 * entry, number)
            survives(bytes(changed), f"entry {entry} is {number}")


@pytest.mark.slow
def test_offsets_that_lie(data: bytes) -> None:
    reader, _ = opened(data)
    rng = random.Random(6)
    metadata, _ = parts(data)
    batches = len(metadata.batch_offsets) - 1
    for name in ("s", "l", "l.item", "t.x", "t.x.item", "n"):
        id_ = field(reader, name).id
        width = 4 if name in ("l", "l.item", "t.x", "n") else 8
        at = metadata.page_table_position + id_ * batches * 16
        position, length = struct.unpack_from("<qq", data, at)
        for _ in range(12):
            changed = bytearray(data)
            for _ in range(rng.choice([1, 2])):
                number = rng.choice(NUMBERS) & (2 ** (8 * width) - 1)
                place = position + width * rng.randrange(length)
                changed[place : place + width] = number.to_bytes(width, "little")
            survives(bytes(changed), f"offsets of {name}")


def test_metadata_that_lies(data: bytes) -> None:
    metadata, _ = parts(data)
    for number in (0, 1, len(data) - 20, len(data), 2**31, 2**62, 2**63 - 1, 2**64 - 1):
        for name in ("manifest_position", "page_table_position"):
            changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
            setattr(changed, name, number)
            survives(with_metadata(data, changed), f"{name} is {number}")
        changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
        changed.statistics.page_table_position = number
        survives(with_metadata(data, changed), f"statistics at {number}")
        survives(data[:-16] + struct.pack("<QHH4s", number, 0, 2, b"LANC"), f"metadata at {number}")
    for offsets in ([], [0], [5], [0, 10, 5], [0, -1], [0, 2**31 - 1], [0] * 10_000, [-5, 0, 5]):
        changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
        changed.batch_offsets[:] = offsets
        survives(with_metadata(data, changed), f"batches {offsets[:5]}")


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 3), (-1, 3), (2**62, 3), (100, 2**62), (100, -1), (100, 2**20)]
)
def test_dictionaries_that_lie(data: bytes, offset: int, length: int) -> None:
    metadata, manifest = parts(data)
    for one in manifest.fields:
        if one.logical_type.startswith("dict"):
            one.dictionary.offset, one.dictionary.length = offset, length
    message = manifest.SerializeToString()
    metadata.manifest_position = len(data)
    file = with_metadata(data + struct.pack("<I", len(message)) + message, metadata)
    survives(file, f"dictionary {offset}, {length}")
    reader, _ = opened(file)
    with pytest.raises(CorruptFileError):
        reader.read([field(reader, "d")], range(ROWS))


def test_schemas_that_are_no_trees(data: bytes) -> None:
    metadata, manifest = parts(data)
    for change in ("deep", "twice", "orphan"):
        other = table_pb2.Manifest.FromString(manifest.SerializeToString())
        if change == "deep":
            for i in range(100, 1_500):
                other.fields.add(
                    id=i, parent_id=i - 1 if i > 100 else -1, logical_type="list", name="x"
                )
        other.fields.add(
            id=0 if change == "twice" else 50,
            parent_id=77 if change == "orphan" else -1,
            logical_type="int8",
            name="z",
        )
        message = other.SerializeToString()
        metadata.manifest_position = len(data)
        file = with_metadata(data + struct.pack("<I", len(message)) + message, metadata)
        with pytest.raises(CorruptFileError):
            open_file(MemorySource(file))
