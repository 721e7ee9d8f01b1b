"""Files that are being written: their contract, and the choice of how a store writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

from lance_spark.storage.errors import translated
from lance_spark.storage.local import make_folder, sync_folder, temporary_path
from lance_spark.storage.objects import objects_of
from lance_spark.storage.retry import Retries

_WRITE_BUFFER = 1024 * 1024


class OutputFile(Protocol):
    """A file that is written sequentially.

    `name` is the name of the file in errors. The file may be visible while it is incomplete, as no
    version refers to it before its writer commits.
    """

    name: str

    def write(self, buffer: Any) -> None:
        """Append the bytes of any C-contiguous buffer: bytes, numpy array, pyarrow.Buffer.

        Raises StorageError: the store failed, a full disk included.
        """
        ...

    def tell(self) -> int:
        """Return the bytes written so far."""
        ...

    def close(self) -> None:
        """Make the file durable. After a failure it is removed.

        Raises StorageError: the store failed.
        """
        ...

    def abort(self) -> None:
        """Delete the file, unless it is closed."""
        ...


class _FileOutput:
    """A new file that is written through a file object of Python; see `OutputFile`.

    - `name`: Name of the file in errors.
    - `_file`: None after `close` and `abort`.
    - `_options`: Storage options whose values no error shows.
    """

    name: str
    _file: Any
    _options: Mapping[str, object] | None = None
    _written = 0

    def write(self, buffer: Any) -> None:
        assert self._file is not None, f"{self.name} is closed"
        view = memoryview(buffer).cast("B")
        with translated(self.name, self._options):
            self._file.write(view)
        self._written += len(view)

    def tell(self) -> int:
        return self._written

    def close(self) -> None:
        if self._file is None:
            return
        try:
            with translated(self.name, self._options):
                self._finish()
        except BaseException:
            self.abort()
            raise
        self._file = None

    def abort(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._discard(file)

    def _finish(self) -> None:
        """Make the file and its name durable."""
        raise NotImplementedError

    def _discard(self, file: Any) -> None:
        """Close and delete the file. Raises nothing."""
        raise NotImplementedError


class LocalOutput(_FileOutput):
    """A new local file; see `OutputFile`.

    - `path`: Absolute path.
    - `replace`: If True, `close` replaces an existing file. If False, an existing file is an error
      at once.
    """

    def __init__(self, path: str, *, replace: bool = False) -> None:
        self.name = path
        self._open_path = temporary_path(path) if replace else path
        with translated(path):
            make_folder(os.path.dirname(path))
            # "x": names of data files are unique, so an existing file must not be overwritten.
            self._file: BinaryIO | None = open(  # noqa: SIM115
                self._open_path, "xb", buffering=_WRITE_BUFFER
            )

    def _finish(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._open_path != self.name:
            os.replace(self._open_path, self.name)
        sync_folder(os.path.dirname(self.name))

    def _discard(self, file: Any) -> None:
        # Closing flushes, which fails a second time on a full disk.
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            os.unlink(self._open_path)


class RemoteOutput(_FileOutput):
    """A new file behind fsspec, written by its package; see `OutputFile`.

    With `replace`, a file can exist already, and `abort` leaves it.
    """

    def __init__(
        self,
        fs: Any,
        path: str,
        name: str,
        options: Mapping[str, object] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        self._fs = fs
        self._path = path
        self._options = options
        self._replace = replace
        self.name = name
        with translated(name, options):
            self._file = fs.open(path, "wb")

    def _finish(self) -> None:
        self._file.close()

    def _discard(self, file: Any) -> None:
        # No version refers to what cannot be deleted now, so cleanup removes it.
        # Closing the file would replace an existing file with an incomplete one.
        with suppress(Exception):
            file.discard()
            file.closed = True
        if not file.closed:
            with suppress(Exception):
                file.close()
        if not self._replace:
            with suppress(Exception):
                self._fs.rm_file(self._path)


def start(
    fs: Any,
    path: str,
    name: str,
    options: Mapping[str, Any],
    retries: Retries,
    secrets: Mapping[str, object],
    *,
    replace: bool,
) -> OutputFile:
    """Open a new file.

    - `path`: Path of the file.
    - `name`: Name of the file in errors.
    - `options`: Storage options.
    - `secrets`: Options whose values no error shows.
    - `replace`: Whether `close` replaces an existing file.

    Raises InvalidOptionError, StorageError.
    """
    own = objects_of(fs).output(path, options)
    if own is None:
        return RemoteOutput(fs, path, name, secrets, replace=replace)
    make, sizes = own
    output: OutputFile = make(fs, path, name, sizes, retries, secrets, replace=replace)
    return output
