"""CHECK constraints on the rows that jobs of `LanceTable` write.

Spark evaluates a condition on the row as the table will have it, in the task that writes the row. A
row for which it is false ends the job before the commit; null is as good as true, as in SQL. The
commit learns what was checked (`lance_spark.table.constraints`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_spark.spark.quoting import quoted
from lance_spark.spark.table.dataframes import analysis_errors
from lance_spark.table.constraints import Constraint, conditions_on

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.open import OpenTable


def checks_on(table: OpenTable, columns: Collection[str] | None) -> list[Constraint]:
    """Return the conditions of a table that new values of columns may not meet.

    - `columns`: Columns that get values in existing rows; None for new rows.

    Raises CorruptTableError.
    """
    return conditions_on(table.manifest.message.config, columns, table.store.display)


def named_by(checks: Iterable[Constraint], names: Sequence[str]) -> list[str]:
    """Return the columns that conditions name; all if one of them does not say its columns.

    - `names`: The columns of the table.
    """
    named: set[str] = set()
    for check in checks:
        named.update(path[0] for path in check.columns) if check.columns else named.update(names)
    return [name for name in names if name in named]


def with_checks(options: CommitOptions, table: OpenTable) -> CommitOptions:
    """Return options for a commit of rows that meet all conditions of a table."""
    checks = checks_on(table, None)
    checked = {check.name: check.check for check in checks if check.check is not None}
    return replace(options, checked_constraints=checked) if checked else options


def checked_rows(
    rows: DataFrame,
    checks: Sequence[Constraint],
    *,
    kept: Sequence[str] | None = None,
    unless: Column | None = None,
) -> DataFrame:
    """Return a frame that raises Spark's error for a row that does not meet a condition.

    - `rows`: Among its columns are those of the table that the conditions name (`named_by`).
    - `kept`: The columns of the result; all by default.
    - `unless`: True for rows that are not checked.

    Raises InvalidInputError: Spark cannot analyse a condition.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    null, true = F.lit("null"), F.lit(True)
    for check in checks:
        shown = [
            F.concat(F.lit(f" {name} : "), F.coalesce(F.col(quoted(name)).cast("string"), null))
            for name in dict.fromkeys(path[0] for path in check.columns)
        ]
        problem = F.concat(
            F.lit(
                f"[CHECK_CONSTRAINT_VIOLATION] CHECK constraint {check.name} {check.check} "
                "violated by row with values:"
            ),
            *shown,
        )
        is_met = F.coalesce(F.expr(str(check.check)), true)
        if unless is not None:
            is_met = unless | is_met
        raised = F.raise_error(problem).cast("boolean")
        with analysis_errors(f"constraint {check.name}"):
            rows = rows.where(F.when(is_met, true).otherwise(raised))
            # Spark Connect analyses when it is asked for the schema.
            _ = rows.schema
    return rows if kept is None else rows.select(*kept)
