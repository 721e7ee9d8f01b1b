"""Children of structs as columns of a scan, with their paths as names, as in pylance.

A scan reads a struct with the children that are named. Each child becomes a column of its own, null
where a struct around it is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.predicates.comparison import column_at


@dataclass(frozen=True, slots=True)
class ChildColumns:
    """The columns of a scan by their names.

    Attributes
    ----------
    paths : dict of str to tuple of str
        For each column the names from the top-level column down. Columns that a scan adds to these,
        such as ``_distance``, follow.
    """

    paths: dict[str, tuple[str, ...]]

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the schema of the columns, given that of the rows that are read."""
        fields = []
        for name, path in self._all_paths(read).items():
            nodes = _nodes(read, path)
            nullable = any(node.nullable for node in nodes)
            fields.append(nodes[-1].with_name(name).with_nullable(nullable))
        return pa.schema(fields, read.metadata)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the rows of a batch."""
        schema = self.schema(batch.schema)
        if not schema.names:
            return rows_without_columns(batch.num_rows)
        arrays = [column_at(batch, path) for path in self._all_paths(batch.schema).values()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def of_table(self, table: pa.Table) -> pa.Table:
        """Return the columns of the rows of a table."""
        batches = [self.of_batch(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, self.schema(table.schema))

    def _all_paths(self, read: pa.Schema) -> dict[str, tuple[str, ...]]:
        used = {path[0] for path in self.paths.values()}
        # A read can leave out blobs.
        paths = {name: path for name, path in self.paths.items() if _nodes(read, path)}
        return paths | {name: (name,) for name in read.names if name not in used}


def _nodes(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field]:
    """Return the fields of a path; none if the last one is not in the schema."""
    nodes: list[pa.Field] = []
    for name in path:
        fields = list(nodes[-1].type if nodes else schema)
        found = [field for field in fields if field.name == name]
        if not found:
            return []
        nodes.append(found[0])
    return nodes


def child_columns(columns: Sequence[str] | None, schema: Schema) -> ChildColumns | None:
    """Return the columns of a scan; None if none of them is a child of a struct.

    Children of lists and maps stay in them.

    Parameters
    ----------
    columns : sequence of str, optional
        As a caller gave them.
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        A child is not found.
    """
    top_level = set(schema.names)
    if columns is None or all(name in top_level or "." not in name for name in columns):
        return None
    paths: dict[str, tuple[str, ...]] = {}
    for name in columns:
        if name in top_level or "." not in name:
            paths[name] = (name,)
            continue
        nodes = schema.path(name)
        if all(node.logical_type == "struct" for node in nodes[:-1]):
            paths[name] = tuple(node.name for node in nodes)
        else:
            paths[nodes[0].name] = (nodes[0].name,)
    return ChildColumns(paths)
