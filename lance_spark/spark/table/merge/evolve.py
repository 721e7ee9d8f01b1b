"""Columns that a merge gives to its table, because the merge assigns them and the table has none.

They are added with nulls, in a version before that of the merge: Spark's own statement
``MERGE WITH SCHEMA EVOLUTION`` has two versions, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import SchemaMismatchError
from lance_spark.mutations.columns.add import add_columns
from lance_spark.mutations.columns.assignments import name_parts
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.spark.read.projection import finder
from lance_spark.spark.table.merge.join import TARGET, Action, Clause
from lance_spark.spark.types.mapping import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions


def with_new_columns(
    handle: TableHandle,
    dataset: Dataset,
    source: DataFrame,
    clauses: Sequence[Clause],
    options: CommitOptions,
) -> Dataset:
    """Return the version with the columns that clauses assign; the same version if it has all.

    Raises
    ------
    SchemaMismatchError
        A clause sets a column that neither the table nor the source has.
    UnsupportedTypeError
    """
    find = finder(handle.spark)
    names = dataset._table.schema.names
    of_source = source.schema
    wanted: dict[str, None] = {}
    for clause in clauses:
        if clause.action is Action.DELETE:
            continue
        if clause.values is None:
            wanted |= dict.fromkeys(of_source.names)
            continue
        for text in clause.values:
            parts = name_parts(text) or [text]
            if len(parts) > 1 and parts[0].lower() == (handle.alias_name or TARGET).lower():
                del parts[0]
            # A child of a struct belongs to a column that the table must have.
            if len(parts) == 1 and find(names, parts[0]) < 0:
                position = find(of_source.names, parts[0])
                if position < 0:
                    raise SchemaMismatchError(
                        f"merge: neither the table nor the source has a column {parts[0]!r}; the "
                        f"table has {', '.join(names)}, the source {', '.join(of_source.names)}"
                    )
                wanted[of_source.names[position]] = None
    added = [
        field
        for field in of_source
        if field.name in wanted
        and find(names, field.name) < 0
        and field.name.lower() not in META_FIELDS
    ]
    if not added:
        return dataset
    schema = to_arrow_schema(StructType(added))
    nullable = [field.with_nullable(True) for field in schema]
    changed = add_columns(dataset._table, nullable, options=options)
    return Dataset(changed, dataset._storage_options)
