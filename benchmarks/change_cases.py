"""What `changes.py` measures: each change as this package makes it, and as pylance does.

Each function opens a table and changes it. Nothing is imported before it is asked for, so that a
process has one client only.
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

Change = Callable[[str, float], object]
_TAKEN = 10_000
_FACTOR = 1.25


@dataclass(frozen=True, slots=True)
class Case:
    """A change.

    Attributes
    ----------
    title : str
    table : str
        See `change_tables`.
    ours, theirs : callable
        Get the path of the table, and its scale.
    kinds : tuple of str
        Whether it is made with and without stable row ids: what the table's name ends in.
    count : int, optional
        Part of the table's name.
    """

    title: str
    table: str
    ours: Change
    theirs: Change
    kinds: tuple[str, ...] = tables.KINDS
    count: int | None = None

    def table_name(self, kind: str, scale: float) -> str:
        """Return the name of the table."""
        if self.count is not None:
            return f"{self.table}-{tables.scaled(self.count, scale)}"
        return self.table + kind


def _ours(path: str) -> Any:
    import lance_spark

    return lance_spark.open_dataset(path)


def _theirs(path: str) -> Any:
    import lance

    return lance.dataset(path)


def _delete(title: str, table: str, column: str, op: str, value: float) -> Case:
    def limit(scale: float) -> int:
        return int(value if column == "bucket" else value * scale)

    return Case(
        title,
        table,
        lambda path, scale: _ours(path).delete([(column, op, limit(scale))]),
        lambda path, scale: _theirs(path).delete(
            f"{column} {op} {limit(scale)}".replace("==", "=")
        ),
    )


def _update(title: str, table: str, values: dict[str, str]) -> Case:
    ours = {name: float(value) if name == "price" else int(value) for name, value in values.items()}
    return Case(
        title,
        table,
        lambda path, _: _ours(path).update(ours, [("bucket", "in", list(range(500, 510)))]),
        lambda path, _: _theirs(path).update(values, "bucket >= 500 AND bucket < 510"),
    )


def _raise_prices(path: str, _: float) -> None:
    _ours(path).update({"price": _raised}, mode="columns")


def _raise_their_prices(path: str, _: float) -> None:
    import lance

    dataset = lance.dataset(path)
    fragments, fields = [], []
    for fragment in dataset.get_fragments():
        rows = fragment.scanner(columns=["price"], with_row_id=True).to_table()
        new = pa.table({"_rowid": rows["_rowid"], "price": _raised(rows)})
        metadata, fields = fragment.update_columns(new)
        fragments.append(metadata)
    operation = lance.LanceOperation.Update(
        updated_fragments=fragments, fields_modified=fields, update_mode="rewrite_columns"
    )
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)


def _raised(rows: Any) -> Any:
    return pc.multiply(rows["price"], _FACTOR)


def _raised_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"raised": _raised(rows)})


def _add_their_function(path: str, _: float) -> None:
    import lance

    schema = pa.schema([("raised", pa.float64())])
    function = lance.batch_udf(output_schema=schema)(_raised_batch)
    _theirs(path).add_columns(function, read_columns=["price"])


def _take(kind: str) -> Case:
    def ids(scale: float) -> np.ndarray[Any, Any]:
        rows = tables.scaled(tables.ROWS, scale)
        chosen = np.random.default_rng(7).integers(0, rows, min(_TAKEN, rows))
        if kind:
            return chosen
        fragment, offset = np.divmod(chosen, -(-rows // tables.FRAGMENTS))
        return fragment << 32 | offset

    return Case(
        "take 10,000 rows by id, 15 % deleted",
        "deleted",
        lambda path, scale: _ours(path).take_rows(ids(scale)),
        lambda path, scale: _theirs(path)._take_rows(ids(scale).tolist()),
        (kind,),
    )


def _append(count: int) -> Case:
    def ours(path: str, _: float) -> None:
        import lance_spark

        lance_spark.write_dataset(tables.one_row(), path, "append")

    def theirs(path: str, _: float) -> None:
        import lance

        lance.write_dataset(tables.one_row(), path, mode="append")

    title = f"append one row, {count:,} fragment{'s' if count > 1 else ''}"
    return Case(title, "fragments", ours, theirs, ("",), count)


def _cleanup(title: str, table: str) -> Case:
    def change(dataset: Any) -> None:
        dataset.cleanup_old_versions(datetime.timedelta(0))

    return Case(
        title,
        table,
        lambda path, _: change(_ours(path)),
        lambda path, _: change(_theirs(path)),
        ("",),
    )


CASES = [
    _delete("delete 0.1 %", "rows", "bucket", "==", 7),
    _delete("delete 10 %", "rows", "bucket", "<", tables.BUCKETS // 10),
    _delete("delete two of five fragments", "rows", "id", "<", tables.ROWS * 2 // 5),
    _delete("delete 0.1 % once 15 % are deleted", "deleted", "bucket", "==", 507),
    _update("update 1 %", "rows", {"price": "0.5"}),
    _update("update 1 %, vectors", "vectors", {"id": "0"}),
    Case("update a column everywhere", "rows", _raise_prices, _raise_their_prices),
    Case(
        "add a constant column",
        "rows",
        lambda path, _: _ours(path).add_columns({"rate": 1.5}),
        lambda path, _: _theirs(path).add_columns({"rate": "1.5"}),
    ),
    Case(
        "add a column by a function",
        "rows",
        lambda path, _: _ours(path).add_columns({"raised": _raised}, read_columns=["price"]),
        _add_their_function,
    ),
    Case(
        "add a column without values",
        "rows",
        lambda path, _: _ours(path).add_columns(pa.field("rate", pa.float64())),
        lambda path, _: _theirs(path).add_columns(pa.field("rate", pa.float64())),
    ),
    Case(
        "compact 200 fragments",
        "small",
        lambda path, _: _ours(path).compact_files(),
        lambda path, _: _theirs(path).optimize.compact_files(),
    ),
    Case(
        "compact fragments, 15 % deleted",
        "deleted",
        lambda path, _: _ours(path).compact_files(),
        lambda path, _: _theirs(path).optimize.compact_files(),
    ),
    Case(
        "restore",
        "deleted",
        lambda path, _: _ours(path).checkout_version(1).restore(),
        lambda path, _: _theirs(path).checkout_version(1).restore(),
    ),
    Case(
        "read, nothing deleted",
        "rows",
        lambda path, _: _ours(path).to_table(["id", "price"]),
        lambda path, _: _theirs(path).to_table(["id", "price"]),
    ),
    Case(
        "read, 15 % deleted",
        "deleted",
        lambda path, _: _ours(path).to_table(["id", "price"]),
        lambda path, _: _theirs(path).to_table(["id", "price"]),
    ),
    *(_take(kind) for kind in tables.KINDS),
    *(_append(count) for count in tables.APPENDS),
    _cleanup("clean up 1,000 overwritten versions", "versions"),
    _cleanup("clean up 1,000 appended versions", "appended"),
]
