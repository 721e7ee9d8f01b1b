"""The oracle: manifests and files of pylance."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_spark.proto import table_pb2


def read_manifest(table: Path) -> table_pb2.Manifest:
    """Parse the newest manifest: the last 16 bytes have the position of the message, which follows
    its length.
    """
    newest = min((table / "_versions").glob("*.manifest"))
    data = newest.read_bytes()
    (position,) = struct.unpack_from("<Q", data, len(data) - 16)
    (length,) = struct.unpack_from("<I", data, position)
    return table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])


@pytest.fixture
def manifest_of(tmp_path: Path) -> Callable[..., table_pb2.Manifest]:
    """Return a function that writes a table with pylance, and returns its manifest."""

    def write(data: pa.Table, version: str = "2.2") -> table_pb2.Manifest:
        lance.write_dataset(data, str(tmp_path / "t"), data_storage_version=version)
        return read_manifest(tmp_path / "t")

    return write


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a table with pylance, and returns its only data file."""

    def write(data: pa.Table, version: str) -> Path:
        path = tmp_path / f"of-{version}"
        lance.write_dataset(data, str(path), data_storage_version=version)
        (file,) = (path / "data").glob("*.lance")
        return file

    return write


@pytest.fixture(scope="module")
def path(data: pa.Table, version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that pylance writes with the `data` of the module, in one of its versions."""
    path = tmp_path_factory.mktemp("file") / "f.lance"
    with LanceFileWriter(str(path), version=version) as writer:
        writer.write_batch(data)
    return path


@pytest.fixture(scope="module")
def raw(path: Path) -> bytes:
    return path.read_bytes()
