"""Copies of whole files from one store to another: several at the same time, each in pieces.

At most `FILES_AT_ONCE` times `PIECE_BYTES` bytes are in memory, and for each file what its upload holds (`upload`). A file that is there
already is replaced, by a whole one: names are random, so that it can only be what an earlier try left behind, or the same file as another
made it that is faster. A file is never copied to itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from lance_spark.errors import InvalidInputError
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


def copy_files(copies: Iterable[Copy], started: list[Copy]) -> None:
    """Copy files. If one fails, no other is begun, and the error is raised.

    Parameters
    ----------
    copies : iterable of Copy
        Taken one by one, as there is room.
    started : list of Copy
        Gets those that are, or may be, there.

    Raises
    ------
    InvalidInputError
        A file and its copy would be the same.
    MissingFileError, StorageError
    """
    running: list[Future[None]] = []
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for copy in copies:
            if len(running) >= FILES_AT_ONCE:
                running = _wait(running)
            _check_not_itself(copy)
            started.append(copy)
            running.append(pool.submit(copy_file, copy))
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
        output = copy.target.open_output(copy.target_path, replace=True)
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


def _check_not_itself(copy: Copy) -> None:
    source, target = copy.source, copy.target
    if source.is_local != target.is_local:
        return
    places = f"{source.object_uri}/{copy.path}", f"{target.object_uri}/{copy.target_path}"
    if source.is_local:
        # Two folders can be one.
        places = os.path.realpath(places[0]), os.path.realpath(places[1])
    if places[0] == places[1] and source.options == target.options:
        raise InvalidInputError(
            f"{source.name(copy.path)} would be copied to itself: {target.display} holds files of the source; "
            "choose another path"
        )


def _wait(running: list[Future[None]]) -> list[Future[None]]:
    done, pending = wait(running, return_when=FIRST_COMPLETED)
    # Of several that failed, the first one tells why.
    for future in running:
        if future in done:
            future.result()
    return [future for future in running if future in pending]
