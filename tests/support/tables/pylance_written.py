"""Tables that pylance writes, and fragments with data files of pylance that this package
commits.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import lance
import pyarrow as pa

import lance_spark
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests


def rows(start: int, count: int = 3) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{i}" for i in ids]})


def new_table(path: Path, **options: object) -> lance.LanceDataset:
    """Write two fragments of 3 rows, ids 0 to 5."""
    return lance.write_dataset(rows(0, 6), str(path), max_rows_per_file=3, **options)


def written_by_pylance(path: Path, data: pa.Table, version: str = "2.2") -> tuple[Fragment, ...]:
    """Let pylance write data files below a table; return them as new fragments of this package."""
    # The files are written beside the table. In the table, pylance would use its field ids and its
    # flags.
    with TemporaryDirectory() as folder:
        metadata = lance.fragment.write_fragments(data, folder, data_storage_version=version)
        (path / "data").mkdir(parents=True, exist_ok=True)
        for file in (Path(folder) / "data").iterdir():
            shutil.copy(file, path / "data" / file.name)
    return tuple(as_ours(item) for item in metadata)


def as_ours(metadata: lance.FragmentMetadata) -> Fragment:
    files = [
        DataFile(
            path=file.path,
            fields=tuple(file.fields),
            column_indices=tuple(file.column_indices),
            file_major_version=file.file_major_version,
            file_minor_version=file.file_minor_version,
            file_size_bytes=file.file_size_bytes,
        )
        for file in metadata.files
    ]
    return Fragment(0, files, metadata.physical_rows)


def manifests(path: Path) -> list[Manifest]:
    store = ObjectStore.from_uri(path)
    return [read_manifest(store, location) for location in list_manifests(store)]


def ids(path: Path, version: int | None = None) -> list[int]:
    """Return the column `id`, after pylance has validated the table."""
    dataset = lance.dataset(str(path), version=version)
    dataset.validate()
    lance_spark.open_dataset(str(path), version).validate()
    return dataset.to_table(columns=["id"])["id"].to_pylist()
