"""Progress of long work: how far it is, for a callback of the caller or for a bar.

A public call that can take long opens a `reporting` context, by the decorator `reports_progress`.
Code below it opens a `stage` and counts. It finds the work by a context variable, so that no
function between them has a parameter for it. Without a work that someone follows, `stage` returns
an object that does nothing.

| function | for |
| --- | --- |
| `stage` | a part of the work, such as ``rewrite``: its unit, and the total if it is known |
| `advance` | counts in the stage that the code runs in |
| `counted` | counts the items of an iterator in a stage of its own |
| `bound` | lets a function that another thread calls count in the stage of this thread |
| `results`, `first_done` | wait for other threads, and report what they count meanwhile |
| `unreported` | work of which nothing is reported, such as what follows a commit |

Threads only count. The thread that opened the context calls the callback: when it counts or opens
or ends a stage, and while it waits in `results`. It calls it at most ten times a second, and once
at the start and at the end of each stage. If the callback raises an error, the threads stop at
their next count, and the work ends with that error. No stage has a commit in it, and no stage
follows one: an error of the callback never hides a commit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.keywords import Keyword

_T = TypeVar("_T")
_R = TypeVar("_R")
_P = ParamSpec("_P")

#: The environment variable. If it is 0, no bar and no progress line of a Spark job is shown.
VARIABLE = "LANCE_SPARK_PROGRESS"
#: The parameter of calls that report progress.
PARAMETER = "progress_callback"
#: Seconds between two calls of a callback, and until a bar appears.
_INTERVAL = 0.1
_BAR_SECONDS = 2.0


@dataclass(frozen=True)
class Progress:
    """How far a part of a call is. The attributes are those of pylance's `IndexProgress`.

    Attributes
    ----------
    event : str
        ``start``, ``progress`` or ``complete``, of the stage.
    stage : str
        Name of the part of the call, such as ``load_data``.
    completed : int
    total : int, optional
        None if it is not known.
    unit : str
        What is counted: ``rows``, ``fragments``, ``files``, ``bytes``, ``versions``,
        ``segments``, ``partitions``, ``sub_vectors``, ``iterations``.

    Examples
    --------
    >>> dataset.compact_files(progress_callback=print)  # doctest: +SKIP
    Progress(event='start', stage='rewrite', completed=0, total=4000000, unit='rows')
    Progress(event='progress', stage='rewrite', completed=524288, total=4000000, unit='rows')
    Progress(event='complete', stage='rewrite', completed=4000000, total=4000000, unit='rows')
    """

    event: Literal["start", "progress", "complete"]
    stage: str
    completed: int = 0
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None if the total is not known, or 0."""
        return min(self.completed / self.total, 1.0) if self.total else None


#: Receives a `Progress` from time to time.
ProgressCallback: TypeAlias = Callable[[Progress], object]


class ProgressKeywords(TypedDict, total=False):
    """Keywords of calls that report their progress."""

    progress_callback: Annotated[
        ProgressCallback | None, Keyword("Receives a `lance_spark.Progress` from time to time.")
    ]


class _CallbackFailedError(LanceError):
    """Ends a thread after the callback raised an error, which the caller gets."""


class Counter(Protocol):
    """Counts what is done of a stage."""

    def advance(self, count: int = 1) -> None:
        """Add to what is done."""

    def expect(self, count: int) -> None:
        """Add to the total."""


class _NoCounter:
    def advance(self, count: int = 1) -> None:
        pass

    def expect(self, count: int) -> None:
        pass


_NO_COUNTER = _NoCounter()


class _Stage:
    """A stage of a work. Several threads may be in it."""

    def __init__(self, work: _Work, name: str, total: int | None, unit: str) -> None:
        self._work = work
        self.name = name
        self.total = total
        self.unit = unit
        self.completed = 0
        #: What the last call of the callback showed.
        self.shown = 0
        self.users = 1

    def advance(self, count: int = 1) -> None:
        with self._work.lock:
            self.completed += count
        self._work.counted()

    def expect(self, count: int) -> None:
        with self._work.lock:
            self.total = (self.total or 0) + count

    def progress(self, event: Literal["start", "progress", "complete"]) -> Progress:
        self.shown = self.completed
        return Progress(event, self.name, self.completed, self.total, self.unit)


