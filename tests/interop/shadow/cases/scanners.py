"""Scanners: columns, limits, orders, sizes of batches, hidden columns, deleted rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case


def made(client: Client, path: Path) -> Any:
    rows = pa.table(
        {
            "a": list(range(100)),
            "b": [f"x{i % 7}" for i in range(100)],
            "f": [None if i % 10 == 0 else (i * 37 % 100) / 2 for i in range(100)],
            "s": [{"x": i, "y": str(i)} for i in range(100)],
        }
    )
    client.write(rows, path, max_rows_per_file=30)
    client.open(path).delete("a in (3, 4, 50)")
    return client.open(path)


def read(**options: Any) -> Callable[[Client, Path], Any]:
    def run(client: Client, path: Path) -> Any:
        return made(client, path).scanner(**options).to_table()

    return run


def ordered(*keys: tuple[Any, ...], **options: Any) -> Callable[[Client, Path], Any]:
    def run(client: Client, path: Path) -> Any:
        order = [client.ColumnOrdering(*key) for key in keys]
        return made(client, path).scanner(order_by=order, **options).to_table()

    return run


def of(method: Callable[[Any], Any], **options: Any) -> Callable[[Client, Path], Any]:
    def run(client: Client, path: Path) -> Any:
        return method(made(client, path).scanner(**options))

    return run


def dataset(method: Callable[[Any], Any]) -> Callable[[Client, Path], Any]:
    def run(client: Client, path: Path) -> Any:
        return method(made(client, path))

    return run


def sizes(scanner: Any) -> list[int]:
    return [batch.num_rows for batch in scanner.to_batches()]


NEGATIVE = {"limit": -1}
RUNS: dict[str, Callable[[Client, Path], Any]] = {
    "all": read(),
    "columns": read(columns=["b", "a"]),
    "child": read(columns=["s.x"]),
    "two children": read(columns=["s.y", "a", "s.x"]),
    "no columns": of(lambda s: s.to_table().num_rows, columns=[]),
    "no columns, row id": read(columns=[], with_row_id=True),
    "column twice": read(columns=["a", "a"]),
    "unknown column": read(columns=["q"]),
    "columns as a string": read(columns="a"),
    "hidden columns": read(columns=["_rowid", "a", "_rowaddr"]),
    "row id": read(with_row_id=True, columns=["a"]),
    "row address": read(with_row_address=True, columns=["a"]),
    "row id and address": read(with_row_id=True, with_row_address=True, columns=["a"]),
    "offset column": read(columns=["_rowoffset", "a"], limit=5, offset=2),
    "limit": read(limit=5),
    "limit 0": read(limit=0),
    "offset": read(offset=95),
    "limit and offset": read(limit=10, offset=25),
    "limit and offset over a fragment": read(limit=60, offset=31),
    "offset beyond": read(offset=1000),
    "negative limit": read(**NEGATIVE),
    "negative offset": read(offset=-1),
    "filter, limit, offset": read(filter="a > 10", limit=7, offset=30),
    "filter by row id": read(filter="_rowid < 5"),
    "filter by row address": read(filter="_rowaddr < 5"),
    "expressions": read(columns={"x": "a", "y": "upper(b)", "z": "a + 1", "w": "s.x"}),
    "expression of a condition": read(columns={"big": "a > 50"}),
    "expression that is not valid": read(columns={"x": "a +"}),
    "expression of an unknown column": read(columns={"x": "q"}),
    "expressions, filter, limit": read(columns={"x": "a * 2"}, filter="b = 'x1'", limit=3),
    "expressions and row id": read(columns={"x": "a * 2"}, with_row_id=True, limit=3),
    "order": ordered(("f",), ("a",)),
    "order, nulls first": ordered(("f", True, True), ("a",)),
    "order, descending": ordered(("f", False), ("a",)),
    "order, descending, nulls first": ordered(("f", False, True), ("a",)),
    "order by text": ordered(("b", False), ("a", True)),
    "order, limit": ordered(("f",), ("a",), limit=7),
    "order, limit, offset": ordered(("f",), ("a",), limit=7, offset=88),
    "order, filter": ordered(("b",), ("a", False), filter="a > 80"),
    "order, some columns": ordered(("a", False), columns=["a", "b"], limit=4),
    "order by a name": read(order_by=["a"], limit=3),
    "order by an unknown column": ordered(("q",)),
    "strict batches": of(sizes, batch_size=16, strict_batch_size=True),
    "strict batches, filter": of(sizes, batch_size=7, strict_batch_size=True, filter="a > 20"),
    "batch of 0 rows": of(sizes, batch_size=0),
    "batches by bytes and strict": of(sizes, batch_size_bytes=100, strict_batch_size=True),
    "readahead 0": of(sizes, batch_readahead=0),
    "readahead 4": of(sizes, batch_readahead=4, fragment_readahead=2, batch_size=30),
    "not in order": read(scan_in_order=False),
    "late materialisation": read(late_materialization=["b"], filter="a < 9"),
    "late materialisation of an unknown column": read(late_materialization=["q"]),
    "statistics off": read(use_stats=False, filter="a < 9"),
    "scalar index off": read(use_scalar_index=False, filter="a < 9"),
    "deleted rows": read(include_deleted_rows=True, with_row_id=True, columns=["a"]),
    "deleted rows without row id": read(include_deleted_rows=True),
    "deleted rows, filter": read(include_deleted_rows=True, with_row_id=True, filter="a < 6"),
    "deleted rows, address": read(
        include_deleted_rows=True, with_row_id=True, with_row_address=True, columns=["a"]
    ),
    "deleted rows, limit": read(
        include_deleted_rows=True, with_row_id=True, columns=["a"], limit=4, offset=29
    ),
    "blob handling": read(blob_handling="nothing"),
    "no index segments": read(index_segments=[]),
    "count": of(lambda s: s.count_rows()),
    "count with a filter": of(lambda s: s.count_rows(), filter="a < 10"),
    "count with a limit": of(lambda s: s.count_rows(), limit=10),
    "count with deleted rows": of(
        lambda s: s.count_rows(), include_deleted_rows=True, with_row_id=True
    ),
    "head": of(lambda s: s.head(3)),
    "head with a limit": of(lambda s: s.head(30), limit=4),
    "schemas": of(
        lambda s: [s.projected_schema, s.dataset_schema], columns=["b"], with_row_id=True
    ),
    "schema of expressions": of(
        lambda s: s.projected_schema.names, columns={"x": "a * 2", "y": "b"}
    ),
    "reader": of(lambda s: s.to_reader().read_all(), limit=12),
    "read twice": of(lambda s: [s.to_table(), s.to_table()], limit=2),
    "statistics callback": of(lambda s: s.to_table(), scan_stats_callback=lambda _: None),
    "failing callback": of(lambda s: s.to_table(), scan_stats_callback=lambda _: 1 / 0),
    "to_table by position": dataset(lambda d: d.to_table(["a"], "a < 5", 2, 1)),
    "to_batches": dataset(lambda d: pa.Table.from_batches(d.to_batches(columns=["a"]))),
    "fragments": dataset(lambda d: d.scanner(fragments=d.get_fragments()[1:2]).to_table()),
    "fragments, other order": dataset(
        lambda d: d.scanner(["a"], fragments=d.get_fragments()[::-1]).to_table()
    ),
    "no fragments": dataset(lambda d: d.scanner(["a"], fragments=[]).to_table().num_rows),
    "fragments, filter, limit": dataset(
        lambda d: d.scanner(
            ["a"], fragments=d.get_fragments()[1:3], filter="a > 40", limit=9, offset=3
        ).to_table()
    ),
    "not fragments": dataset(lambda d: d.scanner(fragments=[1]).to_table()),
    "take": dataset(lambda d: d.take([5, 0, 90, 5], columns=["a", "b"])),
    "take out of range": dataset(lambda d: d.take([97])),
    "take nothing": dataset(lambda d: d.take([], columns=["a"]).num_rows),
}
CASES = [Case("scanners", name, run) for name, run in RUNS.items()]
