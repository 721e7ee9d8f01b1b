"""Deletion files: written by us, read by both clients, and cached."""

from __future__ import annotations

import pickle
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DeletionCache, DeletionFile, DeletionFileType
from lance_spark.table.open import open_table
from lance_spark.table.operations.update import Delete, with_deletion_file
from lance_spark.table.rows import deletions
from lance_spark.table.rows.deletions import write_deletions

ROWS = 12_000


def numbers(path: Path, **options: object) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": range(ROWS)}), str(path), **options)


@pytest.mark.parametrize("count", [1, 2, 4_999, 5_000, ROWS - 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_deletion_files_equal_those_of_pylance(tmp_path: Path, count: int, seed: int) -> None:
    gone = np.sort(np.random.default_rng(seed).permutation(ROWS)[:count])
    for name in ("ours", "theirs"):
        numbers(tmp_path / name)
    ours = lance_spark.open_dataset(str(tmp_path / "ours")).delete(indices=gone)
    theirs = lance.dataset(str(tmp_path / "theirs"))
    keys = pa.table({"id": pa.array(gone, pa.int64())})
    theirs.merge_insert("id").when_matched_delete().execute(keys)
    left = np.setdiff1d(np.arange(ROWS), gone).tolist()
    result = lance.dataset(str(tmp_path / "ours"))
    result.validate()
    assert result.to_table()["id"].to_pylist() == left == ours.to_table()["id"].to_pylist()
    files = [
        lance_spark.open_dataset(str(tmp_path / name)).fragments[0].deletion_file
        for name in ("ours", "theirs")
    ]
    descriptions = [
        (file.file_type, file.read_version, file.num_deleted_rows) for file in files if file
    ]
    assert descriptions[0] == descriptions[1]
    assert descriptions[0][0] is (
        DeletionFileType.ARROW if count < 5_000 else DeletionFileType.BITMAP
    )


@pytest.mark.parametrize("bitmap", [False, True])
def test_both_layouts_are_read_for_any_number_of_rows(tmp_path: Path, bitmap: bool) -> None:
    numbers(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    store = ObjectStore.from_uri(str(tmp_path))
    offsets = np.array([0, 7, ROWS - 2], np.int64)
    file = write_deletions(store, 0, 1, offsets, bitmap=bitmap)
    fragment = with_deletion_file(dataset.fragments[0], file)
    base = open_table(str(tmp_path)).manifest
    commit(store, Transaction.new(1, Delete((fragment,))), base)
    theirs = lance.dataset(str(tmp_path))
    theirs.validate()
    assert theirs.count_rows() == ROWS - 3
    expected = np.setdiff1d(np.arange(ROWS), offsets).tolist()
    assert theirs.to_table()["id"].to_pylist() == expected
    assert lance_spark.open_dataset(str(tmp_path)).to_table()["id"].to_pylist() == expected


def test_a_deletion_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers(tmp_path, max_rows_per_file=ROWS // 3).delete("id % 2 = 1")
    reads: list[str] = []
    read = deletions.TablePaths.read_deletion_file

    def counted(self: deletions.TablePaths, file: DeletionFile, number: int) -> tuple[bytes, str]:
        reads.append(file.name(number))
        return read(self, file, number)

    monkeypatch.setattr(deletions.TablePaths, "read_deletion_file", counted)
    dataset = lance_spark.open_dataset(str(tmp_path))
    for start in range(5):
        taken = dataset.take([start, 3_000, 5_000])
        assert taken["id"].to_pylist() == [2 * start, 6_000, 10_000]
    assert sorted(reads) == sorted(set(reads))
    assert len(reads) == 3


def test_the_deletion_cache_is_bounded() -> None:
    cache = DeletionCache(max_bytes=800)
    keys = [(n, DeletionFile(DeletionFileType.ARROW, 1, n, 50)) for n in range(3)]
    for number, key in enumerate(keys):
        cache.put(key, np.arange(50) + number)
        assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    kept = cache.get(keys[2])
    assert kept is not None
    assert kept[0] == 2
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1
    large = (9, DeletionFile(DeletionFileType.ARROW, 1, 9, 101))
    cache.put(large, np.arange(101))
    assert cache.get(large) is None
    assert cache.get(keys[0]) is not None
    assert pickle.loads(pickle.dumps(cache)).get(keys[0]) is None


def test_deleted_rows_out_of_range_are_refused(tmp_path: Path) -> None:
    """Few bytes can stand for the maximum number of rows of a fragment."""
    numbers(tmp_path).delete("id < 6000")
    (file,) = (tmp_path / "_deletions").iterdir()
    every = BitMap(range(2**16))
    every.run_optimize()
    file.write_bytes(every.serialize())
    assert file.stat().st_size < 40
    with pytest.raises(CorruptFileError, match=r"row 65535, but the fragment has 12000 rows"):
        lance_spark.open_dataset(str(tmp_path)).to_table()
