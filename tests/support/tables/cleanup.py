"""A table of everything that cleanup meets, written by pylance, and what is left of it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import lance
import pyarrow as pa
from lance.blob import blob_array, blob_field

LIMITS = {
    "inline_size_threshold": 100,
    "dedicated_size_threshold": 5_000,
    "pack_file_size_threshold": 12_000,
}
WEEK = 7 * 24 * 3600


def rows(start: int, count: int = 6) -> pa.Table:
    """Return rows with blobs inline, packed, and in files of their own."""
    ids = list(range(start, start + count))
    blobs = [bytes([row % 256]) * (10, 1_000, 6_000)[row % 3] for row in ids]
    return pa.table(
        [pa.array(ids, pa.int64()), blob_array(blobs)],
        schema=pa.schema([pa.field("i", pa.int64()), blob_field("b", **LIMITS)]),
    )


def write_everything(path: Path) -> None:
    """Write nine versions with deletion files, replaced indexes, blobs beside data files, and rows
    that move.
    """
    uri = str(path)
    dataset = lance.write_dataset(rows(0), uri, max_rows_per_file=3, data_storage_version="2.2")
    dataset = lance.write_dataset(rows(6), uri, mode="append")  # 2
    dataset.delete("i < 2")  # 3
    dataset.create_scalar_index("i", "BTREE")  # 4
    dataset.delete("i = 7")  # 5
    dataset.optimize.compact_files()  # 6 and 7, with the reservation of fragments
    dataset.create_scalar_index("i", "BTREE", replace=True)
    lance.write_dataset(rows(100), uri, mode="overwrite")


def failed_jobs(path: Path, age: float) -> list[str]:
    """Leave files as killed jobs do, with an age in seconds; return their paths."""
    paths = [
        "data/0110.lance",
        "data/0110/0001.blob",
        "data/.tmpAbC",
        "data/.x.lance.0123456789abcdef0123456789abcdef.tmp",
        "_deletions/0-1-77.arrow",
        "_deletions/1-1-78.bin",
        "_indices/0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05/page.lance",
        "_transactions/1-0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05.txn",
        "_versions/.tmp_18446744073709551600.manifest_0b8f9aa4",
        "_versions/.18446744073709551600.manifest.0123456789abcdef0123456789abcdef.tmp",
    ]
    write_files(path, paths, age)
    return paths


def strangers(path: Path) -> list[str]:
    """Leave old files that no client writes; return their paths."""
    paths = [
        "README.md",
        "notes/a.lance",
        "data/notes.txt",
        "data/x/y/z.blob",
        "data/alone.blob",
        "_deletions/readme",
        "_transactions/backup.tar",
        "_indices/alone.idx",
        "_versions/old.manifest.bak",
        "_refs/notes.json",
        "_fri/0b8f9aa4/map.lance",
        "_blobs/1.blob",
        "_mem_wal/1.lance",
    ]
    write_files(path, paths, 100 * WEEK)
    return paths


def write_files(path: Path, names: list[str], age: float) -> None:
    when = time.time() - age
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"x" * 10)
        os.utime(path / name, (when, when))


def files(path: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {
        os.path.relpath(os.path.join(folder, name), path)
        for folder, _, names in os.walk(path)
        for name in names
    }


def folders(path: Path) -> set[str]:
    return {os.path.relpath(folder, path) for folder, _, _ in os.walk(path)}


def versions(path: Path) -> list[int]:
    return [version["version"] for version in lance.dataset(str(path)).versions()]


def check(path: Path, branches: tuple[str, ...] = ()) -> None:
    """Read every existing version with both clients, with blobs, by indexes and without."""
    import lance_spark

    roots = [path, *(path / "tree" / name for name in branches)]
    for root in roots:
        for version in versions(root):
            dataset = lance.dataset(str(root), version=version)
            dataset.validate()
            theirs = dataset.to_table(columns=["i"])["i"].to_pylist()
            ours = lance_spark.open_dataset(str(root), version=version)
            table = ours.to_table(blob_handling="all_binary")
            assert table["i"].to_pylist() == theirs
            for row, blob in zip(theirs, table["b"].to_pylist(), strict=True):
                assert blob == bytes([row % 256]) * (10, 1_000, 6_000)[row % 3]
            for row in theirs[::5]:
                assert dataset.to_table(columns=["i"], filter=f"i = {row}").num_rows == 1


def copy_of(template: Path, path: Path) -> None:
    """Restore a table, with the times of its files."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
