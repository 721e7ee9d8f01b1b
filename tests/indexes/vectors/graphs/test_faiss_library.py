"""The package faiss: with it, without it, and in processes that are forked."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.indexes.vectors.hnsw import faiss_library, required_faiss

#: The parent computes in threads, then a child that it forks computes, as workers of Spark do.
FORK = """
import os, signal
import numpy as np
from lance_spark.indexes.vectors.hnsw import faiss_library

vectors = np.random.default_rng(1).random((2_000, 16), np.float32)

def work(threads=None):
    faiss = faiss_library(threads)
    graph = faiss.IndexHNSWFlat(16, 8)
    graph.add(vectors[:500])
    faiss.Kmeans(16, 16, niter=2).train(vectors)
    return faiss.omp_get_max_threads()

if {loads}:
    assert work(2) == 2
child = os.fork()
if not child:
    signal.alarm(30)  # of the exit code, if the child waits for threads that do not exist
    os._exit(0 if work() == 1 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert faiss_library() is None
    with pytest.raises(UnsupportedFeatureError, match=r"graphs need .* 'lance-spark\[vectors\]'"):
        required_faiss("graphs")


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")

    def number(threads: int | None = None) -> int:
        return int(required_faiss("graphs", threads).omp_get_max_threads())

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert number() == 3
    assert [number(1), number(2), number(0)] == [1, 2, 1]
    # Each thread has its own number.
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(number(3)))
    other.start()
    other.join()
    assert seen == [3]
    assert required_faiss("graphs", 1).omp_get_max_threads() == 1


@pytest.mark.parametrize("loads", [True, False])
def test_forked_processes(loads: bool) -> None:
    pytest.importorskip("faiss")
    script = FORK.replace("{loads}", str(loads))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "0", done.stderr
