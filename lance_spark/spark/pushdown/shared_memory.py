"""Memory that a worker of Spark shares with its JVM, for batches of columns.

A batch that travels over a socket is copied into the kernel, out of it, and several times in the
JVM. The JVM reads a batch in shared memory where the worker has written it. Only Linux has the file
in memory that this needs; elsewhere all batches travel over the socket. A worker has one such file,
which lives as long as the worker and every mapping of it.

```
int64 at 0       id, chosen at random
int64 at 8       1 when the JVM has mapped the memory
int64 at 16      number of the last batch that the JVM has read
from 4096 on     `PLACES` batches of at most `PLACE_BYTES`: batch `n` is in place `n % PLACES`
```

The worker offers the memory with its first large batch. It uses the memory once the JVM has mapped
it, which a setting may forbid. The worker writes to a place again when the JVM has read its batch.
A worker that waits longer than `PATIENCE` seconds sends the batch over the socket, where
Spark stops it if the JVM wants no more rows.
"""

from __future__ import annotations

import mmap
import os
import time

import numpy as np
import pyarrow as pa

PLACES = 3
PLACE_BYTES = 4 << 20
#: Seconds that a worker waits for a place.
PATIENCE = 1.0
#: Seconds between two looks at the number of the last batch that the JVM has read: first, and at
#: most. Each pause is twice as long as the pause before it.
_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002

_ID, _MAPPED, _READ = range(3)
_FIRST_PLACE = 4096


class SharedMemory:
    """The memory of a worker.

    - `name`: Name of the file, by which the JVM maps it.
    - `id`: Differs from the id of an earlier process whose memory had the same name.
    - `number`: Number of the last batch.

    Raises OSError: the system has no such memory.
    """

    def __init__(self) -> None:
        size = _FIRST_PLACE + PLACES * PLACE_BYTES
        self._file = os.memfd_create("lance_spark", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, size)
            _seal(self._file)
            self._bytes = memoryview(mmap.mmap(self._file, size))
        except BaseException:
            os.close(self._file)
            raise
        self._header = np.frombuffer(self._bytes, np.int64, 3)
        self.name = f"/proc/{os.getpid()}/fd/{self._file}"
        self.id = int.from_bytes(os.urandom(8), "little", signed=True)
        self._header[_ID] = self.id
        self.number = 0

    @property
    def is_mapped(self) -> bool:
        """Whether the JVM has mapped the memory."""
        return bool(self._header[_MAPPED])

    def next_place(self) -> tuple[int, pa.Buffer] | None:
        """Return the offset of the next batch, and the memory for it; None if none became free.

        `number` is the number of the batch then.
        """
        deadline, pause = time.monotonic() + PATIENCE, _PAUSE
        while self._header[_READ] < self.number + 1 - PLACES:
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self.number += 1
        offset = _FIRST_PLACE + self.number % PLACES * PLACE_BYTES
        return offset, pa.py_buffer(self._bytes[offset : offset + PLACE_BYTES])


def _seal(file: int) -> None:
    """Forbid all processes to change the size: a read past the end would end the JVM."""
    import fcntl

    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


#: The memory of a process by its id: a forked process must not write into its parent's.
_memories: dict[int, SharedMemory | None] = {}


def shared_memory() -> SharedMemory | None:
    """Return the memory of this process, made by the first call; None if the system has none."""
    process = os.getpid()
    if process not in _memories:
        try:
            _memories[process] = SharedMemory()
        except (AttributeError, OSError):
            # Another system than Linux, or one that forbids such files.
            _memories[process] = None
    return _memories[process]
