"""The order of the rows of a scan: `ColumnOrdering`, and its keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema

if TYPE_CHECKING:
    from lance_spark.scan.top_rows import SortKey


@dataclass(frozen=True)
class ColumnOrdering:
    """A column by which a scan orders its rows.

    Attributes
    ----------
    column_name : str
        A column, or a child of a struct with its path, such as ``s.a``.
    ascending : bool
    nulls_first : bool
        Whether rows with null come first, in both directions.

    Examples
    --------
    >>> dataset.to_table(order_by=[ColumnOrdering("age", ascending=False)], limit=10)
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A key of an order, and where its values are.

    Attributes
    ----------
    key : SortKey
        The column, or the child of a struct.
    path : tuple of str
        The names from the top-level column down.
    """

    key: SortKey
    path: tuple[str, ...]


def parse_order(
    orderings: str | Iterable[ColumnOrdering | str] | None, schema: Schema
) -> tuple[OrderKey, ...]:
    """Return the keys of an order.

    Parameters
    ----------
    orderings : str or iterable of ColumnOrdering or str, optional
        A string is a column in ascending order. pylance's `ColumnOrdering` is accepted as well.
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        A column does not exist, or has a type that has no order here.
    """
    if orderings is None:
        return ()
    # Its import of Arrow's functions would slow down each start of a read.
    from lance_spark.scan.top_rows import SortKey, can_order

    keys = []
    for item in [orderings] if isinstance(orderings, str) else orderings:
        ordering = ColumnOrdering(item) if isinstance(item, str) else item
        name = getattr(ordering, "column_name", None)
        if not isinstance(name, str):
            raise InvalidInputError(
                "order_by must be names of columns or ColumnOrdering, not "
                f"{type(ordering).__name__}"
            )
        try:
            nodes = schema.path(name)
        except InvalidInputError as error:
            raise InvalidInputError(f"order_by: column {name!r} not found: {error}") from None
        field = nodes[-1]
        if any(node.logical_type != "struct" for node in nodes[:-1]):
            raise InvalidInputError(
                f"order_by: {name!r} is a child of a list or map; use children of structs"
            )
        if not can_order(field):
            raise InvalidInputError(
                f"order_by: column {name!r} has type {field.to_arrow().type}, which has no order; "
                "use numbers, booleans, strings, dates or timestamps in microseconds"
            )
        key = SortKey(field, not ordering.ascending, bool(ordering.nulls_first))
        keys.append(OrderKey(key, tuple(node.name for node in nodes)))
    return tuple(keys)


def key_names(keys: Sequence[OrderKey]) -> list[str]:
    """Return the paths of the columns of keys, each once."""
    return list(dict.fromkeys(".".join(key.path) for key in keys))
