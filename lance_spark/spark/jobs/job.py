"""Spark jobs that run tasks of ours, or work over the rows of a frame.

| job | a partition | what comes back |
| --- | --- | --- |
| `Job.run_tasks` | some tasks, one after the other | the result of each |
| `Job.run_frame` | the batches of a partition of a frame | what the work yields |

Executors send rows ``place, attempt, stage, value``, each value a pickle. An error of ours that a
second attempt would meet again travels as a value too, so that it is raised on the driver as what
it is, and at once. All others Spark gets: it tries again, and if no attempt succeeds, an error of
ours is told from what Spark says of the last one.

All files that the tasks of one job write carry its tag. Those of attempts that came to nothing are
found by it at the end.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from lance_spark.errors import (
    LanceError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.mutations.job_files import new_tag, sweep
from lance_spark.mutations.runner import Runner
from lance_spark.spark.jobs.progress import shown
from lance_spark.spark.jobs.task_attempts import raised_by_task, wait_for_attempts
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, open_table, read_latest
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Tasks, and bytes of their pickles, that one Spark job gets at most.
MOST_TASKS = 2_000
_MOST_BYTES = 32 * 1024 * 1024
#: Partitions for each task that can run at the same time: those that are done early help out.
_WAVES = 4
#: What Spark Connect does not tell.
_UNKNOWN_PARALLELISM = 32
_SCHEMA = "place long, number long, attempt int, stage int, value binary"
_ARROW = pa.schema(
    [
        ("place", pa.int64()),
        ("number", pa.int64()),
        ("attempt", pa.int32()),
        ("stage", pa.int32()),
        ("value", pa.binary()),
    ]
)
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
#: Seconds after which Spark has killed the Python workers of a job that failed, if nobody tells.
_ENDING = 4.5
#: Versions that are looked at for files of a job that failed.
_LOOKED_AT = 100


class Work(Protocol):
    """Work over the batches of a partition. Of a class of a module, and can be pickled."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
        """Yield results, few and small."""
        ...


