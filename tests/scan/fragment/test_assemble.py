"""Fields and the data files of a fragment that hold them."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2
from tests.support.tables.damaged import rewrite_manifest


def test_a_field_in_two_files_is_an_error_where_it_is_read(tmp_path: Path) -> None:
    """Readers of pylance take the first file, without a word."""
    path, other = tmp_path / "t", tmp_path / "other"
    lance.write_dataset(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}), path)
    lance.write_dataset(pa.table({"a": [10, 20, 30]}), other)
    (file,) = (other / "data").iterdir()
    shutil.copy(file, path / "data" / file.name)
    added = lance_spark.open_dataset(other)._table.manifest.message.fragments[0].files[0]

    def add(manifest: table_pb2.Manifest) -> None:
        manifest.fragments[0].files.append(added)

    rewrite_manifest(path, add)
    dataset = lance_spark.open_dataset(path)
    assert dataset.to_table(["b"])["b"].to_pylist() == [4, 5, 6]
    for read in (
        dataset.to_table,
        lambda: dataset.count_rows("a = 1"),
        lambda: dataset.take([0], columns=["a"]),
        lambda: dataset.delete("a = 1"),
    ):
        with pytest.raises(CorruptTableError, match="field id 0 is in two data files"):
            read()
