"""Copies of whole files from one store to another, several at the same time.

A file is copied in pieces. Memory holds at most `FILES_AT_ONCE` times `PIECE_BYTES` bytes, and the
buffers of the uploads. An existing file at the target is replaced by a whole one. Names of files
are random, so it can only be the rest of an earlier attempt, or the same file written by a faster
one. A file is never copied to itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from lance_spark import progress
from lance_spark.errors import InvalidInputError
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore

FILES_AT_ONCE = 8
PIECE_BYTES = 8 * 1024 * 1024


class Copy(NamedTuple):
    """A file, and the store and path of its copy; its size, if progress has counted it already."""

    source: ObjectStore
    path: str
    target: ObjectStore
    target_path: str
    size: int = 0


def copy_files(copies: Iterable[Copy], started: list[Copy]) -> None:
    """Copy files. After an error no further copy begins, and the error is raised.

    - `copies`: Consumed one by one, as earlier copies finish.
    - `started`: Receives each copy whose target exists, or may exist.

    Raises MissingFileError, StorageError. Raises InvalidInputError: a file and its copy would be
    the same.
    """
    running: list[Future[None]] = []
    copied = progress.bound(copy_file)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for copy in copies:
            if len(running) >= FILES_AT_ONCE:
                running = _wait(running)
            _check_not_itself(copy)
            started.append(copy)
            running.append(pool.submit(copied, copy))
        while running:
            running = _wait(running)


def copy_file(copy: Copy) -> None:
    """Copy one file. Raises MissingFileError, StorageError."""
    source = copy.source.open(copy.path)
    try:
        progress.expect(source.size - copy.size, "bytes")
        output = copy.target.open_output(copy.target_path, replace=True)
        try:
            for start in range(0, source.size, PIECE_BYTES):
                length = min(PIECE_BYTES, source.size - start)
                (piece,) = source.read([ByteRange(start, length)])
                output.write(piece)
                progress.advance(length, "bytes")
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
    paths = f"{source.object_uri}/{copy.path}", f"{target.object_uri}/{copy.target_path}"
    if source.is_local:
        # Symbolic links can give one folder two paths.
        paths = os.path.realpath(paths[0]), os.path.realpath(paths[1])
    if paths[0] == paths[1] and source.options == target.options:
        raise InvalidInputError(
            f"{source.name(copy.path)} would be copied to itself: {target.display} holds "
            "files of the source; choose another path"
        )


def _wait(running: list[Future[None]]) -> list[Future[None]]:
    done, pending = progress.first_done(running)
    # If several copies failed, the first one has the cause.
    for future in running:
        if future in done:
            future.result()
    return [future for future in running if future in pending]