class Job(AbstractContextManager["Job"]):
    """One change of a table: names its Spark jobs, shows how far they are, and removes what they
    left.

    Use as a context, and tell it by `committed` when the change is part of the table. If the
    context ends with an error, the files of all its tasks are deleted, unless the change may be
    part of the table all the same.

    Parameters
    ----------
    spark : SparkSession
    table : OpenTable
        At any version from before the change.
    what : str
        Name of the change, such as "delete".
    """

    def __init__(self, spark: SparkSession, table: OpenTable, what: str) -> None:
        self._spark = spark
        self._table = table
        self._title = f"lance {what} {table.store.display}"
        self._is_committed = False
        self._again = False
        self._has_failed = False
        self._jobs: set[int] = set()
        self._tag: bytes | None = None

    @property
    def tag(self) -> bytes:
        """What ends the names of the files that tasks write."""
        if self._tag is None:
            self._tag = new_tag()
        return self._tag

    @property
    def spark(self) -> SparkSession:
        """The session that runs the jobs."""
        return self._spark

    def runner(self, step: str) -> Runner:
        """Return what runs tasks on executors.

        Parameters
        ----------
        step : str
            What they do, for people to read.
        """
        return SparkRunner(self, step)

    def run_tasks(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], step: str, *, writes: bool = True
    ) -> list[_R]:
        """Run tasks on executors.

        Parameters
        ----------
        tasks : sequence
            Each can be pickled.
        run : callable
            Runs one of them: a function of a module, or a method of a class of a module.
        step : str
            What they do, for people to read.
        writes : bool
            Whether they write files.

        Returns
        -------
        list
            Results in the order of the tasks.

        Raises
        ------
        LanceError
            What a task raised, unless a second attempt could have helped.
        StorageError
            What the last attempt of a task raised.
        PySparkException
            Tasks failed for other reasons, as often as Spark tries.
        """
        pickles = [_pickled(task) for task in tasks]
        results: list[_R] = []
        for wave in _waves([len(one) for one in pickles]):
            work = _Tasks(tuple(pickles[wave.start : wave.stop]), _pickled(run))
            partitions = min(len(wave), _WAVES * parallelism(self._spark))
            frame = self._spark.range(0, len(wave), 1, partitions)
            results += self._collect(frame, work, step, writes)
        if len(results) != len(pickles):
            raise LanceError(
                f"{self._title}: {step}: {len(results)} results of {len(pickles)} tasks came back; "
                "nothing was changed, run it again"
            )
        return results

    def run_frame(
        self, frame: DataFrame, work: Work, step: str, *, writes: bool = True
    ) -> list[Any]:
        """Run work over all partitions of a frame.

        Parameters
        ----------
        frame : DataFrame
        work : Work
        step : str
            What it does, for people to read.
        writes : bool
            Whether it writes files.

        Returns
        -------
        list
            What was yielded, by the number of the partition, then in the order it was yielded.

        Raises
        ------
        LanceError
            What the work raised, unless a second attempt could have helped.
        StorageError
            What the last attempt of a task raised.
        PySparkException
            What the frame's own expressions raised, or tasks failed for other reasons as often as
            Spark tries.
        """
        return self._collect(frame, _OverFrame(work), step, writes)

    def committed(self, manifest: Manifest) -> None:
        """Note that the change is part of the table; what attempts left that came to nothing is
        deleted.

        Parameters
        ----------
        manifest : Manifest
            The version that has it.
        """
        self._is_committed = True
        if self._again:
            self._wait_for_attempts()
            with suppress(StorageError):
                sweep(self._table, self.tag, manifest, targets=self._places())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or self._is_committed or isinstance(error, UncertainCommitError):
            return
        if self._tag is None:
            # Nobody has written anything.
            return
        with suppress(Exception):
            self._wait_for_attempts()
            kept = self._committed_since()
            if kept is not None:
                sweep(self._table, self.tag, kept, targets=self._places())

    def _places(self) -> tuple[int | None, ...]:
        """Return the base paths that tasks may have written to, and None for the table itself."""
        return placement_of(self._table).all

    def _committed_since(self) -> list[Manifest] | None:
        """Return the versions that came after the table was opened; None if there are too many to
        look at.

        An interrupt can come when the commit is done, and nobody was told.
        """
        store, start = self._table.store, self._table.version
        newest = read_latest(store)
        if newest.version - start > _LOOKED_AT:
            return None
        between = range(start + 1, newest.version)
        options = store.options or None
        result = (open_table(store.uri, version=n, storage_options=options) for n in between)
        return [*(item.manifest for item in result), newest]

    def _collect(self, frame: DataFrame, work: Any, step: str, writes: bool) -> list[Any]:
        title = f"{self._title}: {step}"
        with _named(self._spark, title) as group, shown(self._spark, group, title):
            before = self._jobs_of(group)
            try:
                rows = frame.mapInArrow(work, _SCHEMA).toArrow()
            except BaseException as error:
                self._has_failed |= writes
                ours = raised_by_task(error)
                if ours is None:
                    raise
                raise ours from error
            finally:
                if writes:
                    self._jobs |= self._jobs_of(group) - before
        if writes and not self._again:
            self._again = self._was_repeated(rows)
        places, numbers, values = (rows[name].to_pylist() for name in ("place", "number", "value"))
        order = sorted(
            range(rows.num_rows), key=lambda position: (places[position], numbers[position])
        )
        results = []
        for position in order:
            is_error, value = pickle.loads(values[position])  # noqa: S301 - of our own tasks
            if is_error:
                raise value
            results.append(value)
        return results

    def _jobs_of(self, group: str) -> set[int]:
        """Return Spark's numbers of the jobs of a group; none through Spark Connect, which does not
        tell.
        """
        with suppress(Exception):
            if not is_connect(self._spark):
                return set(self._spark.sparkContext.statusTracker().getJobIdsForGroup(group))
        return set()

    def _wait_for_attempts(self) -> None:
        """Wait for tasks that nobody needs any more: what they write until they are killed has to
        be deleted too.
        """
        with suppress(Exception):
            if not is_connect(self._spark):
                wait_for_attempts(self._spark.sparkContext.statusTracker(), self._jobs)
            elif self._has_failed:
                time.sleep(_ENDING)

    def _was_repeated(self, rows: pa.Table) -> bool:
        """Tell whether a task may have run that none of the results are of."""
        if any(rows["attempt"].to_pylist()):
            return True
        with suppress(Exception):
            if str(self._spark.conf.get("spark.speculation", "false")).lower() == "true":
                return True
            if not is_connect(self._spark):
                tracker = self._spark.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(item) for item in set(rows["stage"].to_pylist())]
                # A stage that lost what it reads begins again, and counts the attempts of its tasks
                # anew.
                return any(
                    not item or item.currentAttemptId or item.numFailedTasks for item in stages
                )
        return True


