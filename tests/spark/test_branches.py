"""Spark reads and writes branches, tags and old versions, which pylance creates or reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import open_dataset
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.write import WriteOptions

Read = Callable[..., Any]
Write = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Main: 1 (0-9), 2 (10-19). Branch feat/x: 1, then 100-104. Tags `old` (main, 1) and `there`
    (feat/x, 2).
    """
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10)}), path)
    branch = lance.dataset(path).create_branch("feat/x", 1)
    lance.write_dataset(pa.table({"id": range(100, 105)}), branch, mode="append")
    lance.write_dataset(pa.table({"id": range(10, 20)}), path, mode="append")
    dataset = lance.dataset(path)
    dataset.tags.create("old", 1)
    dataset.tags.create("there", ("feat/x", 2))
    return path


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


FIRST, SECOND, THERE = [*range(10)], [*range(20)], [*range(10), *range(100, 105)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SECOND),
        ({"branch": "main"}, SECOND),
        ({"branch": "main", "version": 1}, FIRST),
        ({"branch": "feat/x"}, THERE),
        ({"branch": "feat/x", "version": 1}, FIRST),
        ({"tag": "there"}, THERE),
        ({"tag": "there", "branch": "feat/x"}, THERE),
        ({"tag": "old", "branch": "main"}, FIRST),
    ],
    ids=str,
)
def test_options_select_versions(
    read: Read, path: str, options: dict[str, Any], expected: list[int]
) -> None:
    assert ids(read(path, **options)) == expected


def test_timestamps_on_a_branch(read: Read, path: str) -> None:
    first = lance.dataset(path).checkout_version(("feat/x", 1)).versions()[0]["timestamp"]
    text = (first.astimezone(dt.UTC) + dt.timedelta(microseconds=1)).isoformat()
    assert ids(read(path, branch="feat/x", timestamp=text)) == FIRST


def test_the_root_of_a_branch_is_a_path(read: Read, path: str) -> None:
    root = f"{path}/tree/feat/x"
    assert ids(read(root)) == THERE
    assert ids(read(root, branch="main")) == SECOND
    assert ids(read(root, tag="old")) == FIRST


def test_writes_go_to_the_branch(spark: Any, write: Write, read: Read, path: str) -> None:
    write(spark.range(200, 203), path=path, branch="feat/x")
    branch = lance.dataset(path).checkout_version(("feat/x", None))
    assert branch.version == 3
    assert sorted(branch.to_table()["id"].to_pylist()) == [*THERE, 200, 201, 202]
    write(spark.range(300, 302), "overwrite", path=path, branch="feat/x")
    assert ids(read(path, branch="feat/x")) == [300, 301]
    write(spark.range(20, 22), path=path, branch="main")
    assert ids(read(path)) == [*range(22)]
    assert lance.dataset(path).count_rows() == 22


def test_detached_versions(read: Read, path: str) -> None:
    ours = open_dataset(path)
    append = ours.read_transaction(2)
    assert append is not None
    detached = type(ours).commit(path, append.operation, 2, detached=True)
    assert ids(read(path, version=detached.version)) == sorted([*SECOND, *range(10, 20)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branch": "feat/y"}, "branch 'feat/y' not found: did you mean 'feat/x'"),
        ({"branch": "../x"}, "cannot be the name of a branch"),
        ({"branch": "feat/x", "version": 9}, "has no version 9"),
        ({"branch": "main", "tag": "there"}, "on branch 'feat/x', not on 'main'"),
        ({"branch": "feat/x", "tag": "nope"}, "tag 'nope' not found"),
        ({"branch": " "}, "option branch is empty"),
    ],
    ids=str,
)
def test_options_without_a_version_are_refused(
    read: Read, path: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(path, **options).collect()


def test_writing_to_a_missing_branch_is_refused(spark: Any, write: Write, path: str) -> None:
    with pytest.raises(Exception, match="branch 'new' not found"):
        write(spark.range(3), path=path, branch="new")


def test_options() -> None:
    assert ReadOptions.parse({"path": "t", "BRANCH": "a/b", "version": "3"}).branch == "a/b"
    assert ReadOptions.parse({"path": "t", "version": str(2**64 - 1)}).version == 2**64 - 1
    assert WriteOptions.parse({"path": "t", "branch": "a"}).branch == "a"
    with pytest.raises(InvalidOptionError, match="exclude each other"):
        ReadOptions.parse({"path": "t", "branch": "a", "tag": "b", "version": "1"})
