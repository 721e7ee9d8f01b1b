"""Writes that an overwrite overtakes: committed after it if their files fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, StorageError
from lance_spark.mutations.rewrite.writers import RewrittenRows
from lance_spark.mutations.rows.update import commit_moved_rows
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write import WriteJob, WriteStrategy, begin_write, commit_on_newest
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import open_table

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
MORE = pa.table({"id": [3], "v": ["c"]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    write_dataset(ROWS, str(tmp_path / "t"))
    return str(tmp_path / "t")


def planned(path: str, mode: Any, **options: Any) -> tuple[WriteJob, list[Fragment]]:
    """Write rows without a commit."""
    job = begin_write(path, MORE.schema, mode=mode, **options)
    writer = job.writer()
    for batch in MORE.to_batches():
        writer.write(batch)
    return job, list(writer.finish())


def rows_of(path: str) -> list[dict[str, Any]]:
    dataset = lance.dataset(path)
    dataset.validate()
    rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
    return rows


@pytest.mark.parametrize("by_pylance", [False, True])
def test_an_append_on_top_of_an_overwrite(path: str, by_pylance: bool) -> None:
    job, fragments = planned(path, "append")
    new = pa.table({"id": [9], "v": ["z"]})
    if by_pylance:
        lance.write_dataset(new, path, mode="overwrite")
    else:
        write_dataset(new, path, mode="overwrite")
    assert commit_on_newest(job, fragments).version == 3
    assert rows_of(path) == [{"id": 9, "v": "z"}, {"id": 3, "v": "c"}]


def test_an_append_on_top_of_a_restored_version(path: str) -> None:
    write_dataset(MORE, path, mode="append")
    job, fragments = planned(path, "append")
    lance.dataset(path, version=1).restore()
    commit_on_newest(job, fragments)
    assert rows_of(path) == [*ROWS.to_pylist(), *MORE.to_pylist()]


def test_an_overwrite_on_top_of_an_overwrite(path: str) -> None:
    job, fragments = planned(path, "overwrite")
    lance.write_dataset(pa.table({"other": [1.5]}), path, mode="overwrite")
    commit_on_newest(job, fragments)
    assert rows_of(path) == MORE.to_pylist()


@pytest.mark.parametrize(
    "new",
    [
        pa.table({"id": [9], "w": ["z"]}),
        pa.table({"v": ["z"], "id": [9]}),
        pa.table({"id": [9], "v": [1]}),
        pa.table({"id": [9]}),
        pa.table({"id": [9], "v": ["z"]}).cast(
            pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
        ),
    ],
    ids=["another name", "another order", "another type", "fewer", "not null"],
)
def test_files_that_do_not_fit_are_refused_and_deleted(path: str, new: pa.Table) -> None:
    job, fragments = planned(path, "append")
    lance.write_dataset(new, path, mode="overwrite")
    with pytest.raises(
        CommitConflictError, match=r"append is incompatible with version 2 \(overwrite\)"
    ):
        commit_on_newest(job, fragments)
    assert rows_of(path) == new.to_pylist()
    names = {file.path for fragment in fragments for file in fragment.files}
    assert not names & {entry.name for entry in (Path(path) / "data").iterdir()}


def test_no_retries_are_none(path: str) -> None:
    job, fragments = planned(path, "append", commit_retries=0)
    assert job.strategy.rebased(job) is None
    lance.write_dataset(ROWS, path, mode="overwrite")
    with pytest.raises(CommitConflictError, match="overwrite"):
        commit_on_newest(job, fragments)
    assert rows_of(path) == ROWS.to_pylist()


class NeverRebased(WriteStrategy):
    """A write that plans again by itself, and then gives up."""

    def commit(self, job: WriteJob, fragments: Any, options: Any) -> Any:
        raise CommitConflictError("overtaken", retryable=True)


def test_a_write_that_is_never_rebased_reads_nothing_after_a_conflict(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = planned(path, "append")
    requests: list[str] = []
    for name in ("read_bytes", "open", "list_names", "exists"):
        monkeypatch.setattr(ObjectStore, name, lambda *_, name=name: requests.append(name))
    with pytest.raises(CommitConflictError, match="overtaken"):
        commit_on_newest(job.with_strategy(NeverRebased()), [])
    assert requests == []


@pytest.mark.parametrize("mode", ["append", "overwrite", "create"])
def test_files_on_the_disk_of_another_machine_are_not_committed(
    path: str, tmp_path: Path, mode: str
) -> None:
    """A task of a cluster writes to the path on its own machine."""
    target = str(tmp_path / "new") if mode == "create" else path
    job, fragments = planned(target, mode)
    (Path(target) / "data" / fragments[0].files[0].path).unlink()
    with pytest.raises(StorageError, match="all machines of the cluster"):
        commit_on_newest(job, fragments)
    if mode == "create":
        assert not list(Path(target).glob("_versions/*"))
    else:
        assert rows_of(path) == ROWS.to_pylist()


def test_inserted_rows_on_the_disk_of_another_machine_are_not_committed(path: str) -> None:
    """The same for the rows that a MERGE inserts."""
    _, (fragment,) = planned(path, "append")
    (Path(path) / "data" / fragment.files[0].path).unlink()
    table = open_table(path)
    inserted = RewrittenRows(inserted=(fragment,), num_inserted=1)
    with pytest.raises(StorageError, match="all machines of the cluster"):
        commit_moved_rows(table, [inserted], [], 1, (), CommitOptions())
    assert rows_of(path) == ROWS.to_pylist()
