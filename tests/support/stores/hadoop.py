"""A stand-in for HDFS: a local folder behind fsspec's wrapper of pyarrow, which moves files as pyarrow's HadoopFileSystem does.

pyarrow (`cpp/src/arrow/filesystem/hdfs.cc`, `Move`) asks HDFS for a rename; if that fails and both are files, it deletes the target and asks
again. HDFS (`FSDirRenameOp`) puts a file into a target that is a folder, and refuses if there is one of that name. There is no HDFS here: what it
does is taken from its source.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow.fs as arrow
from fsspec.implementations.arrow import ArrowFSWrapper, HadoopFileSystem


class StandIn:
    """The part of `pyarrow.fs.HadoopFileSystem` that `ArrowFSWrapper` uses."""

    type_name = "hdfs"
    # All clients use one name node.
    _one_at_a_time = threading.Lock()

    def __init__(self, root: Path) -> None:
        self._root = root
        self._local = arrow.LocalFileSystem()

    def _path(self, path: str) -> str:
        assert path.startswith("/"), path
        assert "://" not in path, path
        return f"{self._root}{path}"

    def _relative(self, info: arrow.FileInfo) -> arrow.FileInfo:
        path = info.path.removeprefix(str(self._root))
        return arrow.FileInfo(path, type=info.type, size=info.size, mtime=info.mtime)

    def get_file_info(self, requested: Any) -> Any:
        if isinstance(requested, arrow.FileSelector):
            selector = arrow.FileSelector(
                self._path(requested.base_dir), recursive=requested.recursive
            )
            return [self._relative(info) for info in self._local.get_file_info(selector)]
        if isinstance(requested, list):
            return [
                self._relative(info)
                for info in self._local.get_file_info([self._path(item) for item in requested])
            ]
        return self._relative(self._local.get_file_info(self._path(requested)))

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        self._local.create_dir(self._path(path), recursive=recursive)

    def delete_dir(self, path: str) -> None:
        shutil.rmtree(self._path(path))

    def delete_file(self, path: str) -> None:
        self._local.delete_file(self._path(path))

    def open_input_file(self, path: str, **kwargs: Any) -> Any:
        return self._local.open_input_file(self._path(path), **kwargs)

    def open_input_stream(self, path: str, **kwargs: Any) -> Any:
        return self._local.open_input_stream(self._path(path), **kwargs)

    def open_output_stream(self, path: str, **kwargs: Any) -> Any:
        # HDFS creates the folders above.
        Path(self._path(path)).parent.mkdir(parents=True, exist_ok=True)
        return self._local.open_output_stream(self._path(path), **kwargs)

    def rename(self, source: str, target: str) -> None:
        """Rename as HDFS does."""
        with self._one_at_a_time:
            old, new = self._path(source), self._path(target)
            if os.path.isdir(new):
                new = os.path.join(new, os.path.basename(old))
            if os.path.exists(new) or not os.path.isdir(os.path.dirname(new)):
                raise OSError(5, "HDFS Rename failed")
            os.rename(old, new)

    def move(self, source: str, target: str) -> None:
        """Move as pyarrow does."""
        try:
            self.rename(source, target)
        except OSError:
            if not (os.path.isfile(self._path(source)) and os.path.isfile(self._path(target))):
                raise
            os.unlink(self._path(target))
            self.rename(source, target)


class StandInFileSystem(HadoopFileSystem):
    """The file system of fsspec for ``hdfs://``, without a connection."""

    cachable = False
    root: Path
    connection: dict[str, Any]

    def __init__(
        self, host: str = "default", port: int = 0, user: str | None = None, **kwargs: Any
    ) -> None:
        StandInFileSystem.connection = {"host": host, "port": port, "user": user}
        ArrowFSWrapper.__init__(self, fs=StandIn(self.root), **kwargs)
