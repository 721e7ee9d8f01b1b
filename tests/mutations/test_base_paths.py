"""Mutations write data files to the base path of the fragment or to target bases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError, StorageError
from lance_spark.inspect.collect import base_facts, facts_of
from lance_spark.inspect.html import as_html
from lance_spark.inspect.text import as_text
from lance_spark.mutations.compaction.task import CompactionGroupTask
from lance_spark.storage.store import ObjectStore
from lance_spark.table.paths import BasePath
from tests.support.tables.pylance_written import rows

#: 1 is a folder, 2 the root of a table that does not exist.
HOT, COLD = 1, 2


def new_table(tmp_path: Path, **options: Any) -> Dataset:
    """Write fragments of three rows: 0 and 1 in the table, 2 and 3 in "hot", 4 and 5 in "cold"."""
    path = str(tmp_path / "t")
    bases = [
        BasePath(0, str(tmp_path / "hot"), False, "hot"),
        BasePath(0, str(tmp_path / "cold"), True, "cold"),
    ]
    write_dataset(rows(0, 6), path, initial_bases=bases, max_rows_per_file=3, **options)
    write_dataset(rows(6, 6), path, mode="append", max_rows_per_file=3, target_bases=["hot"])
    return write_dataset(
        rows(12, 6), path, mode="append", max_rows_per_file=3, target_bases=["cold"]
    )


def places(dataset: Dataset) -> list[list[int | None]]:
    """Return the base paths of the data files of each fragment."""
    return [[file.base_id for file in fragment.files] for fragment in dataset.fragments]


def data_files(tmp_path: Path) -> set[str]:
    return {str(path) for path in tmp_path.rglob("*.lance") if path.is_file()}


def same_in_pylance(dataset: Dataset) -> list[dict[str, Any]]:
    theirs = lance.dataset(dataset.uri)
    theirs.validate()
    read = theirs.to_table().sort_by("id")
    assert dataset.to_table().sort_by("id") == read
    return list(read.to_pylist())


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda dataset: dataset.update(
                {"word": "x"}, [("id", "in", [1, 7, 8, 13])], mode="rows"
            ),
            [[None], [None], [HOT], [HOT], [COLD], [COLD], [None], [HOT], [COLD]],
        ),
        (
            lambda dataset: dataset.update(
                {"word": "x"}, [("id", "in", [1, 7, 8, 13])], mode="columns"
            ),
            [[None, None], [None], [HOT, HOT], [HOT], [COLD, COLD], [COLD]],
        ),
        (
            lambda dataset: dataset.add_columns({"more": lambda b: pc.add(b["id"], 1)}),
            [[None] * 2, [None] * 2, [HOT] * 2, [HOT] * 2, [COLD] * 2, [COLD] * 2],
        ),
        (
            lambda dataset: dataset.alter_columns({"path": "id", "data_type": pa.int32()}),
            [[None] * 2, [None] * 2, [HOT] * 2, [HOT] * 2, [COLD] * 2, [COLD] * 2],
        ),
        (lambda dataset: dataset.compact_files()[0], [[None], [HOT], [COLD]]),
    ],
    ids=["update rows", "update columns", "add columns", "cast", "compact"],
)
def test_fragments_stay_in_their_base(
    tmp_path: Path, stable: bool, change: Callable[[Dataset], Dataset], expected: list[Any]
) -> None:
    dataset = new_table(tmp_path, enable_stable_row_ids=stable)
    ids = dataset.to_table(["id", "_rowid"]).sort_by("id")["_rowid"]
    dataset = change(dataset)
    assert places(dataset) == expected
    assert [value["id"] for value in same_in_pylance(dataset)] == list(range(18))
    if stable:
        assert dataset.to_table(["id", "_rowid"]).sort_by("id")["_rowid"] == ids


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"target_bases": ["cold", "hot"]}, [[COLD], [HOT]]),
        ({"target_all_bases": True}, [[None], [HOT]]),
        ({"target_all_bases": False}, [[HOT], [COLD]]),
    ],
)
def test_target_bases_take_turns(
    tmp_path: Path, chosen: dict[str, Any], expected: list[Any]
) -> None:
    dataset = new_table(tmp_path).with_target_bases(**chosen)
    dataset, _ = dataset.compact_files(target_rows_per_fragment=9)
    assert places(dataset) == expected
    # The handle that a change returns keeps them.
    dataset = dataset.add_columns({"more": 1})
    assert places(dataset)[0][1] in [place for value in expected for place in value]
    assert len(same_in_pylance(dataset)) == 18


def test_the_table_itself_is_a_target(tmp_path: Path) -> None:
    dataset = new_table(tmp_path)
    dataset = write_dataset(
        rows(18, 6), dataset.uri, "append", target_bases=[dataset.uri, "hot"], max_rows_per_file=3
    )
    assert places(dataset)[-2:] == [[None], [HOT]]
    theirs = lance.write_dataset(
        rows(24, 6),
        dataset.uri,
        mode="append",
        target_bases=[dataset.uri, "hot"],
        max_rows_per_file=3,
    )
    base_ids = [
        [file.base_id for file in fragment.data_files()] for fragment in theirs.get_fragments()
    ]
    assert base_ids[-4:] == [[None], [HOT]] * 2


def test_moving_fragments(tmp_path: Path) -> None:
    dataset = new_table(tmp_path, enable_stable_row_ids=True).delete([("id", "in", [1, 13])])
    before = dataset.to_table(["id", "_rowid"]).sort_by("id")
    old_version = open_dataset(dataset.uri)
    dataset, metrics = dataset.move_fragments("cold", [0, 2, 4])
    # Fragment 4 is there already.
    assert (metrics.fragments_removed, metrics.fragments_added) == (2, 2)
    assert sorted(places(dataset), key=repr) == [[HOT], *[[COLD]] * 4, [None]]
    assert dataset.to_table(["id", "_rowid"]).sort_by("id") == before
    assert len(same_in_pylance(dataset)) == 16
    # Without a choice the next change leaves fragments where they are.
    dataset, _ = dataset.move_fragments(dataset.uri)
    assert places(dataset) == [[None]] * 6
    dataset, _ = dataset.move_fragments(str(tmp_path / "hot"))
    assert places(dataset) == [[HOT]] * 6
    unchanged, metrics = dataset.move_fragments("hot")
    assert (unchanged.version, metrics.files_added) == (dataset.version, 0)
    assert len(same_in_pylance(dataset)) == 16
    assert old_version.to_table(["id", "_rowid"]).sort_by("id") == before
    with pytest.raises(InvalidInputError, match="no fragment 99"):
        dataset.move_fragments("hot", [99])
    with pytest.raises(InvalidOptionError, match="base path 'nope' not found"):
        dataset.move_fragments("nope")


def test_a_failed_move_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = new_table(tmp_path)
    before = data_files(tmp_path)
    run = CompactionGroupTask.run

    def fail(task: CompactionGroupTask) -> Any:
        if task.fragments[0].id == 2:
            raise StorageError("the disk is full")
        return run(task)

    monkeypatch.setattr(CompactionGroupTask, "run", fail)
    with pytest.raises(StorageError, match="full"):
        dataset.move_fragments("cold")
    assert data_files(tmp_path) == before


def test_changes_of_a_clone_stay_out_of_its_source(tmp_path: Path) -> None:
    """Cleanup of the source would delete files of the clone, which no version of the source
    names.
    """
    source = lance.write_dataset(rows(0, 9), str(tmp_path / "s"), max_rows_per_file=3)
    source.shallow_clone(str(tmp_path / "c"), reference=1)
    source.create_branch("b", 1)
    before = data_files(tmp_path / "s" / "data")
    branch = open_dataset(str(tmp_path / "s"), branch="b")
    for dataset in (open_dataset(str(tmp_path / "c")), branch):
        (number,) = dataset.base_paths()
        changed = dataset.update({"word": "x"}, [("id", "==", 4)])
        changed, _ = changed.add_columns({"more": 1}).compact_files()
        assert places(changed) == [[None]]
        assert len(same_in_pylance(changed)) == 9
        with pytest.raises(InvalidOptionError, match="root of another table"):
            dataset.move_fragments(dataset.base_paths()[number].path)
        with pytest.raises(InvalidOptionError, match="root of another table"):
            write_dataset(rows(9), dataset.uri, "append", target_all_bases=False)
    assert data_files(tmp_path / "s" / "data") == before


def test_inspecting_base_paths(tmp_path: Path) -> None:
    dataset = new_table(tmp_path).delete([("id", ">=", 15)])
    root, hot, cold = base_facts(dataset._table)
    assert (root.id, root.num_fragments, root.num_files) == (None, 2, 2)
    assert (hot.id, hot.name, hot.path) == (HOT, "hot", str(tmp_path / "hot"))
    assert hot.num_bytes == sum(path.stat().st_size for path in (tmp_path / "hot").iterdir())
    assert (cold.num_fragments, cold.is_dataset_root) == (1, True)
    facts = facts_of(dataset)
    lines = as_text(facts).splitlines()
    (line,) = [line for line in lines if " cold " in line]
    assert line.split()[:4] == ["2", "cold", str(tmp_path / "cold"), "table"]
    assert "Base paths" in as_html(facts)
    plain = write_dataset(rows(0), str(tmp_path / "u"))
    assert "base paths" not in as_text(facts_of(plain))


def test_invalid_targets_are_refused(tmp_path: Path) -> None:
    dataset = new_table(tmp_path)
    with pytest.raises(InvalidOptionError, match="not both"):
        dataset.with_target_bases(["hot"], target_all_bases=True)
    with pytest.raises(InvalidInputError, match="target_bases must be a list"):
        dataset.with_target_bases("hot")
    with pytest.raises(
        InvalidOptionError, match="base path 'warm' not found; the table has 'hot', 'cold'"
    ):
        dataset.with_target_bases(["warm"]).compact_files()


def test_initial_bases_of_a_table_that_exists(tmp_path: Path) -> None:
    """A job that is repeated gives the same base paths again."""
    dataset = new_table(tmp_path)
    same = list(dataset.base_paths().values())
    again = write_dataset(rows(18), dataset.uri, "append", initial_bases=same[:1])
    assert again.count_rows() == 21
    other_bases = [BasePath(0, str(tmp_path / "other"), False, "hot")]
    with pytest.raises(InvalidOptionError, match="does not have all of them"):
        write_dataset(rows(18), dataset.uri, "append", initial_bases=other_bases)
    created = write_dataset(
        rows(0), str(tmp_path / "u"), "overwrite", initial_bases=same, target_bases=["hot"]
    )
    assert places(created) == [[HOT]]
    same_in_pylance(created)


def test_a_source_that_cannot_be_listed(tmp_path: Path) -> None:
    """A change of a clone must only read the files of its source."""
    source = lance.write_dataset(rows(0), str(tmp_path / "s"))
    source.shallow_clone(str(tmp_path / "c"), reference=1)
    clone = open_dataset(str(tmp_path / "c"))
    (base,) = clone.base_paths().values()
    listing = ObjectStore.list_names

    def refuse(store: ObjectStore, folder: str) -> list[str]:
        if store.uri == base.path:
            raise StorageError(f"{store.display}: permission denied")
        return listing(store, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectStore, "list_names", refuse)
        changed = clone.update({"word": "x"}, [("id", "==", 1)])
        with pytest.raises(StorageError, match="denied"):
            clone.move_fragments(base.path)
    assert places(changed) == [[base.id], [None]]
    assert len(same_in_pylance(changed)) == 3
