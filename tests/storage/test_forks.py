"""Forked processes do not wait for locks that a thread of their parent held."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from lance_spark.storage import connect, io_counts
from lance_spark.storage.store import ObjectStore

_SECONDS = 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_locks_of_a_parent(tmp_path: Path) -> None:
    store = ObjectStore.from_uri(tmp_path / "t")
    with io_counts._Known.lock, store.io_counts._lock, connect._Probes.lock:
        process = os.fork()
        if not process:
            status = 1
            try:
                connect.forget_probes()
                other = ObjectStore.from_uri(tmp_path / "t")
                other.write_bytes("file", b"1")
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
