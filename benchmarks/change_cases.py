"""The changes that `changes.py` measures, by this package and by pylance.

Each function of a case opens a table and changes it. Each function imports its client when it is
called, so that a process loads one client alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import change_tables as tables

#: A change of the table at a path. The second argument is the table's scale.
Change = Callable[[str, float], object]
TAKEN_ROWS = 10_000
PRICE_FACTOR = 1.25


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a table.

    Attributes
    ----------
    title : str
        The title of the change in the report.
    table : str
        A table of `change_tables`.
    by_lance_spark, by_pylance : callable
        The change by each client.
    suffixes : tuple of str
        The suffixes of the names of the tables that the benchmark changes.
    fragments : int or None
        For table `fragments-N`, the number N at scale 1.
    """

    title: str
    table: str
    by_lance_spark: Change
    by_pylance: Change
    suffixes: tuple[str, ...] = tables.SUFFIXES
    fragments: int | None = None

    def table_name(self, suffix: str, scale: float) -> str:
        """Return the name of the table."""
        if self.fragments is not None:
            return f"{self.table}-{tables.scaled(self.fragments, scale)}"
        return self.table + suffix


def _open_by_lance_spark(path: str) -> Any:
    import lance_spark

    return lance_spark.open_dataset(path)


def _open_by_pylance(path: str) -> Any:
    import lance

    return lance.dataset(path)


def _delete(title: str, table: str, column: str, op: str, value: float) -> Case:
    def limit(scale: float) -> int:
        return int(value if column == "bucket" else value * scale)

    return Case(
        title,
        table,
        lambda path, scale: _open_by_lance_spark(path).delete([(column, op, limit(scale))]),
        lambda path, scale: _open_by_pylance(path).delete(
            f"{column} {op} {limit(scale)}".replace("==", "=")
        ),
    )


def _update(title: str, table: str, values: dict[str, str]) -> Case:
    numbers = {
        name: float(value) if name == "price" else int(value) for name, value in values.items()
    }
    return Case(
        title,
        table,
        lambda path, _: _open_by_lance_spark(path).update(
            numbers, [("bucket", "in", list(range(500, 510)))]
        ),
        lambda path, _: _open_by_pylance(path).update(values, "bucket >= 500 AND bucket < 510"),
    )


def _update_prices_by_lance_spark(path: str, _: float) -> None:
    _open_by_lance_spark(path).update({"price": _raised_prices}, mode="columns")


def _update_prices_by_pylance(path: str, _: float) -> None:
    import lance

    dataset = lance.dataset(path)
    fragments, fields = [], []
    for fragment in dataset.get_fragments():
        rows = fragment.scanner(columns=["price"], with_row_id=True).to_table()
        prices = pa.table({"_rowid": rows["_rowid"], "price": _raised_prices(rows)})
        metadata, fields = fragment.update_columns(prices)
        fragments.append(metadata)
    operation = lance.LanceOperation.Update(
        updated_fragments=fragments, fields_modified=fields, update_mode="rewrite_columns"
    )
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)


def _raised_prices(rows: Any) -> Any:
    return pc.multiply(rows["price"], PRICE_FACTOR)


def _raised_price_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"raised": _raised_prices(rows)})


def _add_column_by_pylance(path: str, _: float) -> None:
    import lance

    schema = pa.schema([("raised", pa.float64())])
    function = lance.batch_udf(output_schema=schema)(_raised_price_batch)
    _open_by_pylance(path).add_columns(function, read_columns=["price"])


