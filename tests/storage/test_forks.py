"""Forked processes do not wait for locks that a thread of their parent held."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from lance_spark import _forks
from lance_spark.file.open_files import OpenFiles
from lance_spark.storage import connect, io_counts
from lance_spark.storage.store import ObjectStore

_SECONDS = 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_locks_of_a_parent(tmp_path: Path) -> None:
    store, opened = ObjectStore.from_uri(tmp_path / "t"), OpenFiles()
    locks: ExitStack = ExitStack()
    # All locks of the package that are renewed in a forked process.
    for lock in list(_forks._LOCKS):
        locks.enter_context(lock)
    with locks, io_counts._CountsByUri.lock, store.io_counts._lock:
        process = os.fork()
        if not process:
            status = 1
            try:
                connect.forget_probes()
                other = ObjectStore.from_uri(tmp_path / "t")
                other.write_bytes("file", b"1")
                memory = ObjectStore.from_uri("memory://fork")
                assert memory.put_if_absent("file", b"2")
                files = OpenFiles()
                assert files.take_out("file") is opened.take_out("file") is None
                status = int(other.read_bytes("file") != b"1")
            finally:
                os._exit(status)
    end = time.monotonic() + _SECONDS
    while not (answer := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            pytest.fail("the process waits for a lock of its parent")
        time.sleep(0.01)
    assert answer[1] == 0
