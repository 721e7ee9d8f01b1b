"""Random statements that change rows have the rows that Spark's own queries have, and pylance reads
the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from tests.support.cells import number_of
from tests.support.spark.random_statements import COLUMNS, MATCHES, SCHEMA, Statements

SEQUENCES = number_of(2, 500)
LENGTH = 5


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    root = tmp_path_factory.mktemp("statements")
    lance_spark.enable(spark, "random_statements", root=str(root))
    return "random_statements", root


def plain(row: Any) -> tuple[Any, ...]:
    """Return a row as a tuple that can be sorted."""
    return tuple(
        (value is not None, tuple(value) if isinstance(value, tuple) else value) for value in row
    )


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((plain(row) for row in rows), key=repr)


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_statements(spark: Any, catalog: tuple[str, Path], seed: int) -> None:
    name, root = catalog
    table = f"{name}.t{seed}"
    statements = Statements(seed)
    stable = seed % 2 == 0
    spark.sql(
        f"CREATE TABLE {table} ({SCHEMA}) TBLPROPERTIES ('enable_stable_row_ids' = '{stable}')"
    )
    path = str(root / f"t{seed}.lance")
    rows: list[Any] = []
    for count in (12, 5):
        new = statements.rows(count)
        spark.createDataFrame(new, SCHEMA).coalesce(1).writeTo(table).append()
        rows += new
    if seed % 4 in (1, 2):
        spark.sql(f"ALTER TABLE {table} CREATE INDEX ids USING btree (id)")
    for step in range(LENGTH):
        before = ids(spark, table)
        spark.createDataFrame(rows, SCHEMA).createOrReplaceTempView("model")
        spark.createDataFrame(statements.source(), SCHEMA).createOrReplaceTempView("source")
        # Every other statement is a merge. The tables of all seeds have each condition.
        number = 3 * seed + seed // 4 + step // 2
        statement = (
            statements.statement() if step % 2 else statements.merge(MATCHES[number % len(MATCHES)])
        )
        expected = [tuple(row) for row in spark.sql(statement.query).collect()]
        version = lance.dataset(path).version
        spark.sql(statement.text.format(table=table))
        label = f"seed {seed}, step {step}: {statement.text}"
        actual = [tuple(row) for row in spark.table(table).collect()]
        assert ordered(actual) == ordered(expected), label
        dataset = lance.dataset(path)
        assert dataset.version <= version + 1, label
        theirs = [
            tuple(row[column] for column in COLUMNS) for row in dataset.to_table().to_pylist()
        ]
        theirs = [(*row[:4], None if row[4] is None else tuple(row[4].values())) for row in theirs]
        assert ordered(theirs) == ordered(expected), label
        dataset.validate()
        if stable:
            after = ids(spark, table)
            assert {key: after[key] for key in before if key in after} == {
                key: row_id for key, row_id in before.items() if key in after
            }, label
        rows = expected


def ids(spark: Any, table: str) -> dict[int, int]:
    return dict(tuple(row) for row in spark.table(table).select("id", "_rowid").collect())
