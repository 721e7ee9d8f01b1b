"""Failed or stopped writers of blobs: all their files are deleted, and no other file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError, LanceError, StorageError
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.storage.output import LocalOutput, RemoteOutput
from lance_spark.table.commit import write as write_job
from lance_spark.table.commit.write import WriteJob, begin_write
from lance_spark.table.fragments.limits import WriteLimits

MARK = {
    "lance-encoding:blob": "true",
    "lance-encoding:blob-inline-size-threshold": "10",
    "lance-encoding:blob-dedicated-size-threshold": "1000",
    "lance-encoding:blob-pack-file-size-threshold": "500",
}
SCHEMA = pa.schema([("i", pa.int64()), pa.field("b", pa.large_binary(), metadata=MARK)])
INLINE, PACKED, DEDICATED = b"inline", b"p" * 100, b"d" * 2_000


@pytest.fixture(params=["local", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "t")
        return
    root = f"memory://{tmp_path.name}"
    yield root
    memory = fsspec.filesystem("memory")
    if memory.exists(root):
        memory.rm(root, recursive=True)


def files(uri: str) -> set[str]:
    """Return the paths of all files and folders below data/."""
    fs, root = fsspec.core.url_to_fs(uri)
    result = fs.find(f"{root}/data", withdirs=not uri.startswith("memory"))
    return {str(path).split("/data/", 1)[1] for path in result if "/data/" in str(path)}


def batch(*values: bytes | None) -> pa.RecordBatch:
    columns = [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.large_binary())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def job(uri: str, **rest: Any) -> WriteJob:
    return begin_write(uri, SCHEMA, **rest)


STAGES: dict[str, list[bytes | None]] = {
    "nothing": [],
    "inline": [INLINE],
    "in a packed file": [PACKED],
    "after packed files": [PACKED] * 12,
    "after dedicated files": [DEDICATED] * 3,
    "a packed file before dedicated ones": [PACKED, DEDICATED, DEDICATED, DEDICATED],
    "all": [INLINE, PACKED, None, DEDICATED, PACKED, b"", INLINE],
}


@pytest.mark.parametrize("stage", list(STAGES))
@pytest.mark.parametrize("rows_per_file", [2, 1_000])
@pytest.mark.parametrize("finished", [False, True])
def test_stopped_writer_deletes_its_files(
    uri: str, stage: str, rows_per_file: int, finished: bool
) -> None:
    lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri)
    other_writer = job(uri).writer()
    other_writer.write(batch(PACKED, DEDICATED))
    before = files(uri)
    assert len([name for name in before if name.endswith(".blob")]) >= 4 - uri.startswith("memory")
    writer = job(uri, limits=WriteLimits(rows_per_file)).writer()
    for value in STAGES[stage]:
        writer.write(batch(value))
    if finished:
        writer.finish()
    assert (files(uri) == before) == (stage == "nothing")
    writer.abort()
    writer.abort()
    assert files(uri) == before
    other_writer.abort()


@pytest.mark.parametrize("finished", [False, True])
def test_job_deletes_files_of_its_writers(uri: str, finished: bool) -> None:
    lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri)
    kept = job(uri)
    other_writer = kept.writer()
    other_writer.write(batch(PACKED, DEDICATED))
    fragments = other_writer.finish()
    before = files(uri)
    lost = job(uri)
    for value in (INLINE, PACKED, DEDICATED):
        writer = lost.writer()
        writer.write(batch(value))
        if finished:
            writer.finish()
        else:
            # The process dies: its open files stay as they are.
            writer._blob_writer._pack = None  # type: ignore[union-attr]
    assert files(uri) > before
    lost.abort_all()
    assert files(uri) == before
    assert kept.commit(fragments) == 2
    values = lance_spark.open_dataset(uri).to_table(blob_handling="all_binary")["b"].to_pylist()
    assert values == [INLINE, PACKED, DEDICATED, PACKED, DEDICATED]


def test_uncommitted_fragments_are_deleted(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri)
    before = files(uri)

    def fails(*_: object, **__: object) -> None:
        raise CommitConflictError("somebody was faster", retryable=False)

    monkeypatch.setattr(write_job, "commit", fails)
    with pytest.raises(CommitConflictError):
        lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri, "append")
    assert files(uri) == before


@pytest.mark.parametrize("after", [0, 100, 300, 1_000, 2_400, 4_900, 7_000])
def test_full_disk_leaves_no_files(uri: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri)
    before = files(uri)
    output_class: Any = RemoteOutput if uri.startswith("memory") else LocalOutput
    write, written = output_class.write, 0

    def limited(self: Any, buffer: Any) -> None:
        nonlocal written
        written += memoryview(buffer).nbytes
        if written > after:
            raise StorageError(os.strerror(errno.ENOSPC))
        write(self, buffer)

    monkeypatch.setattr(output_class, "write", limited)
    rows = [batch(*STAGES["all"]), batch(DEDICATED, PACKED, PACKED)]
    with pytest.raises(StorageError, match="No space"):
        lance_spark.write_dataset(rows, uri, "append", max_rows_per_file=4)
    assert files(uri) == before


@pytest.mark.parametrize("number", range(8))
def test_failed_close_leaves_no_files(
    uri: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.write_dataset([batch(INLINE, PACKED, DEDICATED)], uri)
    before = files(uri)
    output_class: Any = RemoteOutput if uri.startswith("memory") else LocalOutput
    close, closed = output_class.close, 0

    def failing(self: Any) -> None:
        nonlocal closed
        closed += 1
        if closed == number + 1:
            self.abort()
            raise StorageError("fsync failed")
        close(self)

    monkeypatch.setattr(output_class, "close", failing)
    rows = [batch(*STAGES["all"]), batch(DEDICATED, PACKED, PACKED, DEDICATED)]
    with pytest.raises(StorageError, match="fsync failed"):
        lance_spark.write_dataset(rows, uri, "append", max_rows_per_file=4)
    assert closed == number + 1
    assert files(uri) == before


def test_refused_values_leave_no_files(uri: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(PACKED, DEDICATED)
        yield batch(PACKED)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        lance_spark.write_dataset(failing(), uri)
    assert files(uri) == set()
    lance_spark.write_dataset([batch(INLINE)], uri)
    before = files(uri)
    dtype = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    blobs = pa.array([{"data": PACKED}, {"data": DEDICATED}, {"uri": "/no/such/file"}], dtype)
    rows = pa.table({"i": [1, 2, 3], "b": blobs})
    for mode in ("reference", "ingest"):
        with pytest.raises(LanceError, match=r"is a URI|file not found"):
            lance_spark.write_dataset(rows, uri, "append", external_blob_mode=mode)  # type: ignore[arg-type]
        assert files(uri) == before


def test_blob_files_are_durable_before_their_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    close, fsync = LocalOutput.close, os.fsync

    def noted(self: LocalOutput) -> None:
        calls = len(fsyncs)
        close(self)
        # The bytes, and the name.
        assert len(fsyncs) >= calls + 2
        synced.append(self.name)

    fsyncs: list[int] = []

    def counted(descriptor: int) -> None:
        fsyncs.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(LocalOutput, "close", noted)
    monkeypatch.setattr(os, "fsync", counted)
    writer = job(str(tmp_path / "t"), blobs=BlobOptions()).writer()
    for value in STAGES["all"]:
        writer.write(batch(value))
    assert not any(name.endswith(".lance") for name in synced)
    writer.finish()
    *sidecars, data = synced
    assert data.endswith(".lance")
    assert {os.path.relpath(name, tmp_path / "t/data") for name in sidecars} == {
        name for name in files(str(tmp_path / "t")) if name.endswith(".blob")
    }
    assert len(sidecars) == 2
