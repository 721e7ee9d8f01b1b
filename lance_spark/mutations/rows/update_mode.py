"""The choice between the modes of an update: rows that move, or columns that are rewritten."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.mutations.rewrite.row_reader import hides_first_field
from lance_spark.scan.plan import estimated_bytes, read_bytes
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable


def can_rewrite_columns(table: OpenTable, fields: Sequence[Field]) -> bool:
    """Return whether the mode ``columns`` can update top-level columns."""
    ids = {node.id for field in fields for node in field.walk()}
    return not any(map(has_blobs, fields)) and not hides_first_field(table.manifest.fragments, ids)


def columns_are_cheaper(
    table: OpenTable, fields: Sequence[Field], fragments: Collection[int], num_rows: int
) -> bool:
    """Return whether the mode ``columns`` writes fewer bytes than the mode ``rows``.

    - `fields`: Top-level columns to update, without blobs.
    - `fragments`: Ids of the fragments with rows to update.
    - `num_rows`: The number of rows to update.
    """
    touched = [
        fragment
        for fragment in counted_fragments(table.paths, table.manifest)
        if fragment.id in fragments
    ]
    physical = sum(fragment.physical_rows for fragment in touched)
    stored = estimated_bytes(touched, physical)
    if not stored:
        # The manifest does not record the sizes of the files.
        return num_rows >= physical
    row_bytes = stored * num_rows / physical
    return 2 * read_bytes(stored, physical, fields, table.schema.fields) < row_bytes
