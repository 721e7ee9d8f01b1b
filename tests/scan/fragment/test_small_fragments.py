"""Fragments that are read together have the rows that pylance reads from each fragment."""

from __future__ import annotations

import pickle
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.file.reader import FileReader
from lance_spark.scan.fragment import small_fragments
from lance_spark.scan.fragment.column_reader import WINDOW_BYTES
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.task import FragmentSlice

#: Reads hundreds of fragments in each way.
pytestmark = pytest.mark.slow

FRAGMENTS = 40
#: All rows of the other fragments are deleted.
LEFT = 36


def content(start: int, rows: int, seed: int, version: str) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = np.arange(start, start + rows)
    words = pa.array([f"word {n % 7}" for n in numbers])
    return pa.table(
        {
            "id": numbers,
            "small": pa.array(random.integers(0, 100, rows).astype(np.int32)),
            "price": random.random(rows),
            "maybe": pa.array(random.integers(0, 9, rows), mask=random.random(rows) < 0.3),
            "flag": pa.array(random.random(rows) < 0.5),
            "word": words,
            "text": pa.array(
                [f"{n} of {seed}" * (n % 5) if n % 11 else None for n in numbers], pa.string()
            ),
            "kind": words.dictionary_encode(),
            "list": pa.array(
                [list(range(n % 4)) if n % 13 else None for n in numbers], pa.list_(pa.int64())
            ),
            "texts": pa.array([[f"t{n}"] * (n % 3) for n in numbers], pa.list_(pa.string())),
            "point": pa.array(
                [{"x": n, "y": f"y{n}"} if n % 5 or version == "2.0" else None for n in numbers],
                pa.struct({"x": pa.int64(), "y": pa.string()}),
            ),
            "vector": pa.FixedSizeListArray.from_arrays(random.random(rows * 4, np.float32), 4),
            "none": pa.nulls(rows, pa.int16()),
            "same": pa.array(["always the same"] * rows),
        }
    )


def write(path: Path, version: str, **options: Any) -> lance.LanceDataset:
    start = 0
    for number in range(FRAGMENTS):
        rows = (1, 50, 300, 1024, 1500)[number % 5]
        dataset = lance.write_dataset(
            content(start, rows, number, version),
            str(path),
            mode="append" if number else "create",
            data_storage_version=version,
            **options,
        )
        start += rows
    return dataset


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joined") / "t.lance"
    write(path, request.param, enable_stable_row_ids=True)
    lance.dataset(str(path)).delete("id % 10 = 3 OR (id > 3000 AND id < 6000)")
    return path


def ours(path: Path, metrics: ScanMetrics | None = None, **plan: Any) -> pa.Table:
    dataset = lance_spark.open_dataset(str(path))
    tasks = dataset.plan(rows_per_task=1 << 40, **plan)
    batches = [batch for task in tasks for batch in task.batches(metrics)]
    return pa.Table.from_batches(batches, tasks[0].schema)


