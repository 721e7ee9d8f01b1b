"""Arguments of commits by pylance's names: locks, times, places in a namespace."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import namespace
from lance_spark.dataset import LanceOperation, write_fragments
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    TableExistsError,
    TableNotFoundError,
)
from tests.support import pylance_namespace

ROWS = pa.table({"id": [1, 2, 3]})


def locked(versions: list[int]) -> Any:
    @contextmanager
    def lock(version: int) -> Iterator[None]:
        versions.append(version)
        yield

    return lock


def test_a_lock_is_held_for_each_commit(tmp_path: Path) -> None:
    versions: list[int] = []
    lock = locked(versions)
    path = str(tmp_path / "t")
    lance_spark.write_dataset(ROWS, path, commit_lock=lock)
    lance_spark.open_dataset(path, commit_lock=lock).delete("id = 1")
    fragments = write_fragments(ROWS, path)
    lance_spark.Dataset.commit(path, LanceOperation.Append(fragments), 2, lock)
    transaction = write_fragments(ROWS, path, return_transaction=True)
    made = lance_spark.Dataset.commit_batch(path, [transaction], lock)
    assert [version for version in versions if version] == [1, 2, 3, 4]
    assert made["dataset"].count_rows() == 8
    assert lance.dataset(path).count_rows() == 8


def test_an_open_table_keeps_its_lock(tmp_path: Path) -> None:
    versions: list[int] = []
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path / "t"), commit_lock=locked(versions))
    dataset.delete("id = 1")
    assert 2 in versions


def test_no_attempt_starts_after_the_time(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(ROWS, path)
    dataset.delete("id = 1")
    with pytest.raises(CommitConflictError, match=r"the time for retries, .*, is over"):
        dataset.delete("id < 3", retry_timeout=datetime.timedelta(0))
    with pytest.raises(CommitConflictError, match=r"the time for retries, .*, is over"):
        dataset.update({"id": 9}, "id < 3", retry_timeout=datetime.timedelta(0))
    assert dataset.delete("id < 3").count_rows() == 1


def test_a_commit_ends_after_its_time(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance_spark.write_dataset(ROWS, path)
    fragments = write_fragments(ROWS, path)

    @contextmanager
    def late(version: int) -> Iterator[None]:
        class CommitConflictError(Exception): ...

        if version:
            raise CommitConflictError
        yield

    with pytest.raises(CommitConflictError, match="other writers were faster 1 times"):
        lance_spark.Dataset.commit(
            path,
            LanceOperation.Append(fragments),
            1,
            late,
            commit_timeout=datetime.timedelta(0),
        )
    with pytest.raises(InvalidInputError, match="commit_timeout must be a timedelta, not int"):
        lance_spark.Dataset.commit(path, LanceOperation.Append(fragments), 1, commit_timeout=3)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_text_in_place_of_the_schema_is_the_mode(tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")
    lance_spark.write_dataset(ROWS, path, ROWS.schema)
    dataset = lance_spark.write_dataset(ROWS, path, mode)
    dataset = lance_spark.write_dataset(ROWS, path, ROWS.schema, mode)
    assert dataset.count_rows() == (9 if mode == "append" else 3)


def test_tables_of_a_namespace(tmp_path: Path) -> None:
    """Both packages write and read a table by its name, also with a namespace of this package."""
    theirs = pylance_namespace.DirectoryNamespace(root=str(tmp_path))
    own = namespace.connect("dir", {"root": str(tmp_path)})
    lance.write_dataset(ROWS, namespace_client=theirs, table_id=["a"])
    lance_spark.write_dataset(ROWS, namespace_client=theirs, table_id=["b"])
    lance_spark.write_dataset(ROWS, namespace_client=own, table_id=["c"])
    for name in "abc":
        place: dict[str, Any] = {"table_id": [name]}
        lance_spark.write_dataset(ROWS, mode="append", namespace_client=theirs, **place)
        dataset = lance_spark.open_dataset(namespace_client=own, **place)
        operation = LanceOperation.Append(write_fragments(ROWS, dataset))
        lance_spark.Dataset.commit(None, operation, 2, namespace_client=theirs, **place)
        assert lance.dataset(namespace_client=theirs, **place).count_rows() == 9
        opened = lance_spark.open_dataset(namespace_client=theirs, **place)
        assert opened.count_rows() == 9
        with pytest.raises(TableExistsError):
            lance_spark.write_dataset(ROWS, namespace_client=theirs, **place)


def test_a_table_that_was_not_written_has_no_name(tmp_path: Path) -> None:
    names = pylance_namespace.DirectoryNamespace(root=str(tmp_path))

    def broken() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise InvalidInputError("no more rows")

    with pytest.raises(InvalidInputError, match="no more rows"):
        lance_spark.write_dataset(broken(), namespace_client=names, table_id=["a"])
    with pytest.raises(TableNotFoundError):
        lance_spark.open_dataset(namespace_client=names, table_id=["a"])


def test_one_place_is_given(tmp_path: Path) -> None:
    names = pylance_namespace.DirectoryNamespace(root=str(tmp_path))
    path = str(tmp_path / "t")
    for place in (
        {},
        {"uri": path, "namespace_client": names, "table_id": ["a"]},
        {"namespace_client": names},
        {"table_id": ["a"]},
    ):
        with pytest.raises(InvalidOptionError, match=r"give either uri, .* or namespace_client"):
            lance_spark.open_dataset(**place)
    with pytest.raises(InvalidOptionError, match="must be a LanceNamespace"):
        lance_spark.open_dataset(namespace_client="x", table_id=["a"])


def test_versions_by_tag(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(ROWS, path)
    dataset.tags.create("first", 1)
    lance_spark.write_dataset(ROWS, path, mode="append")
    for package in (lance.dataset, lance_spark.open_dataset):
        assert package(path, "first").version == 1
    with pytest.raises(InvalidOptionError, match="give one tag"):
        lance_spark.open_dataset(path, "first", tag="other")


def test_cleanup_after_commits(tmp_path: Path) -> None:
    """pylance removes the versions, as the configuration says."""
    options = {"interval": 2, "older_than_seconds": 0}
    counts = []
    for name, write in (("a", lance.write_dataset), ("b", lance_spark.write_dataset)):
        path = str(tmp_path / name)
        write(ROWS, path, auto_cleanup_options=options)
        for _ in range(4):
            write(ROWS, path, mode="append")
        counts.append([version["version"] for version in lance.dataset(path).versions()])
    assert counts[0] == counts[1]
    for wrong in ({"interval": -1}, {"older": 3}, {"interval": "x"}):
        with pytest.raises(InvalidOptionError, match="auto_cleanup_options"):
            lance_spark.write_dataset(ROWS, str(tmp_path / "c"), auto_cleanup_options=wrong)


def test_optimize(tmp_path: Path) -> None:
    """`optimize` has the methods of pylance."""
    answers = []
    for name, write, opened in (
        ("a", lance.write_dataset, lance.dataset),
        ("b", lance_spark.write_dataset, lance_spark.open_dataset),
    ):
        path = str(tmp_path / name)
        write(ROWS, path, max_rows_per_file=1).create_scalar_index("id", "BTREE")
        write(ROWS, path, mode="append")
        opened(path).optimize.optimize_indices()
        opened(path).optimize.compact_files(
            target_rows_per_fragment=4, batch_size=10, num_threads=None
        )
        opened(path).optimize.enable_auto_cleanup({"interval": 5, "older_than_seconds": 60})
        config = {key: value for key, value in opened(path).config().items() if "interval" in key}
        opened(path).optimize.disable_auto_cleanup()
        opened(path).optimize.disable_auto_cleanup()
        dataset = opened(path)
        left = [key for key in dataset.config() if "auto_cleanup" in key]
        answers.append(
            (config, left, len(dataset.get_fragments()), dataset.to_table(filter="id > 1").num_rows)
        )
    assert answers[0] == answers[1]
    with pytest.raises(TypeError):
        lance_spark.open_dataset(path).optimize.compact_files(no_option=1)
