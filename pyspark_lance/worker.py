"""The module of the Python process in which Spark plans reads and writes of this format.

Spark has a module for each step, and would start a daemon for each. For this format it starts one
for this module (`SharedSteps.java`). What Spark sends first is the version of Python; the name of
the step stands before it, separated by a space. Spark's own module of the step reads all else.

The module is in this package because Spark imports modules named `pyspark*` only.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import IO, Any

from lance_spark.spark.jvm.shims.pyspark_names import PLANNING_MODULES

#: Bytes of the length of a text.
_LENGTH = 4


class _Unread:
    """A stream, before whose rest some bytes are read again."""

    def __init__(self, stream: IO[bytes], data: bytes) -> None:
        self._stream, self._data = stream, data

    def read(self, size: int = -1) -> bytes:
        if not self._data:
            return self._stream.read(size)
        if size < 0:
            size = len(self._data)
        data, self._data = self._data[:size], self._data[size:]
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Run a step. The daemon calls this for each step of a process that it has forked."""
    length = infile.read(_LENGTH)
    if len(length) < _LENGTH:
        # Spark has closed the connection of a process that it does not use any more.
        sys.exit(-1)
    step, version = infile.read(int.from_bytes(length, "big")).split(b" ")
    worker = import_module(PLANNING_MODULES + step.decode())
    worker.main(_Unread(infile, len(version).to_bytes(_LENGTH, "big") + version), outfile)
