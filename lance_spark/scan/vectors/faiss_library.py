"""The package faiss (`lance-spark[vectors]`), which is loaded when it is needed.

The package works without it, but for the construction of graphs. It computes in threads of OpenMP,
which do not survive a fork. A process that was forked after its parent loaded the package would
wait for them without end: it computes in one thread.
"""

from __future__ import annotations

import os
from typing import Any

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.scan.vectors.threads import num_threads

#: The process that imported this module. A worker of Spark is forked from it, or is it.
_PROCESS = os.getpid()


def faiss_library(threads: int | None = None) -> Any | None:
    """Return the package faiss, or None if it is missing.

    Parameters
    ----------
    threads : int, optional
        The most threads that functions of the package take when the calling thread calls them,
        until it calls this function again; `threads.num_threads` by default.

    Examples
    --------
    >>> faiss = faiss_library()
    >>> faiss.omp_get_max_threads() if faiss else 1
    2
    """
    try:
        import faiss
    except ImportError:
        return None
    # The number is an attribute of the calling thread.
    faiss.omp_set_num_threads(_num_threads(threads))
    return faiss


def required_faiss(purpose: str, threads: int | None = None) -> Any:
    """Return the package faiss, as `faiss_library` does.

    Parameters
    ----------
    purpose : str
        What needs the package, in the plural: the subject of the error.

    Raises
    ------
    UnsupportedFeatureError
        It is missing.
    """
    faiss = faiss_library(threads)
    if faiss is None:
        raise UnsupportedFeatureError(
            f"{purpose} need the package faiss: pip install 'lance-spark[vectors]'"
        )
    return faiss


def _num_threads(threads: int | None) -> int:
    if os.getpid() != _PROCESS:
        return 1
    return num_threads() if threads is None else max(1, threads)
