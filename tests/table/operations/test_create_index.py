"""CreateIndex, and indexes beside other operations, by pylance and this package in both orders."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path

import lance
import pytest
from lance.dataset import Index, IndexFile
from pyroaring import BitMap

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CommitConflictError
from lance_spark.mutations.indexes.existing import drop_index
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import open_table
from lance_spark.table.operations.indexes import CreateIndex
from lance_spark.table.operations.registry import operation_of
from tests.support.tables.indexed import copy
from tests.table.operations.index_tables import table


def segments(uri: str) -> list[table_pb2.IndexMetadata]:
    return list(indexes.section_of(open_table(uri).manifest).indices)


def another(uri: str, index: table_pb2.IndexMetadata, name: str) -> table_pb2.IndexMetadata:
    """Return a copy of a segment with another id and copied files."""
    new = table_pb2.IndexMetadata()
    new.CopyFrom(index)
    new.uuid.uuid = uuid.uuid4().bytes
    new.name = name
    folder = f"{uri}/_indices"
    shutil.copytree(f"{folder}/{indexes.uuid_of(index)}", f"{folder}/{indexes.uuid_of(new)}")
    return new


def as_pylance(index: table_pb2.IndexMetadata) -> Index:
    return Index(
        uuid=indexes.uuid_of(index),
        name=index.name,
        fields=list(index.fields),
        dataset_version=index.dataset_version,
        fragment_ids=set(BitMap.deserialize(index.fragment_bitmap)),
        index_version=index.index_version,
        files=[IndexFile(file.path, file.size_bytes) for file in index.files],
        index_details=(index.index_details.type_url, index.index_details.value),
    )


def commit_ours(
    uri: str,
    new: list[table_pb2.IndexMetadata],
    removed: list[table_pb2.IndexMetadata],
    version: int,
) -> None:
    base = open_table(uri, version=version)
    operation = CreateIndex(tuple(new), tuple(removed))
    commit(base.store, Transaction.new(version, operation), base.manifest)


def commit_theirs(
    uri: str,
    new: list[table_pb2.IndexMetadata],
    removed: list[table_pb2.IndexMetadata],
    version: int,
) -> None:
    operation = lance.LanceOperation.CreateIndex(
        [as_pylance(item) for item in new], [as_pylance(item) for item in removed]
    )
    lance.LanceDataset.commit(uri, operation, read_version=version)


COMMITS = {"ours": commit_ours, "pylance": commit_theirs}


@pytest.mark.parametrize("writer", COMMITS)
def test_add_replace_and_drop_segments(tmp_path: Path, writer: str) -> None:
    uri = table(tmp_path / "table")
    (first,) = segments(uri)
    put = COMMITS[writer]
    second = another(uri, first, "x")
    put(uri, [second], [], 5)
    assert [segment.uuid.uuid for segment in segments(uri)] == [first.uuid.uuid, second.uuid.uuid]
    put(uri, [second], [], 6)
    assert [segment.uuid.uuid for segment in segments(uri)] == [first.uuid.uuid, second.uuid.uuid]
    third = another(uri, first, "x")
    put(uri, [third], [first, second], 7)
    assert [segment.uuid.uuid for segment in segments(uri)] == [third.uuid.uuid]
    scan = lance.dataset(uri).scanner(filter="a = 13")
    assert "ScalarIndex" in scan.explain_plan()
    assert scan.to_table().num_rows == 1
    put(uri, [], [third], 8)
    assert segments(uri) == []


# Removed or new segments of the first and second commit, and whether the second commit is
# compatible.
PAIRS: dict[str, tuple[str, str, bool]] = {
    "replace, replace": ("replace x", "replace x", False),
    "replace, add": ("replace x", "add x", False),
    "add, add": ("add x", "add x", False),
    "add, drop": ("add x", "drop x", False),
    "drop, drop": ("drop x", "drop x", True),
    "drop, replace": ("drop x", "replace x", False),
    "add, another name": ("add x", "add y", True),
    "drop, another name": ("drop x", "add y", True),
    "another name, drop": ("add y", "drop x", True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(tmp_path: Path, name: str) -> None:
    """The outcome is the same if pylance or this package commits second."""
    first, second, fits = PAIRS[name]
    original = table(tmp_path / "original")
    (index,) = segments(original)

    def parts(
        uri: str, change: str
    ) -> tuple[list[table_pb2.IndexMetadata], list[table_pb2.IndexMetadata]]:
        action, target = change.split()
        new = [] if action == "drop" else [another(uri, index, target)]
        return new, [] if action == "add" else [index]

    outcomes = []
    for number, (client, other_client) in enumerate([("ours", "pylance"), ("pylance", "ours")]):
        uri = copy(original, tmp_path / str(number))
        COMMITS[client](uri, *parts(uri, first), 5)
        change = parts(uri, second)
        try:
            COMMITS[other_client](uri, *change, 5)
            outcomes.append("fits")
        except CommitConflictError as error:
            outcomes.append("retryable" if error.retryable else "incompatible")
        except OSError as error:
            outcomes.append("retryable" if "Retryable" in str(error) else str(error))
    assert outcomes == ["fits" if fits else "retryable"] * 2


#: Compactions whose transactions have more than the groups of `tests/interop/conflict_changes.py`,
#: and whether a new index of the old fragments fits.
BETWEEN: dict[str, tuple[Callable[[str], object], bool]] = {
    "compaction": (
        lambda uri: lance.dataset(uri).optimize.compact_files(),
        False,
    ),
    "compaction that defers": (
        lambda uri: lance.dataset(uri).optimize.compact_files(defer_index_remap=True),
        True,
    ),
    "our compaction": (lambda uri: open_dataset(uri).compact_files(), False),
    "our compaction that defers": (
        lambda uri: open_dataset(uri).compact_files(defer_index_remap=True),
        True,
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_rebase_onto_a_compaction(tmp_path: Path, name: str) -> None:
    change, fits = BETWEEN[name]
    uri = table(tmp_path / "ours")
    new = another(uri, segments(uri)[0], "y")
    pylance_copy = copy(uri, tmp_path / "pylance")
    for table_uri in (uri, pylance_copy):
        change(table_uri)
    if fits:
        commit_ours(uri, [new], [], 5)
        commit_theirs(pylance_copy, [new], [], 5)
        assert [segment.name for segment in segments(uri)] == [
            segment.name for segment in segments(pylance_copy)
        ]
        for query in ("a = 5", "a = 77", "a = 13"):
            expected = lance.dataset(uri).scanner(filter=query, use_scalar_index=False)
            assert lance.dataset(uri).to_table(filter=query) == expected.to_table()
    else:
        with pytest.raises(CommitConflictError):
            commit_ours(uri, [new], [], 5)
        with pytest.raises(OSError, match=r"conflict|incompatible"):
            commit_theirs(pylance_copy, [new], [], 5)


def test_columns_rewritten_by_another_client_are_not_covered(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    new = another(uri, segments(uri)[0], "y")
    open_dataset(uri).update({"a": 500}, [("a", "==", 15)], mode="columns")
    commit_ours(uri, [new], [], 5)
    result = {
        segment.name: set(indexes.fragment_bitmap(segment) or ()) for segment in segments(uri)
    }
    assert result == {"x": {0, 2, 3}, "y": {0, 2, 3}}
    assert lance.dataset(uri).count_rows("a = 500") == 1
    assert lance.dataset(uri).count_rows("a = 15") == 0


def new_values(uri: str) -> None:
    open_dataset(uri).update({"a": 500}, [("a", "==", 15)], mode="columns")


def compaction(uri: str) -> None:
    open_dataset(uri).compact_files(defer_index_remap=True)


def pylances_compaction(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files(defer_index_remap=True)


@pytest.mark.parametrize("move", [compaction, pylances_compaction])
@pytest.mark.parametrize("first", ["values", "move"])
def test_columns_rewritten_in_fragments_that_moved(
    tmp_path: Path, move: Callable[[str], None], first: str
) -> None:
    """Bitmaps and the reuse index know the addresses of rows, but not which rows have new
    values.
    """
    uri = table(tmp_path / "table")
    new = another(uri, segments(uri)[0], "y")
    for change in (new_values, move) if first == "values" else (move, new_values):
        change(uri)
    with pytest.raises(CommitConflictError, match="build it again") as caught:
        commit_ours(uri, [new], [], 5)
    assert caught.value.retryable
    for value, rows in ((500, 1), (15, 0), (13, 1)):
        assert lance.dataset(uri).count_rows(f"a = {value}") == rows


def test_other_columns_rewritten_in_fragments_that_moved(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    new = another(uri, segments(uri)[0], "y")
    open_dataset(uri).update({"b": 500}, [("a", "==", 15)], mode="columns")
    compaction(uri)
    commit_ours(uri, [new], [], 5)
    assert [segment.name for segment in segments(uri) if not indexes.is_system(segment)] == [
        "x",
        "y",
    ]
    assert lance.dataset(uri).count_rows("a = 15") == 1


def test_index_of_a_dropped_field_is_refused(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    new = another(uri, segments(uri)[0], "y")
    lance.dataset(uri).drop_columns(["a"])
    with pytest.raises(CommitConflictError, match="dropped"):
        commit_ours(uri, [new], [], 5)


def test_round_trip(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    lance.dataset(uri).create_scalar_index("a", "BITMAP", name="x", replace=True)
    lance.dataset(uri).drop_index("x")
    for version in (5, 6, 7):
        section = open_table(uri, version=version).manifest.transaction_section
        message = transaction_pb2.Transaction.FromString(section or b"")
        again = transaction_pb2.Transaction(read_version=message.read_version, uuid=message.uuid)
        operation_of(message, "test").write_to(again)
        assert again == message


def test_drop_of_an_index_that_was_remapped(tmp_path: Path) -> None:
    """The segment got another id by a compaction. The drop must not miss it."""
    uri = table(tmp_path / "table")
    base = open_table(uri)
    lance.dataset(uri).optimize.compact_files()
    (before,), (after,) = indexes.section_of(base.manifest).indices, segments(uri)
    assert before.uuid != after.uuid
    with pytest.raises(CommitConflictError, match="rewritten") as caught:
        drop_index(base, "x", CommitOptions())
    assert caught.value.retryable
    drop_index(open_table(uri), "x", CommitOptions())
    assert not segments(uri)


def test_the_helper_passes_all_fields_of_a_segment(tmp_path: Path) -> None:
    """The helper of these tests passes all fields of a segment to pylance."""
    uri = table(tmp_path / "table")
    (index,) = segments(uri)
    shown = lance.dataset(uri).read_transaction(5).operation.new_indices[0]
    assert replaced(as_pylance(index), created_at=None, files=None) == replaced(
        shown, created_at=None, files=None
    )
