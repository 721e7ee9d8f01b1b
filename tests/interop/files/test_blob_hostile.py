"""Tables whose files describe impossible blobs. Readers name the table, fail at once, and allocate
no memory for the described sizes.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import DatasetBasePath

import lance_spark
from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
)
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.blobs.writer import BlobWriter
from lance_spark.file.schema.field import BLOB_DESCRIPTOR
from tests.support.interop.blobs import extended, in_list, in_struct, marked, random_values, table

VERSIONS = ("2.0", "2.1", "2.2")
_HUGE = (1 << 60, (1 << 64) - 1, 1 << 48, 1 << 40)


@contextmanager
def frugal(mebibytes: int = 64, seconds: float = 1) -> Iterator[None]:
    """Fail if the block takes too much memory or processor time."""
    tracemalloc.start()
    before, started = pa.total_allocated_bytes(), time.process_time()
    try:
        yield
        took = time.process_time() - started
        peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert took < seconds, f"{took:.1f} s"
    assert peak < mebibytes << 20, f"{peak >> 20} MiB"


def forge(monkeypatch: pytest.MonkeyPatch, path: Path, version: str, descriptors: list[Any]) -> Any:
    """Write a table with these descriptions of blobs, and open it."""
    dtype = PLACE if version < "2.2" else BLOB_DESCRIPTOR
    rows = [
        None if descriptor is None else dict(zip(dtype.names, descriptor, strict=True))
        for descriptor in descriptors
    ]
    with monkeypatch.context() as patch:
        patch.setattr(BlobWriter, "_store", lambda *_: pa.array(rows, dtype))
        data = table(marked([b"x" * 1_000] * len(descriptors)))
        lance_spark.write_dataset(data, str(path), "overwrite", data_storage_version=version)
    return lance_spark.open_dataset(str(path))


def refused(dataset: Any, error: type[LanceError], match: str) -> None:
    """Check that no way to read the first row returns its bytes."""
    rows = dataset.count_rows()
    with frugal():
        assert dataset.to_table().num_rows == rows
    with frugal(), pytest.raises(error, match=match):
        dataset.to_table(blob_handling="all_binary")
    with frugal(), pytest.raises(error, match=match):
        list(dataset.to_batches(batch_size=1, blob_handling="all_binary"))
    with frugal(), pytest.raises(error, match=match):
        dataset.take([0], blob_handling="all_binary")


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize(
    ("position", "size"),
    [
        (0, 1 << 30),
        (1 << 30, 1),
        (1, 1 << 20),
        *((position, 5) for position in _HUGE),
        *((0, size) for size in _HUGE),
    ],
)
def test_places_outside_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, position: int, size: int
) -> None:
    dataset = forge(monkeypatch, tmp_path, version, [(position, size), (0, 1), (0, 1)])
    refused(dataset, CorruptFileError, r"\.lance: a blob lies outside")
    with frugal(), pytest.raises(CorruptFileError):
        dataset.take_blobs("b", indices=[0])[0].read(10)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("descriptor", "error", "match"),
    [
        ((0, 0, 1 << 30, 0, ""), CorruptFileError, "a blob lies outside"),
        ((0, 1 << 60, 5, 0, ""), CorruptFileError, "a blob lies outside"),
        ((0, (1 << 64) - 4, 8, 0, ""), CorruptFileError, "a blob lies outside"),
        ((0, 0, 1 << 60, 0, ""), CorruptFileError, "a blob lies outside"),
        ((0, 1 << 47, 1 << 47, 0, ""), CorruptFileError, "a blob lies outside"),
        ((7, 0, 5, 0, ""), CorruptFileError, "kind 7"),
        ((255, 0, 5, 0, ""), CorruptFileError, "kind 255"),
        ((1, 0, 5, 9, ""), MissingFileError, r"\.blob"),
        ((1, 0, 5, 0, ""), MissingFileError, r"\.blob"),
        ((2, 0, 5, (1 << 32) - 1, ""), MissingFileError, r"1{32}\.blob"),
        ((3, 0, 0, 0, ""), CorruptTableError, "not an absolute URI"),
        ((3, 0, 0, 0, "etc/passwd"), CorruptTableError, "not an absolute URI"),
        ((3, 0, 0, 0, "/etc/passwd"), CorruptTableError, "not an absolute URI"),
        ((3, 0, 0, 0, "../../../etc/passwd"), CorruptTableError, "not an absolute URI"),
        ((3, 0, 0, 0, "~/x"), CorruptTableError, "not an absolute URI"),
        ((3, 0, 0, 0, "%$&\0\n://"), LanceError, "."),
        ((3, 0, 0, 0, "file:///no/such\0/file"), LanceError, "."),
        ((3, 0, 0, 0, "file:///" + "x" * 10_000), StorageError, "."),
        ((3, 0, 0, 0, "file:///"), LanceError, "."),
        ((3, 0, 0, 0, "file:///etc"), StorageError, "is not a file"),
        ((3, 0, 0, 0, "file:///no/such/file"), MissingFileError, "/no/such/file"),
        ((3, 0, 1 << 60, 0, "file:///etc/hostname"), CorruptFileError, "a blob lies outside"),
        ((3, 0, 1 << 40, 0, "file:///etc/passwd"), CorruptFileError, "/etc/passwd"),
        ((3, 1 << 40, 1, 0, "file:///etc/passwd"), CorruptFileError, "/etc/passwd"),
        ((3, 5, 0, 0, "file:///etc/passwd"), CorruptFileError, "empty range"),
        ((3, 0, 0, 0, "nosuchscheme://a/b"), StorageError, "unknown scheme"),
        ((3, 0, 0, 0, "memory://"), LanceError, "."),
        ((3, 0, 0, 0, "memory://a/b"), MissingFileError, "a/b"),
        ((3, 0, 0, 5, "f.bin"), CorruptTableError, "base path 5"),
        ((3, 0, 0, (1 << 32) - 1, "file:///etc/passwd"), CorruptTableError, "base path"),
    ],
)
def test_descriptors_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, descriptor: Any, error: Any, match: str
) -> None:
    dataset = forge(monkeypatch, tmp_path, "2.2", [descriptor, None, (0, 0, 1, 0, "")])
    refused(dataset, error, match)
    with frugal(), pytest.raises(error):
        dataset.take_blobs("b", indices=[0])[0].read(10)


def test_a_reference_that_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = pa.array([b"file:///\xff\xfe"]).view(pa.string())
    numbers = [
        pa.array([number], field.type)
        for number, field in zip((3, 0, 0, 0), BLOB_DESCRIPTOR, strict=False)
    ]
    descriptors = pa.StructArray.from_arrays([*numbers, text], fields=list(BLOB_DESCRIPTOR))
    monkeypatch.setattr(BlobWriter, "_store", lambda *_: descriptors)
    lance_spark.write_dataset(table(marked([b"x"])), str(tmp_path))
    dataset = lance_spark.open_dataset(str(tmp_path))
    for call in (
        lambda: dataset.to_table(blob_handling="all_binary"),
        dataset.take_blobs("b", indices=[0])[0].read,
    ):
        with frugal(), pytest.raises(LanceError):
            call()


def test_an_absolute_reference_is_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dataset = forge(monkeypatch, tmp_path, "2.2", [(3, 0, 0, 0, "file:///etc/passwd")])
    content = Path("/etc/passwd").read_bytes()
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == [content]
    (file,) = dataset.take_blobs("b", indices=[0])
    assert file.read() == content


@pytest.mark.parametrize(
    "uri",
    [
        "../outside.bin",
        "a/../../outside.bin",
        "/etc/passwd",
        "file:///etc/passwd",
        "",
        ".",
        "a//b",
        "a\0b",
    ],
)
def test_relative_references_stay_below_their_base(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uri: str
) -> None:
    base = tmp_path / "base"
    (base / "a").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(b"outside")
    bases = [DatasetBasePath(base.as_uri(), is_dataset_root=False)]
    path = tmp_path / "t"
    lance.write_dataset(
        table(extended([b"a"])), str(path), data_storage_version="2.2", initial_bases=bases
    )
    dataset = forge(monkeypatch, path, "2.2", [(3, 0, 0, 1, uri), None])
    refused(dataset, InvalidInputError, "is not a path below")
    with pytest.raises(InvalidInputError):
        dataset.take_blobs("b", indices=[0])[0].read()


def test_a_pipe_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    dataset = forge(
        monkeypatch, tmp_path / "t", "2.2", [(3, 0, 0, 0, (tmp_path / "pipe").as_uri())]
    )
    refused(dataset, StorageError, "is not a file")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rows", [50, 5_000])
def test_small_blobs_whose_sum_is_huge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, rows: int
) -> None:
    path = tmp_path / "t"
    big = table(marked([b"x" * 4_000_000]))
    descriptor: Any = (0, 4_000_000) if version < "2.2" else (0, 0, 4_000_000, 0, "")
    with monkeypatch.context() as patch:
        store = BlobWriter._store

        def forged(self: BlobWriter, array: pa.Array, column: Any) -> pa.Array:
            store(self, array.slice(0, 1), column)
            dtype = PLACE if version < "2.2" else BLOB_DESCRIPTOR
            return pa.array([dict(zip(dtype.names, descriptor, strict=True))] * rows, dtype)

        column = marked([b"x" * 4_000_000])[1]
        column = column.with_metadata(
            {**column.metadata, "lance-encoding:blob-inline-size-threshold": "9000000"}
        )
        patch.setattr(BlobWriter, "_store", forged)
        values = pa.array([b"x" * 4_000_000] + [b""] * (rows - 1), pa.large_binary())
        lance_spark.write_dataset(table((values, column)), str(path), data_storage_version=version)
    assert big.num_rows == 1
    dataset = lance_spark.open_dataset(str(path))
    with frugal(), pytest.raises(CorruptFileError, match="blobs overlap"):
        dataset.take(range(rows), blob_handling="all_binary")
    with frugal(), pytest.raises(CorruptFileError, match="blobs overlap"):
        dataset.to_table(blob_handling="all_binary")


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writer", ["ours", "pylance"])
@pytest.mark.parametrize("shape", ["plain", "struct", "list"])
def test_damaged_files(tmp_path: Path, version: str, writer: str, shape: str) -> None:
    values = random_values(40, 1, 20)
    column = {"plain": marked, "list": in_list}.get(shape)
    array = column(values) if column else in_struct(values, version != "2.0")
    if shape == "list" and version == "2.1":
        return
    write: Any = lance_spark.write_dataset if writer == "ours" else lance.write_dataset
    write(table(array), str(tmp_path / "t"), data_storage_version=version)
    (path,) = (tmp_path / "t").glob("data/*.lance")
    sound = path.read_bytes()
    rng = np.random.default_rng(7)
    refusals = 0
    for _ in range(40):
        damaged = bytearray(sound)
        for offset in rng.integers(0, len(sound), int(rng.integers(1, 4))):
            damaged[offset] = int(
                rng.choice([0, 1, 0x7F, 0x80, 0xFF, damaged[offset] ^ 1, damaged[offset] ^ 64])
            )
        path.write_bytes(damaged)
        dataset = lance_spark.open_dataset(str(tmp_path / "t"))
        for handling in (None, "all_binary"):
            try:
                with frugal(seconds=2):
                    dataset.to_table(blob_handling=handling).validate(full=True)
            except LanceError:
                refusals += 1
    assert refusals
