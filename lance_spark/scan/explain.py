"""The description of a planned scan, as `Dataset.explain` returns it."""

from __future__ import annotations

from collections.abc import Sequence

from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.predicates.conditions import top_fields
from lance_spark.scan.task import ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths


def explained(
    tasks: Sequence[ScanTask],
    paths: TablePaths,
    fragments: Sequence[Fragment],
    name: str,
    condition: str | None,
) -> str:
    """Describe the scan in some lines of text.

    Bytes are estimated from the pages of the columns in the first fragment that is read.

    Parameters
    ----------
    tasks : sequence of ScanTask
    paths : TablePaths
    fragments : sequence of Fragment
        All fragments of the version.
    name : str
        Name of the table and its version.
    condition : str, optional
        The text of the filter.
    """
    total = sum(fragment.physical_rows for fragment in fragments)
    if not tasks:
        reason = "statistics rule out all rows" if total else "the table has no rows"
        return f"Scan of {name}: {reason}"
    first = tasks[0]
    slices = [piece for task in tasks for piece in task.slices]
    rows = sum(piece.num_rows for piece in slices)
    read = len({piece.fragment.id for piece in slices})
    of_filters = Schema(tuple(top_fields(first.filters)))
    unread = Schema(
        tuple(field for field in first.lance_schema.fields if field not in of_filters.fields)
    )
    lines = [
        f"Scan of {name}",
        f"  columns: {', '.join(field.name for field in first.lance_schema.fields) or 'none'}",
    ]
    if first.filters:
        lines.append(f"  filter: {condition or 'given'}")
    lines += [
        f"  tasks: {len(tasks)}, of {min(task.num_rows for task in tasks):,} "
        f"to {max(task.num_rows for task in tasks):,} rows",
        f"  fragments: {read:,} of {len(fragments):,}",
        f"  rows to look at: {rows:,} of {total:,}"
        + (", the others are ruled out by zone maps" if rows < total else ""),
    ]
    deleted = sum(
        fragment.physical_rows - fragment.num_rows
        for fragment in {piece.fragment.id: piece.fragment for piece in slices}.values()
    )
    if deleted:
        lines.append(f"  deleted rows in these fragments: {deleted:,}")
    fragment = slices[0].fragment
    size = rows * _row_bytes(paths, fragment, unread)
    if first.filters:
        filter_size = rows * _row_bytes(paths, fragment, of_filters)
        lines.append(
            f"  bytes: about {_size(filter_size)} for the filter, up to {_size(size)} for the "
            "other columns of matching rows"
        )
    else:
        lines.append(f"  bytes: about {_size(size)}")
    return "\n".join(lines)


def _row_bytes(paths: TablePaths, fragment: Fragment, schema: Schema) -> float:
    if not schema.fields:
        return 0.0
    reader = FragmentReader(paths, fragment, schema, first_position=0)
    try:
        return reader.stored_bytes() / max(fragment.physical_rows, 1)
    finally:
        reader.close()


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
