"""The Python processes of Spark: modules are left out of the collection of garbage."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys

import pytest

CODE = """
import gc, sys
from lance_spark.spark.python_process import leave_modules_uncollected as leave
counts = []
for _ in range(2):
    leave()
    counts.append(gc.get_freeze_count())
import json.tool
leave()
print(*counts, gc.get_freeze_count())
"""


@pytest.mark.parametrize(
    "module",
    [
        *("pyspark.sql.worker.plan_data_source_read", "pyspark_lance.worker", "pyspark.worker"),
        *("", "pyspark.daemon", "other"),
    ],
)
def test_only_processes_of_spark_freeze(module: str) -> None:
    command = [sys.executable, "-c", CODE, *filter(None, [module])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, later = map(int, ran.stdout.split())
    if module.startswith("pyspark") and module != "pyspark.daemon":
        # A second step freezes nothing, and one that loads modules freezes these.
        assert 1000 < first == second < later
    else:
        assert first == second == later == 0


ACKNOWLEDGED = """
import pickle, socket, sys
from lance_spark.spark.python_process import TaskObject

class Task(TaskObject):
    def __init__(self):
        self.state = 1

def unacknowledged(sock):
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return int.from_bytes(info[24:28], sys.byteorder)

server = socket.create_server(("127.0.0.1", 0))
jvm = socket.create_connection(server.getsockname())
worker, _ = server.accept()
for _ in range(40):
    # After some exchanges the kernel waits for data to send an acknowledgement with.
    jvm.sendall(b"request")
    worker.recv(100)
    worker.sendall(b"reply")
    jvm.recv(100)
pickled = pickle.dumps(Task())
for _ in range(100):
    jvm.sendall(b"first part")
    worker.recv(100)
    waits = unacknowledged(jvm)
    task = pickle.loads(pickled)
    if waits:
        print(waits, unacknowledged(jvm))
        break
    worker.sendall(b"reply")
    jvm.recv(100)
"""


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_a_task_is_acknowledged_when_it_begins() -> None:
    for module, left in (("pyspark.worker", 0), ("other", 1)):
        ran = subprocess.run(
            [sys.executable, "-c", ACKNOWLEDGED, module], capture_output=True, text=True, check=True
        )
        assert ran.stdout.split() == ["1", str(left)]


def test_pickled_tasks_keep_their_state() -> None:
    from lance_spark.spark.job import _Tasks

    tasks = _Tasks((b"a", b"b"), b"run")
    assert pickle.loads(pickle.dumps(tasks)) == tasks
