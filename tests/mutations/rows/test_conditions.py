"""Conditions of deletes and updates that are planned again after a conflict; rows that are selected
by address while other clients move them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.predicates.sql import parse_predicate
from lance_spark.scan.fragment.row_meta import with_all
from tests.support.tables.two_fragments import new_table

Change = Callable[[Dataset], Dataset]
Other = Callable[[str], object]


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    return write_dataset(pa.table({"i": range(10), "x": [0] * 10}), str(tmp_path / "t"))


def numbers() -> Iterator[int]:
    yield from range(2, 10)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.delete([("i", "not in", numbers())]), [(i, 7) for i in range(2, 10)]),
        (lambda t: t.delete([("i", "in", numbers())]), [(0, 7), (1, 7)]),
        (
            lambda t: t.update({"x": 1}, [("i", "not in", numbers())]),
            [(0, 1), (1, 1)] + [(i, 7) for i in range(2, 10)],
        ),
    ],
)
def test_iterators_of_values_are_read_once(
    table: Dataset, change: Callable[[Dataset], Dataset], expected: list[tuple[int, int]]
) -> None:
    """Another client changed the rows since the table was opened, so the change is planned
    twice.
    """
    table.update({"x": 7})
    rows_read = change(table).to_table().to_pylist()
    assert sorted((row["i"], row["x"]) for row in rows_read) == expected
    assert rows_read == open_dataset(table.uri).to_table().to_pylist()


@pytest.mark.parametrize("filters", [("i", "==", 5), [5], ["abc"]])
def test_malformed_filters_are_refused(table: Dataset, filters: Any) -> None:
    for change in (table.delete, lambda conditions: table.update({"x": 1}, conditions)):
        with pytest.raises(InvalidInputError, match="a filter must be"):
            change(filters)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(new_table(tmp_path / "t"))


def values(uri: str) -> dict[int, int]:
    """Return the values of v by id, as pylance reads them; it validates the table first."""
    dataset = lance.dataset(uri)
    dataset.validate()
    return {row["id"]: row["v"] for row in dataset.to_table(["id", "v"]).to_pylist()}


def by_sql(dataset: Dataset) -> Dataset:
    return dataset.delete([parse_predicate("_rowaddr = 2", with_all(dataset._table.schema))])


def address_of(dataset: Dataset) -> Dataset:
    return dataset.delete([("_rowaddr", "==", 2)])


def id_of(dataset: Dataset) -> Dataset:
    return dataset.delete([("id", ">", -1), ("_rowid", "in", [2])])


def fragment_of(dataset: Dataset) -> Dataset:
    return dataset.delete([("_fragid", "==", 0)])


def rows_at(dataset: Dataset) -> Dataset:
    return dataset.update({"v": 9}, [("_rowaddr", "==", 2)])


def columns_at(dataset: Dataset) -> Dataset:
    return dataset.update({"v": 9}, [("_rowaddr", "==", 2)], mode="columns")


def by_addresses(dataset: Dataset) -> Dataset:
    return dataset.delete(addresses=[2])


def by_ids(dataset: Dataset) -> Dataset:
    return dataset.delete(ids=[2, 3])


def by_positions(dataset: Dataset) -> Dataset:
    return dataset.delete([("v", "==", 0)], indices=[1, 2])


FILTERS = [by_sql, address_of, id_of, fragment_of, rows_at, columns_at]
NUMBERS = [by_addresses, by_ids, by_positions]


def compaction(uri: str) -> None:
    open_dataset(uri).compact_files()


def pylances_compaction(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files()


def update(uri: str) -> None:
    open_dataset(uri).update({"v": 7}, [("id", "==", 2)])


def update_of_all(uri: str) -> None:
    open_dataset(uri).update({"v": 7}, [("id", "<", 4)])


def pylances_update(uri: str) -> None:
    lance.dataset(uri).update({"v": "7"}, "id = 2")


def pylances_merge(uri: str) -> None:
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(pa.table({"id": [2, 8], "v": [7, 8]}))


MOVES = [compaction, pylances_compaction, update, update_of_all, pylances_update, pylances_merge]


@pytest.mark.sample(5)
@pytest.mark.parametrize("concurrent_change", MOVES)
@pytest.mark.parametrize("change", [*FILTERS, *NUMBERS])
def test_moved_rows_are_not_ignored(uri: str, change: Change, concurrent_change: Other) -> None:
    dataset = open_dataset(uri)
    concurrent_change(uri)
    before, version = values(uri), open_dataset(uri).version
    with pytest.raises(
        CommitConflictError, match=r"moved or removed by another client.*find the"
    ) as caught:
        change(dataset)
    assert not caught.value.retryable
    assert (values(uri), open_dataset(uri).version) == (before, version)


@pytest.mark.parametrize("concurrent_change", MOVES)
def test_stable_row_ids_select_rows_that_another_client_moved(
    tmp_path: Path, concurrent_change: Other
) -> None:
    for name, change in (("filter", id_of), ("ids", by_ids)):
        uri = str(new_table(tmp_path / name, enable_stable_row_ids=True))
        dataset = open_dataset(uri)
        concurrent_change(uri)
        change(dataset)
        assert 2 not in values(uri)


@pytest.mark.parametrize("change", [by_addresses, by_positions])
def test_addresses_change_with_stable_row_ids(tmp_path: Path, change: Change) -> None:
    uri = str(new_table(tmp_path / "t", enable_stable_row_ids=True))
    dataset = open_dataset(uri)
    update(uri)
    with pytest.raises(CommitConflictError, match="row 2 of version 1"):
        change(dataset)
    assert values(uri)[2] == 7


def deletion(uri: str) -> None:
    open_dataset(uri).delete([("id", "==", 2)])


def pylances_deletion(uri: str) -> None:
    lance.dataset(uri).delete("id = 2")


@pytest.mark.parametrize("concurrent_change", [deletion, pylances_deletion])
@pytest.mark.parametrize("change", [by_sql, address_of, id_of, *NUMBERS])
def test_deleted_rows_are_ignored(uri: str, change: Change, concurrent_change: Other) -> None:
    dataset = open_dataset(uri)
    concurrent_change(uri)
    change(dataset)
    assert 2 not in values(uri)
    assert open_dataset(uri).version == 3


def new_values(uri: str) -> None:
    open_dataset(uri).update({"v": 7}, [("id", "==", 2)], mode="columns")


def new_column(uri: str) -> None:
    open_dataset(uri).add_columns({"w": pa.scalar(1, pa.int64())})


def rows_elsewhere(uri: str) -> None:
    """Append rows and move them; then write new values, so that the change is planned again."""
    dataset = lance_spark.write_dataset(pa.table({"id": [8, 9], "v": [0, 0]}), uri, "append")
    dataset.update({"v": 8}, [("id", "==", 8)])
    new_values(uri)


@pytest.mark.parametrize("concurrent_change", [new_values, new_column, rows_elsewhere])
@pytest.mark.parametrize("change", [by_sql, address_of, id_of, rows_at, columns_at, by_addresses])
def test_rows_that_stay_are_found_again(uri: str, change: Change, concurrent_change: Other) -> None:
    dataset = open_dataset(uri)
    concurrent_change(uri)
    change(dataset)
    assert values(uri).get(2) in (None, 9)


def test_another_row_of_the_fragment_may_move(uri: str) -> None:
    dataset = open_dataset(uri)
    update(uri)
    new_values(uri)
    dataset.delete(addresses=[1])
    assert values(uri) == {0: 0, 2: 7, 3: 0, 4: 0, 5: 0}


def test_a_removed_version_counts_as_moved_rows(uri: str) -> None:
    """Cleanup removed the version that records whether rows moved."""
    dataset = open_dataset(uri)
    deletion(uri)
    new_values(uri)
    (manifest,) = (
        path for path in Path(uri, "_versions").glob("*.manifest") if is_version(path, 2)
    )
    manifest.unlink()
    before = values(uri)
    for change in (by_addresses, address_of):
        with pytest.raises(CommitConflictError, match="moved or removed") as caught:
            change(dataset)
        assert not caught.value.retryable
    assert values(uri) == before
    assert dataset.delete([("id", "==", 3)]).count_rows() == 4


def is_version(path: Path, version: int) -> bool:
    number = int(path.stem)
    return version in (number, 2**64 - 1 - number)
