"""Cleanup beside other tables: linked branches, tables inside tables, unusual file names."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import lance
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.table.manifest.codec import encode
from lance_spark.table.open import open_table
from tests.support.tables.pylance_written import ids, rows

NOW = datetime.timedelta(0)


def make_old(path: Path) -> None:
    """Make all files older than the grace period."""
    then = time.time() - 30 * 24 * 3600
    for folder, _, names in os.walk(path):
        for name in names:
            os.utime(os.path.join(folder, name), (then, then))


def test_cleanup_through_a_link_to_a_branch(tmp_path: Path) -> None:
    """Tags and branches of the table protect versions, though the path does not show the table."""
    path, link = tmp_path / "t", tmp_path / "link"
    write_dataset(rows(0), str(path))
    open_dataset(str(path)).create_branch("b")
    link.symlink_to(path / "tree" / "b", target_is_directory=True)
    write_dataset(rows(3), str(link), "append")
    branch = open_dataset(str(link))
    assert branch.branch == "b"
    branch.tags.create("tag", 2)
    write_dataset(rows(6), str(link), "append")
    open_dataset(str(link)).create_branch("c")
    write_dataset(rows(9), str(link), "overwrite")
    open_dataset(str(link)).cleanup_old_versions(
        NOW, delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert open_dataset(str(path), tag="tag").count_rows() == 6
    assert [version.version for version in open_dataset(str(link)).versions()] == [2, 3, 4]
    theirs = lance.dataset(str(path))
    assert theirs.checkout_version("tag").count_rows() == 6
    assert theirs.checkout_version(("c", None)).to_table()["id"].to_pylist() == [*range(9)]
    assert open_dataset(str(link), branch="main").count_rows() == 3


def test_cleanup_of_branches_below_a_link(tmp_path: Path) -> None:
    """Through the real path, the tags cannot be found."""
    path, other_folder = tmp_path / "t", tmp_path / "other"
    write_dataset(rows(0), str(path))
    open_dataset(str(path)).create_branch("b")
    for start in (3, 6):
        write_dataset(rows(start), str(path), "append", branch="b")
    open_dataset(str(path)).tags.create("tag", ("b", 2))
    other_folder.mkdir()
    (path / "tree").rename(other_folder / "tree")
    (path / "tree").symlink_to(other_folder / "tree", target_is_directory=True)
    # From there it looks like a branch of a copied table.
    with pytest.raises(CorruptTableError, match="allow_foreign_branch_bases=true"):
        open_dataset(str(other_folder / "tree" / "b"))
    same = {"allow_foreign_branch_bases": "true"}
    with pytest.raises(InvalidInputError, match="open the branch by the root of its table"):
        open_dataset(str(other_folder / "tree" / "b"), storage_options=same).cleanup_old_versions(
            NOW
        )
    stats = open_dataset(str(path), branch="b").cleanup_old_versions(
        NOW, error_if_tagged_old_versions=False
    )
    assert stats.versions == (1,)
    assert open_dataset(str(path), tag="tag").count_rows() == 6


@pytest.mark.parametrize("name", ["a/data", "a/_indices", "a/_versions", "a/_transactions"])
def test_files_of_a_branch_inside_another_are_kept(tmp_path: Path, name: str) -> None:
    """pylance creates such branches."""
    path = tmp_path / "t"
    dataset = lance.write_dataset(rows(0), str(path))
    for branch in ("a", name):
        dataset.create_branch(branch)
        lance.write_dataset(rows(3), str(path / "tree" / branch), mode="append")
    lance.write_dataset(rows(6), str(path / "tree" / "a"), mode="overwrite")
    make_old(path)
    stats = open_dataset(str(path), branch="a").cleanup_old_versions(NOW)
    assert (stats.old_versions, stats.data_files_removed) == (2, 1)
    assert lance.dataset(str(path)).checkout_version((name, None)).to_table()["id"].to_pylist() == [
        *range(6)
    ]
    assert ids(path / "tree" / "a") == [6, 7, 8]


def test_files_of_tables_inside_a_table_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_dataset(rows(0), str(path))
    inner = [path / "data" / "x" / "y", path / "_indices" / "x"]
    for inner_path in inner:
        write_dataset(rows(3), str(inner_path))
    write_dataset(rows(6), str(path), "overwrite")
    make_old(path)
    assert open_dataset(str(path)).cleanup_old_versions(NOW).data_files_removed == 1
    assert [ids(inner_path) for inner_path in inner] == [[3, 4, 5], [3, 4, 5]]


def test_a_referenced_file_with_a_temporary_name_is_kept(tmp_path: Path) -> None:
    """Only a user who commits own files would choose such a name."""
    path = tmp_path / "t"
    write_dataset(rows(0), str(path))
    manifest = open_table(str(path)).manifest
    (file,) = (path / "data").iterdir()
    file.rename(file.with_name(".tmp.lance"))
    (path / "data" / ".tmp2.lance").write_bytes(b"left by a job")
    manifest.message.fragments[0].files[0].path = ".tmp.lance"
    (place,) = (path / "_versions").glob("*.manifest")
    place.write_bytes(
        encode(
            manifest.message,
            manifest.index_section,
            manifest.transaction_section,
            manifest.dictionaries,
        )
    )
    make_old(path)
    open_dataset(str(path)).cleanup_old_versions(NOW)
    assert os.listdir(path / "data") == [".tmp.lance"]
    assert ids(path) == [0, 1, 2]
