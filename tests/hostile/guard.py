"""The limits of a parser for one input: time of the processor, memory, errors, and files that it
opens.

Memory is bounded by the address space of the process, so that numpy and Arrow count. An error of
this package that stands for a failed allocation is a breach all the same: where there is more
memory, it would have been taken.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lance_spark.errors import LanceError

#: Seconds of the processor for an input of some kilobytes; sound inputs take some hundredths.
SECONDS = 2.0
#: Bytes in addition to the memory that the process has before.
MEMORY = 256 << 20


class Breach(AssertionError):
    """A parser exceeded its limits."""


class _TooSlow(BaseException):
    pass


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _TooSlow


def guarded(
    run: Callable[[bytes], object], data: bytes, seconds: float | None = None
) -> LanceError | None:
    """Run a parser on an input; return the error of this package that came of it.

    Parameters
    ----------
    run : callable
    data : bytes
    seconds : float, optional
        Of the processor; `SECONDS` if None.

    Raises
    ------
    Breach
        It raised anything else, or took too much memory or time.
    """
    allowed = SECONDS if seconds is None else seconds
    signal.signal(signal.SIGPROF, _stop)
    before = resource.getrlimit(resource.RLIMIT_AS)
    started = time.process_time()
    error: BaseException | None = None
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_PROF, 2 * allowed)
    try:
        run(data)
    except BaseException as raised:
        error = raised
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
    if isinstance(error, KeyboardInterrupt):
        raise error
    taken = time.process_time() - started
    problem = fault(error)
    if problem is None and taken > allowed:
        problem = f"TooSlow: {taken:.1f} s"
    if problem is not None:
        place = _where(error)
        error = None
        gc.collect()
        raise Breach(f"{problem} @ {place}")
    assert error is None or isinstance(error, LanceError)
    if error is not None:
        # Frames keep references to the data.
        error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def fault(error: BaseException | None) -> str | None:
    """Return the fault of an error: it is not of this package, or it stands for a lack of memory or
    time.
    """
    if error is None:
        return None
    if isinstance(error, _TooSlow):
        return "TooSlow"
    if not isinstance(error, LanceError):
        return f"{type(error).__name__}: {str(error)[:300]}"
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, MemoryError):
            return f"MemoryError behind {type(error).__name__}: {str(error)[:300]}"
        if isinstance(inner, _TooSlow):
            return f"TooSlow behind {type(error).__name__}"
        inner = inner.__cause__ or inner.__context__
    return None


def worse_of(first: Exception | None, second: Exception) -> Exception:
    """Return the worse error: an error that is not of this package, or that stands for a lack of
    memory.
    """
    return second if first is None or fault(first) is None else first


def _where(error: BaseException | None) -> str:
    inner = error
    while isinstance(inner, LanceError) and (inner.__cause__ or inner.__context__):
        inner = inner.__cause__ or inner.__context__
    frames = traceback.extract_tb(inner.__traceback__)[-5:] if inner is not None else []
    with contextlib.suppress(AttributeError):
        return " < ".join(f"{Path(item.filename).name}:{item.lineno}" for item in reversed(frames))
    return ""


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