class _Work:
    """A call that someone follows: its open stages, and the events that are not shown yet."""

    def __init__(self, show: ProgressCallback) -> None:
        self._show = show
        self._thread = threading.get_ident()
        self._events: deque[Progress] = deque()
        self._stages: dict[str, _Stage] = {}
        self._next = 0.0
        #: The error of the callback.
        self.error: BaseException | None = None
        self.lock = threading.Lock()

    @property
    def is_own_thread(self) -> bool:
        """Whether this thread calls the callback."""
        return threading.get_ident() == self._thread

    def enter(self, name: str, total: int | None, unit: str) -> _Stage:
        """Open a stage, or the open stage of the same name, which then has both totals."""
        with self.lock:
            stage = self._stages.get(name)
            if stage is not None:
                stage.users += 1
                if stage.total is not None:
                    stage.total = None if total is None else stage.total + total
            else:
                stage = self._stages[name] = _Stage(self, name, total, unit)
                self._events.append(stage.progress("start"))
        self.counted()
        return stage

    def leave(self, stage: _Stage, *, is_done: bool) -> None:
        """End the use of a stage; if no thread uses it any more, it is complete."""
        with self.lock:
            stage.users -= 1
            if stage.users:
                return
            del self._stages[stage.name]
            if is_done:
                self._events.append(stage.progress("complete"))
        if is_done:
            self.counted()

    def counted(self) -> None:
        """Call the callback, if this is its thread, and there is an event or it is time."""
        if self.is_own_thread:
            if self._events or time.monotonic() >= self._next:
                self.show()
        elif self.error is not None:
            raise _CallbackFailedError("the progress_callback raised an error in another thread")

    def show(self) -> None:
        """Call the callback with all events, and with what the open stages have counted."""
        if self.error is not None:
            # The error of the callback ends the work: cleaning up after it is not reported.
            return
        with self.lock:
            stages = [*self._stages.values()]
        while self._events:
            self._call(self._events.popleft())
        now = time.monotonic()
        if now < self._next:
            return
        for stage in stages:
            with self.lock:
                is_new = stage.users and stage.completed != stage.shown
                event = stage.progress("progress") if is_new else None
            if event is not None:
                self._call(event)
        self._next = time.monotonic() + _INTERVAL

    def _call(self, event: Progress) -> None:
        # Calls of this package that the callback makes are not a part of this work.
        token = _CURRENT.set(None)
        try:
            self._show(event)
        except BaseException as error:
            self.error = error
            raise
        finally:
            _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class _Place:
    """The work and the innermost stage that code runs in."""

    work: _Work
    stage: _Stage | None = None


_CURRENT: ContextVar[_Place | None] = ContextVar("lance_spark_progress", default=None)


