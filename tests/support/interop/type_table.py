"""A column for each row of the tables of docs/reference/types.md."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from lance.arrow import bfloat16_array

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "types.md"
UUID = uuid.UUID(int=5).bytes
DAY = datetime.datetime(2024, 5, 6, 7, 8, 9)


def extended(dtype: pa.DataType, values: list[object]) -> pa.Array:
    return pa.ExtensionArray.from_storage(dtype, pa.array(values, dtype.storage_type))


def numbers(dtype: pa.DataType) -> pa.Array:
    return pa.array([1, None, 100], dtype)


_BLOB = {"lance-encoding:blob": "true"}
_WKB = b"\x01\x01\x00\x00\x00" + np.array([1.0, 2.0]).tobytes()
#: By the name in the first column: a field, and its values.
COLUMNS: Mapping[str, tuple[pa.Field, pa.Array]] = {
    name: (pa.field("c", array.type, metadata=metadata), array)
    for name, array, metadata in [
        ("bool", pa.array([True, None, False]), None),
        *((str(dtype), numbers(dtype), None) for dtype in (pa.int8(), pa.int16(), pa.int32())),
        *((str(dtype), numbers(dtype), None) for dtype in (pa.int64(), pa.uint8(), pa.uint16())),
        *((str(dtype), numbers(dtype), None) for dtype in (pa.uint32(), pa.uint64())),
        ("float16", pa.array(np.array([1.5, 2, 3], np.float16)), None),
        ("float32", pa.array([1.5, None, 3], pa.float32()), None),
        ("float64", pa.array([1.5, None, 3], pa.float64()), None),
        ("string", pa.array(["a", None, "ü"]), None),
        ("large_string", pa.array(["a", None, "ü"], pa.large_string()), None),
        ("binary", pa.array([b"a", None, b"\xff"]), None),
        ("large_binary", pa.array([b"a", None, b"\xff"], pa.large_binary()), None),
        ("fixed_size_binary", pa.array([b"abc", None, b"abd"], pa.binary(3)), None),
        ("blob", pa.array([b"abc", None, b"abd"], pa.large_binary()), _BLOB),
        ("json", extended(pa.json_(), ['{"a":1}', None, "2"]), None),
        ("date32", numbers(pa.date32()), None),
        ("date64", pa.array([86_400_000, None, 0], pa.date64()), None),
        ("timestamp with a zone", pa.array([DAY, None, DAY], pa.timestamp("ms", "Asia/Tokyo")), None),
        ("timestamp without", pa.array([DAY, None, DAY], pa.timestamp("us")), None),
        ("time32, time64", numbers(pa.time64("us")), None),
        ("duration", numbers(pa.duration("s")), None),
        ("decimal128", pa.array([Decimal("1.25"), None, Decimal(3)], pa.decimal128(12, 3)), None),
        ("null", pa.nulls(3), None),
        ("dictionary", pa.array(["a", None, "a"]).dictionary_encode(), None),
        ("list", pa.array([[1], None, []], pa.list_(pa.int32())), None),
        ("large_list", pa.array([[1], None, []], pa.large_list(pa.int32())), None),
        ("fixed_size_list", pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)), None),
        ("struct", pa.array([{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 3, "b": ""}]), None),
        ("map", pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())), None),
        ("uuid", extended(pa.uuid(), [UUID, None, UUID]), None),
        ("bfloat16", bfloat16_array([1.5, 2.0, None]), None),
        ("fixed-shape tensor", extended(
            pa.fixed_shape_tensor(pa.float32(), (2, 2)), [[1, 2, 3, 4]] * 3
        ), None),
        ("bool8", extended(pa.bool8(), [1, None, 0]), None),
        ("opaque", extended(pa.opaque(pa.binary(), "name", "vendor"), [b"1", None, b""]), None),
        ("GeoArrow", pa.array([_WKB, None, _WKB]), {"ARROW:extension:name": "geoarrow.wkb"}),
        ("string_view", pa.array(["a", None, "b"], pa.string_view()), None),
        ("binary_view", pa.array([b"a", None, b"b"], pa.binary_view()), None),
        ("decimal256", pa.array([Decimal("1.25"), None, Decimal(3)], pa.decimal256(50, 3)), None),
    ]
}  # fmt: skip
#: Types that no file has.
NOT_STORED: Mapping[str, pa.Array] = {
    "list_view": pa.array([[1], None], pa.list_view(pa.int32())),
    "large_list_view": pa.array([[1], None], pa.large_list_view(pa.int32())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1])),
    "decimal32": pa.array([Decimal(1)], pa.decimal32(5, 2)),
    "decimal64": pa.array([Decimal(1)], pa.decimal64(12, 2)),
    "month_day_nano_interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
}
#: The first versions that have a type, if not all have it.
FIRST = {"map": "2.2"}


def named_on_the_page(heading: str) -> list[str]:
    """Return the names in the first column of the table below a heading of the page."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.split("|")[1].strip() for line in lines[1:]]
