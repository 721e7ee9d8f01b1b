"""How builds of IVF_PQ and searches grow with the number of vectors.

The table is written in chunks. A process trains the index as the driver does, and each task builds
its segment in a process of its own, so that the peak memory is that of one task.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lance

import lance_spark
from benchmarks import report
from benchmarks.measuring import median_used, run_python
from benchmarks.tables import batch_reader, write_once
from benchmarks.vector_tables import batches, queries_of, recall, searches
from lance_spark.mutations.indexes.create import IndexRequest, commit_index
from lance_spark.proto import table_pb2
from lance_spark.table.commit.options import CommitOptions

_QUERIES, _FRAGMENTS, _TASKS = 50, 8, 2
#: Items of a sub-vector.
_SUB_VECTOR_ITEMS = 8
_MEASURED = """
import pickle, sys, time
from pathlib import Path
import lance_spark
from benchmarks.measuring import memory_of
{prepare}
begun, used = time.perf_counter(), time.process_time()
{action}
# `getrusage` would count the memory of the process that started this one.
memory = memory_of(Path("/proc/self"), "VmHWM") / 2**20
print(time.perf_counter() - begun, time.process_time() - used, memory)
"""
_TRAIN = _MEASURED.format(
    prepare="from lance_spark.mutations.indexes.create import plan_index\n"
    "request = pickle.loads(Path(sys.argv[1]).read_bytes())",
    action="tasks = plan_index(lance_spark.open_dataset(sys.argv[2])._table, request)\n"
    "Path(sys.argv[1]).write_bytes(pickle.dumps(tasks))",
)
_TASK = _MEASURED.format(
    prepare="task = pickle.loads(Path(sys.argv[1]).read_bytes())[int(sys.argv[2])]",
    action="Path(sys.argv[3]).write_bytes(task.run().SerializeToString())",
)
HEADER = [
    *("vectors", "partitions", "training: time", "processor time", "peak memory"),
    *("tasks", "longest task: time", "processor time", "peak memory", "processor time per vector"),
    *("query by codes: processor time, time", "recall", "refined 5 times", "recall"),
]


class Measured(NamedTuple):
    """Seconds of the clock, seconds of processors, and peak memory in MiB of a process."""

    wall: float
    processor: float
    memory: float

    def cells(self) -> list[str]:
        """Return the numbers for a table."""
        return [f"{self.wall:.1f} s", f"{self.processor:.1f} s", f"{self.memory:.0f} MiB"]


def measure(
    folder: Path,
    sizes: Sequence[int],
    rounds: int,
    *,
    dimension: int = 128,
    num_partitions: int | None = None,
) -> None:
    """Build an index on a table of each size, search it, and print a table.

    Parameters
    ----------
    folder : Path
        Of the tables.
    sizes : sequence of int
        Numbers of vectors.
    rounds : int
        Repetitions of searches; times are medians. 0: no searches.
    dimension : int
    num_partitions : int, optional
        The same of all indexes; by default, it grows with the rows.
    """
    request = IndexRequest(
        column="v",
        index_type="IVF_PQ",
        num_segments=_TASKS,
        options={
            "distance_type": "l2",
            "num_sub_vectors": dimension // _SUB_VECTOR_ITEMS,
            **({} if num_partitions is None else {"num_partitions": num_partitions}),
        },
    )
    lines = []
    for rows in sizes:
        path = folder / f"growth-{dimension}-{rows}.lance"
        write_once(path, partial(_write, rows=rows, dimension=dimension))
        lines.append(_built(path, rows, request))
        if rounds:
            lines[-1] += _searched(path, dimension, rounds)
        print(" | ".join(lines[-1]), flush=True)
    print(f"\n{report.table(HEADER[: len(lines[0])], lines)}\n")


def _built(path: Path, rows: int, request: IndexRequest) -> list[str]:
    training, tasks = _build(path, request)
    segments = lance_spark.open_dataset(str(path)).index_statistics("v_idx")["indices"]
    largest = Measured(*map(max, zip(*tasks, strict=True)))
    per_vector = sum(task.processor for task in tasks) / rows
    cells = [f"{rows:,}", f"{segments[0]['num_partitions']:,}", *training.cells()]
    return [*cells, str(len(tasks)), *largest.cells(), f"{per_vector * 1e6:.1f} µs"]


def _searched(path: Path, dimension: int, rounds: int) -> list[str]:
    dataset = lance_spark.open_dataset(str(path))
    queries = queries_of(_QUERIES, dimension)
    exact = searches(dataset, queries, nprobes=None, use_index=False)
    cells = []
    for factor in (None, 5):
        search = partial(searches, dataset, queries, refine_factor=factor)
        used = median_used({"search": search}, rounds)["search"]
        cells.append(
            f"{used.processor / _QUERIES * 1000:.2f} ms, {used.wall / _QUERIES * 1000:.2f} ms"
        )
        cells.append(f"{recall(search(), exact):.2f}")
    return cells


def _write(path: Path, rows: int, dimension: int) -> None:
    size = -(-rows // _FRAGMENTS)
    lance.write_dataset(batch_reader(batches(rows, dimension)), str(path), max_rows_per_file=size)


def _build(path: Path, request: IndexRequest) -> tuple[Measured, list[Measured]]:
    """Create the index; return what the training and each task used."""
    planned = path.with_name(f"{path.stem}-tasks.pickle")
    planned.write_bytes(pickle.dumps(request))
    training = Measured(*map(float, run_python(_TRAIN, str(planned), str(path)).split()))
    num_tasks = len(pickle.loads(planned.read_bytes()))
    results = [planned.with_suffix(f".{number}") for number in range(num_tasks)]
    tasks = [
        Measured(*map(float, run_python(_TASK, str(planned), str(number), str(result)).split()))
        for number, result in enumerate(results)
    ]
    segments = [table_pb2.IndexMetadata.FromString(result.read_bytes()) for result in results]
    dataset = lance_spark.open_dataset(str(path))
    commit_index(dataset._table, request, segments, CommitOptions())
    for file in (planned, *results):
        file.unlink()
    return training, tasks
