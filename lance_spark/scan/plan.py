"""Which rows go to which task.

Tasks are made of about equally many rows. Small fragments are packed together in the table's order; a fragment larger than
the target is cut into equal slices. Order is kept: the tasks, one after the other, give the rows of the table in its order.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Field
from lance_spark.scan.row_size import fixed_width
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment

#: Cuts inside a fragment are multiples of this many rows, so that no two tasks decode the same chunks.
CUT_ALIGNMENT = 4096

#: What a task reads at most, and at least. Handing a row to Spark costs as much as eight of its narrow columns do, so that
#: two million rows take some tenths of a second; a task takes about a twentieth of a second to start. Half as many are enough
#: for two tasks to share the rows of a small table.
_LARGEST_BYTES = 128 * 1024 * 1024
_SMALLEST_BYTES = 96 * 1024 * 1024
_SMALLEST_ROWS = 2 * 1024 * 1024
_SAMPLE = 10_000
#: Tasks of a plan, about: past 2 TiB each of them reads more. The bytes and rows are what a manifest claims, and a task is an object.
_MOST_TASKS = 16 * 1024


@contextmanager
def collection_paused() -> Iterator[None]:
    """Let no cyclic garbage be looked for: among the objects of a large plan, the search takes longer than the planning."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def select_fragments(
    fragments: Sequence[Fragment], ids: Collection[int] | None
) -> Sequence[Fragment]:
    """Return the fragments with some ids, in the table's order; all if no ids are given.

    Raises
    ------
    InvalidInputError
        There is no fragment with one of the ids.
    """
    if ids is None:
        return fragments
    wanted = set(ids)
    found = [fragment for fragment in fragments if fragment.id in wanted]
    if len(found) < len(wanted):
        missing = min(wanted - {fragment.id for fragment in found})
        raise InvalidInputError(
            f"fragment_ids: this version of the table has no fragment {missing}"
        )
    return found


def pack(
    fragments: Sequence[Fragment], target_rows: int, *, whole: bool = False
) -> list[tuple[FragmentSlice, ...]]:
    """Pack fragments into groups of about `target_rows` physical rows.

    Parameters
    ----------
    fragments : sequence of Fragment
    target_rows : int
        Rows that a group aims at; at least 1. No group has more than 1.5 times as many, and only the rest of the table
        makes a group of less than half.
    whole : bool
        Whether fragments stay whole, however large.

    Returns
    -------
    list of tuple of FragmentSlice
        Empty fragments are left out.
    """
    groups: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    rows = 0
    limit = target_rows * 1.5
    for fragment in fragments:
        for piece in _cut(fragment, target_rows, math.inf if whole else limit):
            size = piece.stop - piece.start
            if current and rows + size > limit:
                groups.append(tuple(current))
                current, rows = [], 0
            current.append(piece)
            rows += size
            if rows >= target_rows:
                groups.append(tuple(current))
                current, rows = [], 0
    if current:
        groups.append(tuple(current))
    return groups


def with_positions(
    groups: Sequence[tuple[FragmentSlice, ...]], first_positions: Mapping[int, int]
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups whose slices know the position of their fragment's first live row in the table's order."""
    return [
        tuple(
            FragmentSlice(one.fragment, one.start, one.stop, first_positions[one.fragment.id])
            for one in group
        )
        for group in groups
    ]


def estimated_bytes(fragments: Sequence[Fragment], rows: int) -> int:
    """Return the bytes of the data files, from those of at most 20,000 fragments that lie evenly among all.

    Parameters
    ----------
    fragments : sequence of Fragment
    rows : int
        Of all of them.
    """
    sample = fragments[:: max(1, len(fragments) // _SAMPLE)]
    size = sum([fragment.size_bytes for fragment in sample])
    if len(sample) == len(fragments):
        return size
    return size * rows // max(1, sum([fragment.physical_rows for fragment in sample]))


def read_bytes(stored: int, rows: int, read: Iterable[Field], table: Iterable[Field]) -> int:
    """Return what some columns have of the bytes of the data files, rather too much than too little.

    Parameters
    ----------
    stored, rows : int
        Bytes of the data files, and their rows.
    read, table : iterable of Field
        Top-level columns that are read, and all of them.
    """
    wanted = {field.id: fixed_width(field.to_arrow().type) for field in read}
    known = sum([width for width in wanted.values() if width is not None])
    if None not in wanted.values():
        return min(stored, int(rows * known))
    others = [fixed_width(field.to_arrow().type) for field in table if field.id not in wanted]
    rest = stored - int(rows * sum([width for width in others if width is not None]))
    # Columns that are not read may be compressed to less.
    return min(stored, max(rest, int(rows * known), stored // 10))


def default_target_rows(
    total_rows: int, total_bytes: int, parallelism: int, num_columns: int = 1
) -> int:
    """Choose the rows of a task from the size of what is read.

    Parameters
    ----------
    total_rows, total_bytes : int
        Rows of the table and bytes of the columns that are read.
    parallelism : int
        Tasks that run at the same time.
    num_columns : int
        Columns that are read.

    Returns
    -------
    int
        Such that a task reads at most 128 MiB of files (more, past 2 TiB), that all of `parallelism` have work if the table is
        large enough to share, and that no task is so small that starting it costs more than a fifth of it: two million rows of one
        column, half as many of a small table, fewer of many columns, or 96 MiB of files.
    """
    if total_rows <= 0:
        return 1
    row_bytes = max(total_bytes / total_rows, 1e-3)
    largest = _LARGEST_BYTES / row_bytes
    few = min(max(total_rows / 2, _SMALLEST_ROWS / 2), _SMALLEST_ROWS)
    smallest = min(few / (1 + (num_columns - 1) / 8), _SMALLEST_BYTES / row_bytes)
    even = total_rows / max(parallelism, 1)
    return max(-(-total_rows // _MOST_TASKS), int(max(min(largest, even), smallest)))


def _cut(fragment: Fragment, target_rows: int, limit: float) -> Sequence[FragmentSlice]:
    rows = fragment.physical_rows
    if rows < limit:
        return (FragmentSlice(fragment, 0, rows),) if rows > 0 else ()
    pieces = round(rows / target_rows)
    size = -(-rows // pieces)
    if size > CUT_ALIGNMENT:
        size = -(-size // CUT_ALIGNMENT) * CUT_ALIGNMENT
    return [FragmentSlice(fragment, at, min(at + size, rows)) for at in range(0, rows, size)]
