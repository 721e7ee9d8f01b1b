"""Tables for queries: a small shop with nulls, NaN, infinities, deletions, several fragments and
nested types.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

DAY = dt.date(2024, 1, 1)
NOON = dt.datetime(2024, 1, 1, 12)
WORDS = ["", "a", "ab", "abc", "b%c", "b_c", "B", "ÄÖ", "special requests", "x" * 40, "null"]
NUMBERS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -2.25, 100.0, 1e-3]

INNER = pa.struct([("u", pa.int64()), ("v", pa.float64()), ("w", pa.string())])
ITEMS = pa.schema(
    [
        ("id", pa.int64()),
        ("order_id", pa.int64()),
        ("g", pa.int32()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("ok", pa.bool_()),
        ("name", pa.string()),
        ("bin", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(30, 6)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("clock", pa.timestamp("us")),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", INNER)])),
        ("list", pa.list_(pa.int32())),
        ("parts", pa.list_(pa.struct([("k", pa.int32()), ("n", pa.string())]))),
        ("vector", pa.list_(pa.float32(), 4)),
        ("odd-name", pa.int32()),
        ("Upper Case", pa.string()),
    ]
)
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("status", pa.string()),
        ("total", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("meta", pa.struct([("tag", pa.string()), ("n", pa.int32())])),
    ]
)
CUSTOMERS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("balance", pa.float64())])


def _maybe(rng: random.Random, value: Any, nulls: float = 0.12) -> Any:
    return None if rng.random() < nulls else value


def _number(rng: random.Random) -> float:
    return rng.choice(NUMBERS) if rng.random() < 0.4 else rng.randrange(-40, 40) / 4


def _item(rng: random.Random, row: int) -> dict[str, Any]:
    inner = {
        "u": _maybe(rng, rng.randrange(50)),
        "v": _maybe(rng, _number(rng)),
        "w": _maybe(rng, rng.choice(WORDS)),
    }
    struct = {
        "a": _maybe(rng, rng.randrange(9)),
        "b": _maybe(rng, rng.choice(WORDS)),
        "c": _maybe(rng, inner),
    }
    parts = [
        _maybe(rng, {"k": rng.randrange(5), "n": rng.choice(WORDS)})
        for _ in range(rng.randrange(4))
    ]
    return {
        "id": row,
        "order_id": _maybe(rng, rng.randrange(60), 0.05),
        "g": _maybe(rng, rng.randrange(7)),
        "tiny": _maybe(rng, rng.randrange(-128, 128)),
        "small": _maybe(rng, rng.randrange(-300, 300)),
        "x": _maybe(rng, _number(rng)),
        "f": _maybe(rng, _number(rng)),
        "ok": _maybe(rng, rng.random() < 0.5),
        "name": _maybe(rng, rng.choice(WORDS)),
        "bin": _maybe(rng, rng.choice([b"", b"\x00", b"\x00\xff", b"\x80", b"abc"])),
        "price": _maybe(rng, Decimal(rng.randrange(-5000, 5000)) / 100),
        "wide": _maybe(rng, Decimal(rng.randrange(-(10**12), 10**12)) / 10**6),
        "day": _maybe(rng, DAY + dt.timedelta(days=rng.randrange(-400, 400))),
        "at": _maybe(rng, NOON + dt.timedelta(microseconds=rng.randrange(10**13))),
        "clock": _maybe(rng, NOON + dt.timedelta(minutes=rng.randrange(10**5))),
        "s": _maybe(rng, struct),
        "list": _maybe(rng, [rng.randrange(9) for _ in range(rng.randrange(4))]),
        "parts": _maybe(rng, parts),
        "vector": _maybe(rng, [float(rng.randrange(9)) for _ in range(4)]),
        "odd-name": _maybe(rng, rng.randrange(20)),
        "Upper Case": _maybe(rng, rng.choice(WORDS)),
    }


def _order(rng: random.Random, row: int) -> dict[str, Any]:
    return {
        "id": row,
        "customer": _maybe(rng, rng.randrange(25)),
        "status": _maybe(rng, rng.choice("OFP")),
        "total": _maybe(rng, Decimal(rng.randrange(10**6)) / 100),
        "day": DAY + dt.timedelta(days=rng.randrange(300)),
        "meta": _maybe(rng, {"tag": rng.choice(WORDS), "n": _maybe(rng, rng.randrange(4))}),
    }


def _customer(rng: random.Random, row: int) -> dict[str, Any]:
    return {
        "id": row,
        "name": _maybe(rng, rng.choice(WORDS)),
        "balance": _maybe(rng, _number(rng)),
    }


def write_tables(folder: Path) -> dict[str, str]:
    """Write the tables by pylance, and return their paths by name."""
    rng = random.Random(5)
    paths = {name: str(folder / f"{name}.lance") for name in ("items", "orders", "customers")}
    items = pa.Table.from_pylist([_item(rng, row) for row in range(240)], ITEMS)
    lance.write_dataset(items, paths["items"], max_rows_per_file=90)
    lance.dataset(paths["items"]).delete("id % 11 = 3 or (id > 100 and id < 120)")
    orders = pa.Table.from_pylist([_order(rng, row) for row in range(60)], ORDERS)
    lance.write_dataset(orders, paths["orders"], max_rows_per_file=40)
    customers = pa.Table.from_pylist([_customer(rng, row) for row in range(25)], CUSTOMERS)
    lance.write_dataset(customers, paths["customers"])
    lance.dataset(paths["customers"]).delete("id = 7")
    paths["nothing"] = str(folder / "nothing.lance")
    lance.write_dataset(ITEMS.empty_table(), paths["nothing"])
    return paths
