"""Copies of whole files from one store to another: several at the same time, each in pieces.

At most `FILES_AT_ONCE` times `PIECE_BYTES` bytes are in memory. A file that is there already is written over: names are
random, so that it can only be what an earlier try left behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore

FILES_AT_ONCE = 8
PIECE_BYTES = 8 * 1024 * 1024


class Copy(NamedTuple):
    """A file, and where its copy goes."""

    source: ObjectStore
    path: str
    target: ObjectStore
    target_path: str


def copy_files(copies: Iterable[Copy], started: list[str]) -> None:
    """Copy files. If one fails, no other is begun, and the error is raised.

    Parameters
    ----------
    copies : iterable of Copy
        Taken one by one, as there is room.
    started : list of str
        Gets the paths of copies that are, or may be, there.

    Raises
    ------
    MissingFileError, StorageError
    """
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for copy in copies:
            if len(running) >= FILES_AT_ONCE:
                running = _wait(running)
            started.append(copy.target_path)
            running.add(pool.submit(copy_file, copy))
        while running:
            running = _wait(running)


def copy_file(copy: Copy) -> None:
    """Copy one file.

    Raises
    ------
    MissingFileError, StorageError
    """
    source = copy.source.open(copy.path)
    try:
        copy.target.delete([copy.target_path])
        output = copy.target.open_output(copy.target_path)
        try:
            for at in range(0, source.size, PIECE_BYTES):
                (piece,) = source.read([ByteRange(at, min(PIECE_BYTES, source.size - at))])
                output.write(piece)
            output.close()
        except BaseException:
            output.abort()
            raise
    finally:
        source.close()


def _wait(running: set[Future[None]]) -> set[Future[None]]:
    done, pending = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        future.result()
    return pending
