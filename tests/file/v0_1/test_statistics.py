"""Statistics of files of version 0.1: their bounds are correct, and no filter loses a row because
of them.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.file.v0_1.statistics import Op, prune
from lance_spark.predicates.conditions import candidate_ranges
from tests.file.v0_1.legacy_files import FileOf, field, opened, parts, with_metadata
from tests.support.cells import number_of

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
    for op, value, ranges in (("<", 1_000, below), (">", 2_000, above)):
        rows = candidate_ranges(reader, number, op, value)
        assert (None if rows is None else list(rows)) == ranges


def test_the_page_table_has_a_row_for_each_entry_of_fields(file_of: FileOf) -> None:
    data = file_of(pa.table({"i": np.arange(2_048)}), "0.1").read_bytes()
    metadata, _ = parts(data)
    statistics = metadata.statistics
    for child in statistics.schema:
        child.id += 5
        child.parent_id += 5 if child.parent_id >= 0 else 0
    statistics.fields[:] = [number + 5 for number in statistics.fields]
    reader, _ = opened(with_metadata(data, metadata))
    rows = candidate_ranges(reader, field(reader, "i"), "<", 1_000)
    assert rows is not None
    assert list(rows) == [range(1_024)]
    statistics.fields[:] = [number + 100 for number in statistics.fields]
    reader, _ = opened(with_metadata(data, metadata))
    with pytest.raises(CorruptFileError, match="the page table has rows for the fields"):
        candidate_ranges(reader, field(reader, "i"), "<", 1_000)


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


@settings(
    max_examples=number_of(60, 150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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
        # Values that do not fit the type exclude no batch.
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
        # The batch of only NaN has no bounds.
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
    assert list(prune(statistics, op, value)) == ranges


def test_batches_with_nulls_are_kept(stated: LegacyFileReader) -> None:
    statistics = stated.statistics(field(stated, "int64_nulls").id)
    assert statistics is not None
    assert list(prune(statistics, "==", 2**50)) == [range(5_000)]
    with pytest.raises(InvalidInputError, match="operator"):
        prune(statistics, "like", 1)  # type: ignore[arg-type]