class SparkRunner(Runner):
    """Runs tasks on executors. What they wrote is deleted by their job, if it fails.

    Parameters
    ----------
    job : Job
    step : str
        What the tasks do, for people to read.
    """

    def __init__(self, job: Job, step: str) -> None:
        self._job = job
        self._step = step
        self.tag = job.tag

    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks; see `Runner.run` and `Job.run_tasks`."""
        return self._job.run_tasks(tasks, run, self._step)


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at the same time, as far as it is known."""
    if is_connect(spark):
        return _UNKNOWN_PARALLELISM
    return max(int(spark.sparkContext.defaultParallelism), 1)


def is_connect(spark: Any) -> bool:
    """Tell whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Runs the tasks whose numbers come; all travel to each executor, which unpickles its own."""

    pickles: tuple[bytes, ...]
    run: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = pickle.loads(self.run)  # noqa: S301 - of our own driver
        for batch in batches:
            for number in batch.column(0).to_pylist():
                one = partial(self._result, run, number)
                yield _row(number, 0, *_returned(one))

    def _result(self, run: Callable[[Any], object], number: int) -> object:
        return run(pickle.loads(self.pickles[number]))  # noqa: S301 - of our own driver


@dataclass(frozen=True, slots=True)
class _OverFrame:
    """Runs work over the batches of a partition."""

    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        place = 0 if context is None else context.partitionId()
        results = iter(self.work(batches))
        end = object()
        number = 0
        while True:
            is_error, value = _returned(partial(next, results, end))
            if value is end:
                return
            yield _row(place, number, is_error, value)
            number += 1
            if is_error:
                # Spark takes a worker that leaves some of its input for one that died.
                for _ in batches:
                    pass
                return


def _returned(call: Callable[[], object]) -> tuple[bool, object]:
    """Return whether a call raised an error that the driver has to be told, and the error or the
    result.
    """
    try:
        return False, call()
    except StorageError:
        raise
    except LanceError as error:
        return True, error


def _row(place: int, number: int, is_error: bool, value: object) -> pa.RecordBatch:
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt, stage = (0, 0) if context is None else (context.attemptNumber(), context.stageId())
    row = (place, number, attempt, stage, pickle.dumps((is_error, value)))
    columns = [pa.array([item], kind) for item, kind in zip(row, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _pickled(value: object) -> bytes:
    # Functions of users are not always those of a module.
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def _waves(sizes: Sequence[int]) -> Iterator[range]:
    """Cut tasks, by the bytes of their pickles, into those of one Spark job each."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= MOST_TASKS or total + size > _MOST_BYTES):
            yield range(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


@contextmanager
def _named(spark: Any, title: str) -> Iterator[str]:
    """Have Spark show the jobs of this thread by a title; yield the group that they are of."""
    if is_connect(spark):
        tag = f"lance-{uuid.uuid4()}"
        spark.addTag(tag)
        try:
            yield tag
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    # Whoever cancels the jobs of a group means ours too.
    group = before["spark.jobGroup.id"]
    if group is None:
        group = f"lance-{uuid.uuid4()}"
        context.setLocalProperty("spark.jobGroup.id", group)
    context.setLocalProperty("spark.job.description", title)
    try:
        yield group
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
