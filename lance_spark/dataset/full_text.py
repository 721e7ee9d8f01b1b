"""Full-text search of a `Dataset`: rows in the order of their scores, with the column `_score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.row_meta import SCORE
from lance_spark.scan.text.columns import needs_index
from lance_spark.scan.text.queries import FullTextQuery, QueryLike, leaves, parse_query
from lance_spark.scan.text.search import TextSearch, indexed_columns
from lance_spark.table.indexes import sections as indexes

if TYPE_CHECKING:
    from lance_spark.table.open import OpenTable


def parsed_query(table: OpenTable, query: QueryLike) -> FullTextQuery:
    """Return a query, which searches all indexed columns if it names none.

    Raises
    ------
    InvalidInputError
        The query is malformed, or names a column that does not exist.
    CorruptTableError
    """
    section = indexes.read_section(table.manifest)
    names = dict(_names(table.schema.fields))
    parsed = parse_query(query, indexed_columns(section.indices, names))
    for leaf in leaves(parsed):
        table.schema.path(leaf.column)
    return parsed


def can_ignore_indexes(search: TextSearch) -> bool:
    """Return whether texts can be read in place of indexes, if there are any."""
    uses_index = any(plan.segments for plan in search.columns.values())
    return uses_index and not needs_index(list(leaves(search.query)))


def score_field(names: Sequence[str]) -> pa.Field:
    """Return the column of scores, for a table with columns of some names.

    Raises
    ------
    InvalidInputError
        A column of the table has its name.
    """
    if SCORE.name in names:
        raise InvalidInputError(
            f"the table has a column {SCORE.name!r}, which is the name of the scores of a "
            "full-text query; rename it"
        )
    return SCORE.arrow_field


def with_score(schema: Schema, position: int) -> Schema:
    """Return a schema with the column `_score`."""
    fields = schema.fields
    return Schema((*fields[:position], SCORE, *fields[position:]), schema.metadata)


def split_columns(columns: Sequence[str] | None) -> tuple[list[str] | None, int | None]:
    """Return the names of the columns to read, and the position of `_score` among them.

    The position is None if the column is not named.

    Raises
    ------
    InvalidInputError
        The column is named twice.
    """
    if columns is None:
        return None, None
    names = list(columns)
    if names.count(SCORE.name) > 1:
        raise InvalidInputError(f"column {SCORE.name!r} is named twice")
    if SCORE.name not in names:
        return names, None
    position = names.index(SCORE.name)
    return names[:position] + names[position + 1 :], position


def _names(fields: Sequence[Field], parent: str = "") -> Iterator[tuple[int, str]]:
    """Yield the id of each field with its name; a child of a struct has a path with dots."""
    for node in fields:
        yield node.id, parent + node.name
        if node.logical_type == "struct":
            yield from _names(node.children, f"{parent}{node.name}.")
