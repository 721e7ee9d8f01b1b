"""Projection: the columns of a table that a schema or an option asks for, and those of a read.

Columns are found as Spark finds them: by the exact name, else without regard to case if that leaves
one column. Paths have dots before children of structs, and only the wanted children of a struct are
read. Lists and maps are read whole, and so are structs with a child whose own name has a dot: a
path cannot name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.errors import InvalidOptionError, SchemaMismatchError
from lance_spark.file.blobs.fields import is_v1
from lance_spark.storage.uri import parse_uri

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.options.read import ReadOptions


def find(names: Sequence[str], name: str) -> int:
    """Return the index of a name, first exactly and then without regard to case.

    Returns
    -------
    int
        -1 if the name is not found, or if several names differ from it only in case.
    """
    if name in names:
        return names.index(name)
    lower = name.lower()
    matches = [index for index, candidate in enumerate(names) if candidate.lower() == lower]
    return matches[0] if len(matches) == 1 else -1


class Finder:
    """Finds many names among others, as `find` does, each without a look at all of them.

    - `names`: The others.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._exact: dict[str, int] = {}
        for index, name in enumerate(names):
            self._exact.setdefault(name, index)

    @cached_property
    def _lower(self) -> dict[str, int]:
        lower = {}
        for index, name in enumerate(self.names):
            key = name.lower()
            lower[key] = -1 if key in lower else index
        return lower

    def __call__(self, name: str) -> int:
        index = self._exact.get(name)
        return self._lower.get(name.lower(), -1) if index is None else index


def find_exactly(names: Sequence[str], name: str) -> int:
    """Return the index of a name of the same case; -1 if it is not found."""
    return names.index(name) if name in names else -1


def finder(session: Any) -> Callable[[Sequence[str], str], int]:
    """Return `find_exactly` for a session with spark.sql.caseSensitive=true, else `find`."""
    exact = str(session.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    return find_exactly if exact else find


def select(schema: pa.Schema, columns: Iterable[str], table: str) -> pa.Schema:
    """Return the part of a schema that paths name, in the order of the paths.

    - `columns`: Names, with dots before children of structs.

    Raises InvalidOptionError: a column is not found.
    """
    steps_by_index: dict[int, list[list[str]]] = {}
    found = Finder(schema.names)
    for column in columns:
        path = column.split(".")
        index = found(path[0])
        if index < 0:
            raise InvalidOptionError(missing_column(column, path[0], found.names, table))
        steps_by_index.setdefault(index, []).append(path[1:])
    return pa.schema(
        [_narrow(schema.field(index), rests, table) for index, rests in steps_by_index.items()],
        schema.metadata,
    )


def paths_for(schema: pa.Schema, wanted: spark.StructType, table: str) -> list[str]:
    """Return the paths of the columns of a table that a Spark schema asks for.

    Raises SchemaMismatchError: a column is not found.
    """
    paths: list[str] = []
    found = Finder(schema.names)
    for field in wanted:
        index = found(field.name)
        if index < 0:
            raise SchemaMismatchError(missing_column(field.name, field.name, found.names, table))
        paths += _paths(schema.field(index), field.dataType, schema.field(index).name, table)
    return paths


def _paths(field: pa.Field, wanted: spark.DataType, path: str, table: str) -> list[str]:
    if not (pa.types.is_struct(field.type) and isinstance(wanted, spark.StructType)):
        return [path]
    if is_v1(field):
        # The description of a blob is not a column of the table, and is read whole.
        return [path]
    names = [field.type.field(i).name for i in range(field.type.num_fields)]
    paths: list[str] = []
    is_whole = len(wanted) == len(names)
    for child in wanted:
        index = find(names, child.name)
        if index < 0:
            raise SchemaMismatchError(
                missing_column(f"{path}.{child.name}", child.name, names, table)
            )
        child_path = f"{path}.{names[index]}"
        child_paths = _paths(field.type.field(index), child.dataType, child_path, table)
        is_whole = is_whole and child_paths == [child_path]
        paths += child_paths
    if is_whole or not paths or any("." in names[find(names, child.name)] for child in wanted):
        return [path]
    return paths


def _narrow(field: pa.Field, rests: list[list[str]], table: str) -> pa.Field:
    if any(not child_path for child_path in rests):
        return field
    if not pa.types.is_struct(field.type):
        raise InvalidOptionError(
            f"table {table}: column {field.name} is {field.type}, and only structs have children "
            "that can be selected"
        )
    children = pa.schema([field.type.field(i) for i in range(field.type.num_fields)])
    narrowed = select(children, [".".join(child_path) for child_path in rests], table)
    return pa.field(field.name, pa.struct(list(narrowed)), field.nullable, field.metadata)


def missing_column(path: str, name: str, names: Sequence[str], table: str) -> str:
    """Return the text of an error about a column that a table does not have.

    - `path`: The column, with dots before children of structs.
    - `name`: The part of the path that is missing.
    - `names`: Names in its place.
    - `table`: What to call the table.
    """
    import difflib

    similar = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {similar[0]}?" if similar else f"it has {', '.join(names[:50])}"
    return f"table {table} has no column {path}; {hint}"


def visible_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the columns that the options select, and the row columns that they ask for.

    Raises InvalidOptionError: the option columns names a column that is not found.
    """
    schema = whole_schema(dataset, options)
    if options.columns is not None:
        whole = schema
        table = parse_uri(options.path).display
        schema = select(with_row_columns(schema), options.columns, table)
        if options.is_search and whole[-1].name not in schema.names:
            schema = schema.append(whole[-1])
        if has_query_index(dataset, options) and whole[0].name not in schema.names:
            schema = schema.insert(0, whole[0])
    if not (options.with_row_id or options.with_row_address):
        return schema
    from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, ROW_ID

    for field, wanted in ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)):
        if wanted and field.name not in schema.names:
            schema = schema.append(field.arrow_field)
    return schema


def with_row_columns(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the row columns, such as _rowid, after its own columns."""
    from lance_spark.scan.fragment.row_meta import META_FIELDS

    names = set(schema.names)
    for field in META_FIELDS.values():
        if field.name not in names:
            schema = schema.append(field.arrow_field)
    return schema


def whole_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the schema of a read of all columns, with blobs as the options choose.

    The last column of a search is that of scores or distances. The first column of a search for
    several vectors is that of their numbers.
    """
    schema = dataset._stored_schema(blob_handling=options.blob_handling)
    if options.nearest is not None:
        from lance_spark.dataset.queries import search_fields

        first, last = search_fields(schema.names, is_batch=has_query_index(dataset, options))
        schema = schema.append(last)
        return schema if first is None else schema.insert(0, first)
    if options.full_text_query is None:
        return schema
    from lance_spark.dataset.queries import score_field

    return schema.append(score_field(schema.names))


def has_query_index(dataset: Dataset, options: ReadOptions) -> bool:
    """Return whether options search for several vectors.

    Raises InvalidInputError: the search does not fit the column.
    """
    if options.nearest is None:
        return False
    from lance_spark.indexes.vectors.query import parse_nearest

    query = parse_nearest(options.nearest)
    return query.is_batch and not dataset._reader.check_nearest(query).is_multi
