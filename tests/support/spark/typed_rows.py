"""Rows of all types that Spark compares, and Spark's names of the types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INF = float("nan"), float("inf")
F32 = float(np.float32(0.1))
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, 0, 1, 5, 127]),
    "short": (pa.uint8(), [None, 0, 255, 1, 5, 7]),
    "number": (pa.int32(), [None, -(1 << 31), 0, 1, 5, 7]),
    "big": (pa.int64(), [None, -(1 << 63), (1 << 53) + 1, 0, 5, (1 << 63) - 1]),
    "small": (pa.float32(), [None, NAN, INF, -INF, -0.0, F32]),
    "double": (pa.float64(), [None, NAN, INF, -INF, 0.0, 1e300]),
    "money": (
        pa.decimal128(12, 2),
        [None, *map(Decimal, ["-1.50", "0.00", "0.10", "1.05", "9999999999.99"])],
    ),
    "flag": (pa.bool_(), [None, True, False, True, None, False]),
    "word": (pa.string(), [None, "", "a", "a_b", "A%b", "né\nz"]),
    "long": (pa.large_string(), ["x", "", None, "a_b", "ab", "b"]),
    "bytes": (pa.binary(), [None, b"", b"\x00", b"\x1f\x2a", b"\xff", b"abc"]),
    "day": (
        pa.date32(),
        [None, date(1, 1, 1), date(1970, 1, 1), date(2024, 1, 31), date(9999, 12, 31), date(1969, 12, 31)],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [None, datetime(2024, 1, 31, 12, 30, 15, 123456, UTC), datetime(1970, 1, 1, tzinfo=UTC)]
        + [datetime(2024, month, 1, tzinfo=UTC) for month in (1, 2, 3)],
    ),
    "clock": (
        pa.timestamp("us"),
        [None, datetime(2024, 1, 31, 12, 30, 15, 123456), datetime(1900, 1, 1)]
        + [datetime(2024, month, 1) for month in (1, 2, 3)],
    ),
    "seconds": (
        pa.timestamp("s"),
        [None, datetime(2024, 1, 31, 12, 30, 15), datetime(1900, 1, 1)]
        + [datetime(2024, month, 1) for month in (1, 2, 3)],
    ),
    "with-hyphen": (pa.int32(), [1, 2, None, 4, 5, 6]),
    "deep": (
        pa.struct([("x", pa.int32()), ("in ner", pa.struct([("y.z", pa.string())]))]),
        [None, {"x": None, "in ner": None}]
        + [{"x": i, "in ner": {"y.z": text}} for i, text in enumerate(["a", None, "b"])]
        + [{"x": 9, "in ner": None}],
    ),
    "words": (pa.list_(pa.string()), [None, [], ["a"], [None], ["b", "c"], ["d"]]),
}  # fmt: skip
#: Spark's name of a column's type, and a path to compare.
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "tiny": (("tiny",), "tinyint"),
    "short": (("short",), "smallint"),
    "number": (("number",), "int"),
    "big": (("big",), "bigint"),
    "small": (("small",), "float"),
    "double": (("double",), "double"),
    "money": (("money",), "decimal(12,2)"),
    "flag": (("flag",), "boolean"),
    "word": (("word",), "string"),
    "long": (("long",), "string"),
    "bytes": (("bytes",), "binary"),
    "day": (("day",), "date"),
    "instant": (("instant",), "timestamp"),
    "clock": (("clock",), "timestamp_ntz"),
    "seconds": (("seconds",), "timestamp_ntz"),
    "with-hyphen": (("with-hyphen",), "int"),
    "x": (("deep", "x"), "int"),
    "y.z": (("deep", "in ner", "y.z"), "string"),
}
ROWS = 24


def table(rows: int = ROWS) -> pa.Table:
    """Return the values of COLUMNS, again and again, each column at another step."""
    named = {"row": pa.array(range(rows), pa.int64())}
    for step, (name, (kind, values)) in enumerate(COLUMNS.items()):
        named[name] = pa.array([values[(i + i // 6 * step) % 6] for i in range(rows)], kind)
    return pa.table(named)
