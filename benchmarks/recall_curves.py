"""Recall and time of searches by vector indexes of different parameters.

Each diagram changes one parameter. All indexes are built by this package, with `l2`, on vectors of
128 items in clusters. pylance searches the same indexes, so that its recall is comparable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lance

import lance_spark
from benchmarks import report
from benchmarks.curves import drawing
from benchmarks.measuring import Used, median_used, used_by
from benchmarks.tables import batch_reader, write_once
from benchmarks.vector_tables import batches, queries_of, recall, searches

PAGE = report.README.parent.parent / "docs" / "howto" / "vector-parameters.md"
_DIMENSION, _QUERIES = 128, 100
#: Values of the option in which the points of a curve differ.
_NPROBES = (1, 2, 5, 10, 20, 50, 100)
_EF = (10, 20, 50, 100, 200, 500)
#: Which of these values the short tables have.
_SHOWN = (0, 2, 4, -1)


class Index(NamedTuple):
    """An index to build.

    Attributes
    ----------
    rows : int
        Of its table.
    index_type : str
    options : tuple of pairs
        Names and values.
    """

    rows: int
    index_type: str
    options: tuple[tuple[str, int], ...] = ()

    @property
    def varied(self) -> tuple[str, Sequence[int]]:
        """The option of searches that draws a curve of this index, and its values."""
        return ("ef", _EF) if "HNSW" in self.index_type else ("nprobes", _NPROBES)


class Curve(NamedTuple):
    """Searches of an index that differ in one option."""

    name: str
    index: Index
    refine_factor: int | None = None


class Point(NamedTuple):
    """A measured search.

    Attributes
    ----------
    value : int
        Of the varied option.
    recall, oracle_recall : float
        By this package, and by pylance.
    used : Used
        By a query, of this package.
    """

    value: int
    recall: float
    oracle_recall: float
    used: Used


class Build(NamedTuple):
    """What a build used, and the bytes and partitions of the index."""

    used: Used
    num_bytes: int
    num_partitions: int


def diagrams(rows: int) -> dict[str, list[Curve]]:
    """Return the curves of each diagram, for a table of some rows."""

    def ivf(index_type: str, size: int = 4_096, rows: int = rows, **options: int) -> Index:
        return Index(rows, index_type, (("target_partition_size", size), *options.items()))

    pq = partial(ivf, "IVF_PQ", num_sub_vectors=16)
    return {
        "Type": [
            Curve("IVF_FLAT", ivf("IVF_FLAT")),
            Curve("IVF_SQ", ivf("IVF_SQ")),
            Curve("IVF_PQ, 16 parts", pq()),
            Curve("IVF_PQ, 32 parts", ivf("IVF_PQ", num_sub_vectors=32)),
            Curve("IVF_RQ, 5 bits", ivf("IVF_RQ")),
            Curve("IVF_HNSW_SQ, one graph", Index(rows, "IVF_HNSW_SQ")),
        ],
        "Refinement of IVF_PQ, 16 parts": [
            Curve("no refine_factor", pq()),
            *(Curve(f"refine_factor {factor}", pq(), factor) for factor in (2, 5, 20)),
        ],
        "Partitions, refine_factor 5": [
            Curve(f"{size:,} rows in a partition", pq(size), 5) for size in (16_384, 4_096, 1_024)
        ],
        "Rows, refine_factor 5": [
            Curve(f"{count:,} rows", pq(rows=count), 5) for count in (rows // 10, rows // 3, rows)
        ],
    }


class Table:
    """A table of vectors, queries, and their exact answers."""

    def __init__(self, folder: Path, rows: int) -> None:
        path = write_once(folder / f"recall-{_DIMENSION}-{rows}.lance", partial(_write, rows=rows))
        self.path = str(path)
        self.queries = queries_of(_QUERIES, _DIMENSION)
        self.exact = searches(
            lance_spark.open_dataset(self.path), self.queries, nprobes=None, use_index=False
        )

    def build(self, index: Index) -> Build:
        """Create the only index of the table."""
        dataset = lance_spark.open_dataset(self.path)
        create: Callable[[], object] = partial(
            dataset.create_index, "v", index.index_type, replace=True, **dict(index.options)
        )
        used = used_by(create)
        (segment,) = lance_spark.open_dataset(self.path).index_statistics("v_idx")["indices"]
        files = (Path(self.path) / "_indices" / segment["uuid"]).iterdir()
        return Build(used, sum(file.stat().st_size for file in files), segment["num_partitions"])

    def search(self, curve: Curve, rounds: int) -> list[Point]:
        """Return the points of a curve of the existing index."""
        own, oracle = lance_spark.open_dataset(self.path), lance.dataset(self.path)
        option, values = curve.index.varied
        points = []
        for value in values:
            search = partial(
                searches,
                queries=self.queries,
                refine_factor=curve.refine_factor,
                **{"nprobes": None, option: value},
            )
            recalls = [recall(search(dataset), self.exact) for dataset in (own, oracle)]
            used = median_used({"own": partial(search, own)}, rounds)["own"]
            per_query = Used(*(seconds / len(self.queries) for seconds in used))
            points.append(Point(value, *recalls, per_query))
        return points


def _write(path: Path, rows: int) -> None:
    lance.write_dataset(batch_reader(batches(rows, _DIMENSION)), str(path))


def measure(folder: Path, rows: int, rounds: int, *, update: bool) -> None:
    """Measure all curves, print tables of them, and draw them.

    Parameters
    ----------
    folder : Path
        Of the tables, and of the picture unless `update`.
    rows : int
        Of the largest table.
    rounds : int
        Repetitions of each search; times are medians.
    update : bool
        Whether the picture and the short tables go into the page.
    """
    groups = diagrams(rows)
    curves = dict.fromkeys(curve for group in groups.values() for curve in group)
    builds: dict[Index, Build] = {}
    points: dict[Curve, list[Point]] = {}
    # A table has one index at a time, so that all curves of an index are measured together.
    for count in sorted({curve.index.rows for curve in curves}):
        table = Table(folder, count)
        for index in dict.fromkeys(curve.index for curve in curves if curve.index.rows == count):
            builds[index] = table.build(index)
            for curve in curves:
                if curve.index == index:
                    points[curve] = table.search(curve, rounds)
                    print(f"\n{curve.name}, {count:,} rows\n{_all_points(curve, points[curve])}")
                    sys.stdout.flush()
    picture = drawing(
        f"Recall and time of searches of {rows:,} vectors by vector indexes",
        {
            title: {
                curve.name: [(point.used.processor, point.recall) for point in points[curve]]
                for curve in group
            }
            for title, group in groups.items()
        },
    )
    text = "\n\n".join(_summary(title, group, builds, points) for title, group in groups.items())
    print(f"\n{text}\n")
    path = PAGE.with_suffix(".svg") if update else folder / "recall.svg"
    path.write_text(picture)
    print(f"The curves are in {path}.")
    if update:
        report.put_into_page(PAGE, "curves", text)


def _all_points(curve: Curve, points: list[Point]) -> str:
    """Return a table with a row for each point of a curve."""
    header = [curve.index.varied[0], "recall", "recall, pylance", "processor time", "time"]
    lines = [
        [
            *(str(point.value), f"{point.recall:.3f}", f"{point.oracle_recall:.3f}"),
            *(f"{seconds * 1000:.2f} ms" for seconds in (point.used.processor, point.used.wall)),
        ]
        for point in points
    ]
    return report.table(header, lines)


def _summary(
    title: str, curves: list[Curve], builds: dict[Index, Build], points: dict[Curve, list[Point]]
) -> str:
    """Return a table with a row for each curve of a diagram."""
    values = [f"`nprobes` {_NPROBES[number]}" for number in _SHOWN]
    lines = []
    for curve in curves:
        build = builds[curve.index]
        shown = [points[curve][number] for number in _SHOWN]
        is_graph = curve.index.varied[0] == "ef"
        lines.append(
            [
                *(curve.name, f"{build.num_partitions:,}", f"{build.used.processor:.1f} s"),
                f"{build.num_bytes / curve.index.rows:.0f}",
                *(
                    (f"`ef` {point.value}: " if is_graph else "")
                    + f"{point.recall:.2f}, {point.used.processor * 1000:.2g} ms"
                    for point in shown
                ),
            ]
        )
    header = [title, "partitions", "build", "bytes of a row", *values]
    return report.table(header, lines)