def reports_progress(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function that can take long, and has the keywords of `ProgressKeywords`.

    The decorator uses them. Without a callback, a bar shows the progress where `reporting` allows
    one.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with reporting(function.__name__, kwargs.get(PARAMETER)):
            return function(*args, **kwargs)

    return call


@contextmanager
def reporting(title: str, callback: Any = None) -> Iterator[None]:
    """Report the progress of the work in the context.

    Without a callback, the work belongs to the call that it is a part of. If there is none, a bar
    is shown when the work has taken some seconds, if the package tqdm is installed and `is_visible`
    holds.

    - `title`: Name of the work, before the bar.

    Raises InvalidInputError: the callback cannot be called.
    """
    if callback is not None and not callable(callback):
        raise InvalidInputError(f"{PARAMETER} must be a function, not {type(callback).__name__}")
    bars = None
    if callback is None:
        if is_reported() or not is_visible():
            yield
            return
        callback = bars = _Bars(title)
    token = _CURRENT.set(_Place(_Work(callback)))
    try:
        yield
    finally:
        _CURRENT.reset(token)
        if bars is not None:
            bars.close()


def is_reported() -> bool:
    """Return whether someone follows the work that this code is a part of."""
    return _CURRENT.get() is not None


@contextmanager
def unreported() -> Iterator[None]:
    """Report nothing of the work in the context."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "") -> Iterator[Counter]:
    """Count a part of a work in the context. Not for generators: use `counted`.

    Threads that are in a stage of the same name at the same time count together.

    - `unit`: See `Progress`.
    """
    place = _CURRENT.get()
    if place is None:
        yield _NO_COUNTER
        return
    entered = place.work.enter(name, total, unit)
    token = _CURRENT.set(_Place(place.work, entered))
    is_done = False
    try:
        yield entered
        is_done = True
    finally:
        _CURRENT.reset(token)
        place.work.leave(entered, is_done=is_done)


def advance(count: int = 1, unit: str | None = None) -> None:
    """Count in the stage that this code runs in.

    - `unit`: Count only if the stage has this unit.
    """
    place = _CURRENT.get()
    if place is not None and place.stage is not None and unit in (None, place.stage.unit):
        place.stage.advance(count)


def expect(count: int, unit: str) -> None:
    """Add to the total of the stage that this code runs in, if it has this unit."""
    place = _CURRENT.get()
    if place is not None and place.stage is not None and unit == place.stage.unit:
        place.stage.expect(count)


def counted(
    items: Iterable[_T],
    name: str,
    total: int | None,
    unit: str,
    size: Callable[[_T], int] = lambda _: 1,
) -> Iterable[_T]:
    """Return an iterable of the same items, which counts them in a stage.

    An item counts when the next one is asked for. There is no stage if there is nothing to count.

    - `items`, `name`, `total`, `unit`: As for `stage`.
    - `size`: Returns how much an item counts.
    """
    place = _CURRENT.get()
    if place is None or total == 0:
        return items
    return _counted(place.work, items, name, total, unit, size)


def _counted(
    work: _Work,
    items: Iterable[_T],
    name: str,
    total: int | None,
    unit: str,
    size: Callable[[_T], int],
) -> Iterator[_T]:
    entered = work.enter(name, total, unit)
    is_done = False
    try:
        for item in items:
            yield item
            entered.advance(size(item))
        is_done = True
    finally:
        work.leave(entered, is_done=is_done)


def bound(function: Callable[[_T], _R]) -> Callable[[_T], _R]:
    """Return a function that counts in the stage of this thread, whichever thread calls it."""
    place = _CURRENT.get()
    if place is None:
        return function

    def call(item: _T) -> _R:
        token = _CURRENT.set(place)
        try:
            return function(item)
        finally:
            _CURRENT.reset(token)

    return call


def results(futures: Sequence[Future[_R]]) -> Iterator[_R]:
    """Yield the results of other threads in order, and report what they count meanwhile."""
    for future in futures:
        first_done([future])
        yield future.result()


def first_done(
    futures: Sequence[Future[_R]],
) -> tuple[set[Future[_R]], set[Future[_R]]]:
    """Wait until one thread is done, and report what the threads count meanwhile.

    Returns those that are done, and the others.
    """
    place = _CURRENT.get()
    if place is None or not place.work.is_own_thread:
        return wait(futures, return_when=FIRST_COMPLETED)
    while True:
        done, pending = wait(futures, _INTERVAL, FIRST_COMPLETED)
        place.work.counted()
        if done:
            return done, pending


def raised(error: BaseException) -> bool:
    """Return whether an error is that of the callback: so no commit is under way."""
    place = _CURRENT.get()
    return place is not None and place.work.error is error


def is_visible() -> bool:
    """Return whether a user can see a bar on stderr: in a terminal or a notebook, unless it is off.

    Python processes that Spark started show none: Spark has its own.
    """
    if os.environ.get(VARIABLE, "1") == "0":
        return False
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.partition(".")[0] == "pyspark":
        return False
    ipython = sys.modules.get("IPython")
    with suppress(Exception):
        if ipython is not None and ipython.get_ipython() is not None:
            return True
        return sys.stderr.isatty()
    return False


class _Bars:
    """A bar of tqdm for each open stage. Its errors are ignored, so that the work goes on."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begin = time.monotonic() + _BAR_SECONDS
        self._bars: dict[str, Any] = {}
        self._new: Callable[..., Any] | None = None

    def __call__(self, event: Progress) -> None:
        with suppress(Exception):
            self._show(event)

    def close(self) -> None:
        """Remove the bars."""
        for name in [*self._bars]:
            with suppress(Exception):
                self._bars.pop(name).close()

    def _show(self, event: Progress) -> None:
        if event.event == "complete":
            bar = self._bars.pop(event.stage, None)
            if bar is not None:
                bar.close()
            return
        if time.monotonic() < self._begin:
            return
        bar = self._bars.get(event.stage)
        if bar is None:
            # A bar of a stage that began again, for example, is new.
            bar = self._bars[event.stage] = self._opened(event)
        bar.total = event.total
        bar.update(event.completed - bar.n)

    def _opened(self, event: Progress) -> Any:
        if self._new is None:
            self._new = _bar_class()
        is_bytes = event.unit == "bytes"
        return self._new(
            initial=event.completed,
            total=event.total,
            desc=f"lance {self._title}: {event.stage}",
            unit="B" if is_bytes else f" {event.unit}",
            unit_scale=event.unit in ("rows", "keys", "bytes"),
            unit_divisor=1024 if is_bytes else 1000,
            dynamic_ncols=True,
            leave=False,
            file=sys.stderr,
        )


def _bar_class() -> Callable[..., Any]:
    with warnings.catch_warnings():
        # A notebook without the package ipywidgets gets a bar of text.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    class ThreadlessBar(tqdm):  # type: ignore[misc]
        """A bar without a thread of its own."""

        monitor_interval = 0

    return ThreadlessBar
