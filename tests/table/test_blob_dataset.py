"""A table with blobs in a second table below ``_blobs/``: other columns can be read, no changes.

pylance 0.25.2 wrote the table; see tests/fixtures/README.md.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import UnsupportedFeatureError

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "blob_dataset.tar.xz"
BYTES = [b"00000", b"11111", b"22222", None, b"44444", b"55555", b"66666", b"77777"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blob_dataset")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "blob_dataset"


READS: dict[str, Callable[[Dataset], object]] = {
    "all columns": lambda d: d.to_table(),
    "the column": lambda d: d.to_table(["image"]),
    "as bytes": lambda d: d.to_table(["image"], blob_handling="all_binary"),
    "a filter": lambda d: d.to_table(["id"], filter="image is null"),
    "take": lambda d: d.take([0], ["image"]),
    "take_blobs": lambda d: d.take_blobs("image", indices=[0]),
    "an older version": lambda d: open_dataset(d.uri, 1).to_table(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_blob_column_is_refused(path: Path, read: Callable[[Dataset], object]) -> None:
    with pytest.raises(
        UnsupportedFeatureError, match=r"'image' are in a second table below _blobs/"
    ):
        read(open_dataset(str(path)))


def test_other_columns_and_second_table_are_readable(path: Path) -> None:
    dataset = open_dataset(str(path))
    assert dataset.count_rows() == 8
    assert dataset.to_table(["id"], filter="id > 5")["id"].to_pylist() == [6, 7]
    with pytest.raises(UnsupportedFeatureError) as caught:
        dataset.to_table()
    version = re.search(r"blob_dataset_version (\d+)", str(caught.value))
    assert version is not None
    rows = dataset.to_table(["id"], with_row_id=True)
    second = open_dataset(f"{path}/_blobs", version=int(version[1]))
    whole = rows.join(second.to_table(with_row_id=True), "_rowid").sort_by("id")
    assert whole.column("image").to_pylist() == BYTES


CHANGES: dict[str, Callable[[Dataset], object]] = {
    "append": lambda d: write_dataset(pa.table({"id": pa.array([8], pa.int32())}), d.uri, "append"),
    "overwrite": lambda d: write_dataset(pa.table({"id": [8]}), d.uri, "overwrite"),
    "delete": lambda d: d.delete([("id", "==", 1)]),
    "update": lambda d: d.update({"id": 0}),
    "compact": lambda d: d.compact_files(target_rows_per_fragment=100),
    "drop": lambda d: d.drop_columns(["image"]),
    "rename": lambda d: d.alter_columns({"path": "id", "name": "number"}),
    "restore": lambda d: open_dataset(d.uri, 1).restore(),
    "config": lambda d: d.update_config({"a": "1"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_refused(path: Path, change: Callable[[Dataset], object]) -> None:
    before = sorted(path.rglob("*"))
    with pytest.raises(
        UnsupportedFeatureError, match="cannot write to it: its blobs are in a second"
    ):
        change(open_dataset(str(path)))
    assert sorted(path.rglob("*")) == before
