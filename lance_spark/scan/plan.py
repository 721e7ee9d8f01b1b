"""The distribution of a table's rows to tasks.

Tasks have about equally many rows. Small fragments are packed together in the table's order; a
fragment larger than the target is cut into equal slices. The tasks, one after the other, give the
rows of the table in its order. `explained` describes a planned scan.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lance_spark._forks import after_fork
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.conditions import top_fields
from lance_spark.scan.fragment.column_reader import fixed_width
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import ListedFragments
from lance_spark.table.paths import TablePaths

#: Cuts inside a fragment are multiples of this many rows, so that no two tasks decode one chunk.
CUT_ALIGNMENT = 4096

#: Most and least bytes of files that a task reads, and its least rows. A task takes about a
#: hundredth of a second to start, and a million values of a column take a few. For a small table
#: half as many rows are enough, so that two tasks can share it.
_LARGEST_BYTES = 128 * 1024 * 1024
_SMALLEST_BYTES = 48 * 1024 * 1024
_SMALLEST_ROWS = 1024 * 1024
_SAMPLE = 10_000
#: About the most tasks of a plan: past 2 TiB each task reads more. A task is an object, and the
#: sizes are only claimed by a manifest.
_MAX_TASKS = 16 * 1024


class UsedIndex(NamedTuple):
    """An index that rules out rows of a scan.

    - `num_rows`: Rows of the fragments that it covers for which a comparison of the column can
      hold.
    - `deferred`: Segments that are left to tasks; `num_rows` are those of the others.
    - `search`: How a vector search uses it.
    """

    name: str
    index_type: str
    column: str
    num_rows: int
    deferred: int = 0
    search: str = ""

    def __str__(self) -> str:
        answers = [f"{self.num_rows} rows"] if self.num_rows or not self.deferred else []
        if self.deferred:
            answers.append(f"tasks search {self.deferred} of its segments")
        answers += [self.search] if self.search else []
        return f"{self.name} ({self.index_type}): {', '.join(answers)}"


class ScanPlan(NamedTuple):
    """The tasks of a scan, and the indexes that rule out rows."""

    tasks: list[ScanTask]
    indexes: tuple[UsedIndex, ...]


class _Pause:
    """Counts the threads for which the collector is paused."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._lock:
            if not self._threads:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._threads += 1

    def end(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads and self._was_enabled:
                gc.enable()


_PAUSE = _Pause()


@after_fork
def _continue_collection() -> None:
    # The threads that planned are not in the child.
    global _PAUSE  # noqa: PLW0603
    if _PAUSE._threads and _PAUSE._was_enabled:
        gc.enable()
    _PAUSE = _Pause()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    Its search through the objects of a large plan takes longer than the planning. Threads may plan
    at the same time: the last one switches the collector on again.
    """
    _PAUSE.begin()
    try:
        yield
    finally:
        _PAUSE.end()


def select_fragments(
    fragments: Sequence[Fragment], ids: Collection[int] | None
) -> Sequence[Fragment]:
    """Return the fragments with the given ids, in the table's order; all if `ids` is None.

    Raises InvalidInputError: a fragment is not found.
    """
    if ids is None:
        return fragments
    requested = set(ids)
    if isinstance(fragments, ListedFragments) and len(fragments.positions) == len(fragments):
        places = [fragments.positions[number] for number in requested & fragments.positions.keys()]
        selected = [fragments[place] for place in sorted(places)]
    else:
        selected = [fragment for fragment in fragments if fragment.id in requested]
    if len(selected) < len(requested):
        missing = min(requested - {fragment.id for fragment in selected})
        raise InvalidInputError(
            f"fragment_ids: this version of the table has no fragment {missing}"
        )
    return selected


def pack(
    fragments: Sequence[Fragment], target_rows: int, *, whole_fragments: bool = False
) -> list[tuple[FragmentSlice, ...]]:
    """Pack fragments into groups of about `target_rows` physical rows.

    - `target_rows`: Rows that a group aims at; at least 1. A group has at most 1.5 times as many,
      and less than 4,096 more, because fragments are cut at multiples of that.
    - `whole_fragments`: Whether fragments are not cut, however large. Large fragments make groups
      of up to twice the target then, or of more rows if one fragment has more.

    The rows are shared equally by as many groups as the target asks for. A group that would end
    near the end of a fragment ends there, so that fragments of about the same size make groups of
    about the same size. Empty fragments are left out.
    """
    return pack_slices(
        [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments],
        target_rows,
        whole_slices=whole_fragments,
    )


def pack_slices(
    slices: Iterable[FragmentSlice], target_rows: int, *, whole_slices: bool = False
) -> list[tuple[FragmentSlice, ...]]:
    """Pack slices of fragments as `pack` packs whole fragments."""
    filled = [piece for piece in slices if piece.num_rows > 0]
    if not filled:
        return []
    rows = np.array([piece.num_rows for piece in filled], np.int64)
    edges = np.concatenate([np.zeros(1, np.int64), rows.cumsum()])
    ends = iter(_ends(edges, target_rows, whole_slices).tolist())
    groups: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    end = next(ends)
    for piece, first in zip(filled, edges.tolist(), strict=False):
        start, size = 0, piece.num_rows
        while end < first + size:
            current.append(piece.part(start, end - first))
            groups.append(tuple(current))
            start, current, end = end - first, [], next(ends)
        current.append(piece.part(start, size) if start else piece)
        if end == first + size:
            groups.append(tuple(current))
            current, end = [], next(ends, end)
    return groups


def _ends(
    edges: npt.NDArray[np.int64], target_rows: int, whole_slices: bool
) -> npt.NDArray[np.int64]:
    """Return the rows at which groups end; the last is that of all rows.

    - `edges`: The rows at which slices begin and end.
    """
    total = int(edges[-1])
    count = max(1, round(total / target_rows))
    size = total / count
    if whole_slices:
        # An edge is an end if it is the nearest edge of a multiple of the size. There may be far
        # more multiples than edges.
        passed = np.ceil((edges[:-1] + edges[1:]) / 2 / size)
        return np.append(edges[1:-1][np.diff(passed) > 0], total)
    ideal = np.arange(1, count) * size
    after = np.searchsorted(edges, ideal)
    first, last = edges[after - 1], edges[after]
    ends = np.where(ideal - first < last - ideal, first, last)
    # Two ends that move by so much make a group of 1.5 times the target.
    room = (1.5 * target_rows - size) / 2
    step = CUT_ALIGNMENT if size > CUT_ALIGNMENT else 1
    cuts = first + np.rint((ideal - first) / step).astype(np.int64) * step
    ends = np.unique(np.where(np.abs(ends - ideal) <= room, ends, np.minimum(cuts, last)))
    return np.append(ends[(ends > 0) & (ends < total)], total)


def with_positions(
    groups: Sequence[tuple[FragmentSlice, ...]], first_positions: Mapping[int, int]
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups whose slices have `first_position`, by the id of their fragment."""
    return [
        tuple(piece._replace(first_position=first_positions[piece.fragment.id]) for piece in group)
        for group in groups
    ]


def estimated_bytes(fragments: Sequence[Fragment], rows: int) -> int:
    """Estimate the bytes of all data files from an even sample of at most 20,000 fragments.

    - `rows`: Physical rows of all of them.
    """
    sample = fragments[:: max(1, len(fragments) // _SAMPLE)]
    size = sum([fragment.size_bytes for fragment in sample])
    if len(sample) == len(fragments):
        return size
    return size * rows // max(1, sum([fragment.physical_rows for fragment in sample]))


def read_bytes(stored: int, rows: int, read: Iterable[Field], table: Iterable[Field]) -> int:
    """Estimate how many of the stored bytes belong to some columns; rather too many than too few.

    - `stored`, `rows`: Bytes of the data files, and their rows.
    - `read`, `table`: Top-level columns that are read, and all of them.
    """
    widths = {field.id: fixed_width(field.to_arrow().type) for field in read}
    fixed_bytes = sum([width for width in widths.values() if width is not None])
    if None not in widths.values():
        return min(stored, int(rows * fixed_bytes))
    unread_widths = [
        fixed_width(field.to_arrow().type) for field in table if field.id not in widths
    ]
    remaining = stored - int(rows * sum([width for width in unread_widths if width is not None]))
    # Compressed columns that are not read take less than their width, so that `rest` is too small.
    return min(stored, max(remaining, int(rows * fixed_bytes), stored // 10))


def default_target_rows(
    total_rows: int, total_bytes: int, parallelism: int, num_columns: int = 1
) -> int:
    """Choose the rows of a task from the bytes that are read.

    - `total_rows`, `total_bytes`: Rows of the table and bytes of the columns that are read.
    - `parallelism`: Tasks that run at the same time.
    - `num_columns`: Columns that are read.

    A task reads at most 128 MiB of files (more past 2 TiB). All `parallelism` tasks have work if
    the table is large enough to share. A task is not so small that its start takes more than a
    fifth of its time: it has a million rows of one column, half as many of a small table, fewer
    rows of many columns, or 48 MiB of files. More tasks than `parallelism` are a multiple of it: of
    three tasks for two processors, the third would have one of them to itself. There are no more
    than that: Spark makes partial groups for each task, and the groups of a scan of many small
    groups would be shuffled once for each task.
    """
    if total_rows <= 0:
        return 1
    row_bytes = max(total_bytes / total_rows, 1e-3)
    largest = _LARGEST_BYTES / row_bytes
    row_limit = min(max(total_rows / 2, _SMALLEST_ROWS / 2), _SMALLEST_ROWS)
    smallest = min(row_limit / (1 + (num_columns - 1) / 8), _SMALLEST_BYTES / row_bytes)
    parallelism = max(parallelism, 1)
    target = max(min(largest, total_rows / parallelism), smallest, 1)
    if target * parallelism < total_rows:
        waves = math.ceil(total_rows / (target * parallelism) - 1e-9)
        target = total_rows / (parallelism * waves)
    return max(-(-total_rows // _MAX_TASKS), math.ceil(target))


def explained(
    plan: ScanPlan,
    paths: TablePaths,
    fragments: Sequence[Fragment],
    name: str,
    condition: str | None,
) -> str:
    """Describe a planned scan in some lines of text, as `Dataset.explain` returns it.

    Bytes are estimated from the pages of the columns in the first fragment that is read.

    - `fragments`: All fragments of the version.
    - `name`: Name of the table and its version.
    - `condition`: The text of the filter.
    """
    tasks = plan.tasks
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
        + (", the others are ruled out by indexes" if rows < total else ""),
    ]
    lines += [f"  index: {index}" for index in plan.indexes]
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
    with closing(FragmentReader(paths, fragment, schema, first_position=0)) as reader:
        return reader.stored_bytes() / max(fragment.physical_rows, 1)


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