def same(table_read: pa.Table, expected: pa.Table) -> None:
    assert table_read.num_rows == expected.num_rows
    for name in expected.column_names:
        column_read, expected_column = (
            table_read.column(name).combine_chunks(),
            expected.column(name).combine_chunks(),
        )
        if pa.types.is_dictionary(column_read.type):
            column_read, expected_column = (
                column_read.dictionary_decode(),
                expected_column.dictionary_decode(),
            )
        assert column_read.to_pylist() == expected_column.to_pylist(), name
        column_read.validate(full=True)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of fragments of each run."""
    sizes: list[int] = []
    make = small_fragments.RunReader.__init__

    def count(self: Any, paths: Any, opened: Any, *more: Any, **options: Any) -> None:
        if len(more) > 1:
            sizes.append(len(opened))
        make(self, paths, opened, *more, **options)

    monkeypatch.setattr(small_fragments.RunReader, "__init__", count)
    return sizes


NUMBERS = ["id", "small", "price", "maybe", "flag", "vector"]


def test_numbers_are_read_together(path: Path, together: list[int]) -> None:
    metrics = ScanMetrics()
    result = ours(path, metrics, columns=NUMBERS)
    same(result, lance.dataset(str(path)).to_table(columns=NUMBERS))
    assert together == [16, 20]
    assert metrics.fragments_scanned == LEFT
    assert metrics.batches_loaded == 2
    assert metrics.rows_scanned == result.num_rows


def test_every_column(path: Path, together: list[int]) -> None:
    result = ours(path)
    same(result, lance.dataset(str(path)).to_table())
    if lance.dataset(str(path)).data_storage_version != "2.0":
        assert sum(together) == LEFT
        assert len(together) < 4


@pytest.mark.parametrize("filter", ["id = 777", "price < 0.1 AND maybe > 3", "id < 0", "flag"])
def test_filters(path: Path, filter: str) -> None:
    names = ["id", "word", "price"]
    result = ours(path, columns=names, filter=filter)
    same(result, lance.dataset(str(path)).to_table(columns=names, filter=filter))


def test_page_descriptors_of_fragments_without_rows_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = content(0, 1, 0, "2.2").schema.get_field_index("price")
    readers: list[FileReader] = []
    load = FileReader._load

    def record(self: FileReader, columns: Any) -> None:
        if price in columns:
            readers.append(self)
        load(self, columns)

    monkeypatch.setattr(FileReader, "_load", record)
    metrics = ScanMetrics()
    filter = "id = 777 OR id = 6001"
    result = ours(path, metrics, columns=["price", "maybe", "id"], filter=filter)
    same(result, lance.dataset(str(path)).to_table(columns=["price", "maybe", "id"], filter=filter))
    assert result.num_rows == 2
    assert len({id(reader) for reader in readers}) == 2
    assert metrics.rows_scanned == 2


@pytest.mark.parametrize("filter", ["small < 50", "id = 777 OR id = 6001 OR small = 99"])
def test_row_metadata_columns(path: Path, filter: str) -> None:
    names = ["_rowid", "_rowaddr", "id", "_rowoffset"]
    result = ours(path, columns=names, filter=filter)
    expected = lance.dataset(str(path)).to_table(
        columns=["id"], filter=filter, with_row_id=True, with_row_address=True
    )
    same(result.select(["id", "_rowid", "_rowaddr"]), expected)
    live = lance.dataset(str(path)).to_table(columns=["id"]).column("id").to_numpy()
    assert (live[result.column("_rowoffset").to_numpy()] == result.column("id").to_numpy()).all()
    ids = ours(path, columns=["_fragid", "_rowaddr"])
    high = ids.column("_rowaddr").to_numpy() >> 32
    assert (high == ids.column("_fragid").to_numpy()).all()
    assert len(set(high.tolist())) > 20


def test_no_columns(path: Path) -> None:
    result = ours(path, columns=[])
    assert result.num_rows == lance.dataset(str(path)).count_rows()


def test_parts_of_fragments_keep_the_order(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    expected = lance.dataset(str(path)).to_table(columns=["id"])
    for rows in (100, 700, 5000):
        tasks = dataset.plan(["id"], rows_per_task=rows)
        batches = [batch for task in tasks for batch in task.batches()]
        same(pa.Table.from_batches(batches), expected)


def test_batch_size(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    (task,) = dataset.plan(["id", "text"], rows_per_task=1 << 40, batch_size=1000)
    sizes = [batch.num_rows for batch in task.batches()]
    assert max(sizes) == 1000
    assert len(sizes) < 60


def test_first_rows_open_few_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_one = FileReader.open

    def count(source: Any, tail: Any = None) -> FileReader:
        opened.append(source.name)
        return open_one(source, tail)

    monkeypatch.setattr(FileReader, "open", count)
    (task,) = lance_spark.open_dataset(str(path)).plan(["id"], rows_per_task=1 << 40)
    batches = task.batches(prefetch=False)
    next(batches)
    batches.close()
    assert len(opened) == 16


def test_schemas_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    rows = pa.table({"a": range(100), "b": np.arange(100) / 4})
    for number in range(6):
        lance.write_dataset(rows, str(path), mode="append" if number else "create")
    dataset = lance.dataset(str(path))
    dataset.add_columns({"c": "a * 2"})
    for _ in range(6):
        lance.write_dataset(rows.append_column("c", pa.array([7] * 100)), str(path), mode="append")
    dataset = lance.dataset(str(path))
    dataset.alter_columns({"path": "a", "name": "renamed"})
    dataset.drop_columns(["b"])
    dataset.add_columns(pa.schema({"d": pa.int32()}))
    for number in range(6):
        lance.write_dataset(
            pa.table(
                {"renamed": range(100), "c": [number] * 100, "d": pa.array([3] * 100, pa.int32())}
            ),
            str(path),
            mode="append",
        )
    expected = lance.dataset(str(path)).to_table()
    same(ours(path), expected)
    condition = "c = 7 OR d = 3"
    same(ours(path, filter=condition), lance.dataset(str(path)).to_table(filter=condition))


def test_files_rewritten_under_the_same_name(tmp_path: Path) -> None:
    """Cached schemas are keyed by the content of the file, not by its name."""
    for number in range(3):
        path = tmp_path / "t.lance"
        shutil.rmtree(path, ignore_errors=True)
        dtype = (pa.int64(), pa.float64(), pa.string())[number]
        for part in range(4):
            values = pa.array(range(part * 10, part * 10 + 10)).cast(dtype)
            fragments = lance.write_dataset(
                pa.table({"v": values}), str(path), mode="append" if part else "create"
            )
        assert len(fragments.get_fragments()) == 4
        names = sorted((path / "data").iterdir())
        same(ours(path), lance.dataset(str(path)).to_table())
        assert len(names) == 4


def test_an_error_names_the_file_and_comes_after_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    for number in range(10):
        lance.write_dataset(
            pa.table({"a": range(number * 100, number * 100 + 100)}),
            str(path),
            mode="append" if number else "create",
        )
    (file,) = lance.dataset(str(path)).get_fragment(6).data_files()
    damaged = path / "data" / file.path
    damaged.write_bytes(b"\xff" * 64 + damaged.read_bytes()[64:])
    (task,) = lance_spark.open_dataset(str(path)).plan(rows_per_task=1 << 40)
    result: list[int] = []

    def read() -> Iterator[None]:
        for batch in task.batches():
            result.extend(batch.column(0).to_pylist())
            yield

    with pytest.raises(CorruptFileError, match=file.path):
        list(read())
    assert result == list(range(600))


@pytest.mark.parametrize("value", ["x" * 8000, "much the same " * 600])
def test_highly_compressed_files_form_small_runs(
    tmp_path: Path, together: list[int], value: str
) -> None:
    """Files of some KiB hold MiB of equal strings: a run has at most as many bytes as a window."""
    path = tmp_path / "t.lance"
    for number in range(24):
        values = [value] * 400 if number % 2 else [f"{value}{n % 3}" for n in range(400)]
        lance.write_dataset(
            pa.table({"v": values}), str(path), mode="append" if number else "create"
        )
    stored = sum(file.stat().st_size for file in (path / "data").iterdir())
    (task,) = lance_spark.open_dataset(str(path)).plan(rows_per_task=1 << 40, batch_size=1 << 30)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    most = 0
    rows = 0
    for batch in task.batches(prefetch=False):
        rows += batch.num_rows
        most = max(most, pool.bytes_allocated() - before)
        del batch
    assert rows == 24 * 400
    decoded = rows * len(value)
    assert decoded > 4 * WINDOW_BYTES > 4 * stored
    assert most < 2 * WINDOW_BYTES


class FarFileSystem(LocalFileSystem):
    """Answers late, and counts the requests that wait."""

    protocol = "far"
    lock = threading.Lock()
    waiting = most = requests = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(str(path).removeprefix("far://"))

    def cat_file(self, *place: Any, **options: Any) -> bytes:
        counters = FarFileSystem
        with counters.lock:
            counters.waiting += 1
            counters.requests += 1
            counters.most = max(counters.most, counters.waiting)
        time.sleep(0.02)
        result: bytes = super().cat_file(*place, **options)
        with counters.lock:
            counters.waiting -= 1
        return result


@pytest.mark.parametrize("io_threads", [1, 3, 16])
def test_files_of_a_remote_store_are_opened_in_parallel(tmp_path: Path, io_threads: int) -> None:
    path = tmp_path / "t.lance"
    rows = pa.table({"a": range(100), "s": [f"s{n}" for n in range(100)]})
    for number in range(20):
        lance.write_dataset(rows, str(path), mode="append" if number else "create")
    fsspec.register_implementation("far", FarFileSystem, clobber=True)
    options = {"io_threads": str(io_threads)}
    dataset = lance_spark.open_dataset(f"far://{path}", storage_options=options)
    (task,) = dataset.plan(rows_per_task=1 << 40)
    FarFileSystem.requests = FarFileSystem.most = 0
    result = pa.Table.from_batches(list(task.batches()))
    assert result.column("a").to_pylist() == list(range(100)) * 20
    # Files are small: the read that opens a file has all its bytes.
    assert FarFileSystem.requests == 20
    assert min(io_threads, 4) <= FarFileSystem.most <= io_threads


def test_tasks_are_pickled_with_their_slices(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    (fragment, *_) = (fragment for fragment in dataset.fragments if fragment.physical_rows == 1500)
    (task,) = dataset.plan(["id", "_rowoffset"], rows_per_task=1 << 40, filter="id >= 0")
    halves = [FragmentSlice(fragment, 0, 700, 5), FragmentSlice(fragment, 700, 1500, 5)]
    for slices in ((), (*task.slices, *halves), tuple(halves)):
        sliced_task = replace(task, slices=slices)
        result = pickle.loads(pickle.dumps(sliced_task))
        assert result == sliced_task
        assert result.slices == slices
        assert len({id(piece.fragment) for piece in result.slices}) == len(
            {piece.fragment.id for piece in slices}
        ) + (len(slices) > 2)


def test_columns_without_nulls_have_no_validity_bitmap(path: Path) -> None:
    """Spark gets no such bitmaps: the JVM makes them faster than it receives them."""
    dataset = lance_spark.open_dataset(str(path))
    names = ["id", "price", "flag", "word", "same", "vector", "maybe"]
    for task in dataset.plan(names, batch_size=500):
        for batch in task.batches():
            sent = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
            for name, column in zip(names, sent.columns, strict=True):
                assert (column.buffers()[0] is None) == (name != "maybe" or not column.null_count)