def _take(suffix: str) -> Case:
    def row_ids(scale: float) -> np.ndarray[Any, Any]:
        rows = tables.scaled(tables.ROWS, scale)
        positions = np.random.default_rng(7).integers(0, rows, min(TAKEN_ROWS, rows))
        # The stable row id of a row of these tables is the position of the row.
        if suffix:
            return positions
        fragment, offset = np.divmod(positions, -(-rows // tables.FRAGMENTS))
        return fragment << 32 | offset

    return Case(
        "take 10,000 rows by id, 15 % deleted",
        "deleted",
        lambda path, scale: _open_by_lance_spark(path).take_rows(row_ids(scale)),
        lambda path, scale: _open_by_pylance(path)._take_rows(row_ids(scale).tolist()),
        (suffix,),
    )


def _append(fragments: int) -> Case:
    def by_lance_spark(path: str, _: float) -> None:
        import lance_spark

        lance_spark.write_dataset(tables.row_to_append(), path, "append")

    def by_pylance(path: str, _: float) -> None:
        import lance

        lance.write_dataset(tables.row_to_append(), path, mode="append")

    title = f"append one row, {fragments:,} fragment{'s' if fragments > 1 else ''}"
    return Case(title, "fragments", by_lance_spark, by_pylance, ("",), fragments)


def _cleanup(title: str, table: str) -> Case:
    def remove_old_versions(dataset: Any) -> None:
        dataset.cleanup_old_versions(datetime.timedelta(0))

    return Case(
        title,
        table,
        lambda path, _: remove_old_versions(_open_by_lance_spark(path)),
        lambda path, _: remove_old_versions(_open_by_pylance(path)),
        ("",),
    )


CASES = [
    _delete("delete 0.1 %", "rows", "bucket", "==", 7),
    _delete("delete 10 %", "rows", "bucket", "<", tables.BUCKETS // 10),
    _delete("delete two of five fragments", "rows", "id", "<", tables.ROWS * 2 // 5),
    _delete("delete 0.1 % once 15 % are deleted", "deleted", "bucket", "==", 507),
    _update("update 1 %", "rows", {"price": "0.5"}),
    _update("update 1 %, vectors", "vectors", {"id": "0"}),
    Case(
        "update a column everywhere",
        "rows",
        _update_prices_by_lance_spark,
        _update_prices_by_pylance,
    ),
    Case(
        "add a constant column",
        "rows",
        lambda path, _: _open_by_lance_spark(path).add_columns({"rate": 1.5}),
        lambda path, _: _open_by_pylance(path).add_columns({"rate": "1.5"}),
    ),
    Case(
        "add a column by a function",
        "rows",
        lambda path, _: _open_by_lance_spark(path).add_columns(
            {"raised": _raised_prices}, read_columns=["price"]
        ),
        _add_column_by_pylance,
    ),
    Case(
        "add a column without values",
        "rows",
        lambda path, _: _open_by_lance_spark(path).add_columns(pa.field("rate", pa.float64())),
        lambda path, _: _open_by_pylance(path).add_columns(pa.field("rate", pa.float64())),
    ),
    Case(
        "compact 200 fragments",
        "small",
        lambda path, _: _open_by_lance_spark(path).compact_files(),
        lambda path, _: _open_by_pylance(path).optimize.compact_files(),
    ),
    Case(
        "compact fragments, 15 % deleted",
        "deleted",
        lambda path, _: _open_by_lance_spark(path).compact_files(),
        lambda path, _: _open_by_pylance(path).optimize.compact_files(),
    ),
    Case(
        "restore",
        "deleted",
        lambda path, _: _open_by_lance_spark(path).checkout_version(1).restore(),
        lambda path, _: _open_by_pylance(path).checkout_version(1).restore(),
    ),
    Case(
        "read, nothing deleted",
        "rows",
        lambda path, _: _open_by_lance_spark(path).to_table(["id", "price"]),
        lambda path, _: _open_by_pylance(path).to_table(["id", "price"]),
    ),
    Case(
        "read, 15 % deleted",
        "deleted",
        lambda path, _: _open_by_lance_spark(path).to_table(["id", "price"]),
        lambda path, _: _open_by_pylance(path).to_table(["id", "price"]),
    ),
    *(_take(suffix) for suffix in tables.SUFFIXES),
    *(_append(fragments) for fragments in tables.APPENDS),
    _cleanup("clean up 1,000 overwritten versions", "versions"),
    _cleanup("clean up 1,000 appended versions", "appended"),
]
