"""Rewrite and ReserveFragments: their manifests and conflicts, with pylance and this package in
both orders.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.task import commit_compaction, plan_compaction
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes.sections import fragment_bitmap
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.open import open_table
from lance_spark.table.operations.registry import operation_of
from lance_spark.table.operations.rewrite import ReserveFragments, Rewrite, RewriteGroup


def table(path: Path, fragments: int = 6, *, stable: bool = False) -> str:
    uri = str(path)
    for at in range(fragments):
        rows = pa.table({"a": range(at * 10, at * 10 + 10), "b": range(10)})
        lance.write_dataset(rows, uri, mode="append", enable_stable_row_ids=stable)
    return uri


def ids(uri: str) -> list[int]:
    return [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]


def values(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table()["a"].to_pylist())


def reserve(uri: str, count: int, version: int | None = None) -> int:
    base = open_table(uri, version=version)
    transaction = Transaction.new(base.version, ReserveFragments(count))
    return commit(base.store, transaction, base.manifest).version


class TestReserve:
    def test_ids_are_left_out(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table", 2)
        reserve(uri, 3)
        assert open_table(uri).manifest.max_fragment_id == 4
        lance.write_dataset(pa.table({"a": [1], "b": [1]}), uri, mode="append")
        write_dataset(pa.table({"a": [1], "b": [1]}), uri, "append")
        assert ids(uri) == [0, 1, 5, 6]

    def test_same_as_pylance_in_an_empty_table(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "table")
        lance.write_dataset(pa.table({"a": pa.array([], pa.int64())}), uri)
        reserve(uri, 2)
        assert open_table(uri).manifest.max_fragment_id == 2

    def test_reservations_on_top_of_another(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table", 1)
        assert [reserve(uri, 2, version=1) for _ in range(2)] == [2, 3]
        assert open_table(uri).manifest.max_fragment_id == 4

    def test_ids_are_used_up(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table", 1)
        reserve(uri, 2**32 - 1)
        with pytest.raises(InvalidInputError, match="used up"):
            reserve(uri, 1)


def compacted(uri: str, numbers: list[int], version: int | None = None) -> Rewrite:
    """Return the rewrite of some fragments before its commit, with reserved ids."""
    opened = open_table(uri, version=version)
    excluded = {fragment.id for fragment in opened.manifest.fragments} - set(numbers)
    options = CompactionOptions(excluded_fragment_ids=excluded)
    results = [task.run() for task in plan_compaction(opened, options)]
    new = [item.to_proto() for result in results for item in result.new]
    base = open_table(uri)
    reserve(uri, len(new))
    for at, proto in enumerate(new):
        proto.id = (base.manifest.max_fragment_id or 0) + 1 + at
    old = tuple(item for result in results for item in result.old)
    fragments = tuple(Fragment.from_proto(proto, "test") for proto in new)
    return Rewrite((RewriteGroup(old, fragments),))


def commit_on(uri: str, operation: Rewrite, version: int) -> int:
    base = open_table(uri, version=version)
    return commit(base.store, Transaction.new(version, operation), base.manifest).version


def test_fragments_are_in_the_order_of_ids_as_pylance_has_them(tmp_path: Path) -> None:
    ours, theirs = table(tmp_path / "ours"), table(tmp_path / "theirs")
    for uri in (ours, theirs):
        lance.dataset(uri).delete("a >= 20 and a < 25")
    options = {"materialize_deletions_threshold": 0.1, "target_rows_per_fragment": 10}
    open_dataset(ours).compact_files(**options)
    lance.dataset(theirs).optimize.compact_files(**options)
    assert ids(ours) == ids(theirs) == [0, 1, 3, 4, 5, 6]
    assert lance.dataset(ours).to_table() == lance.dataset(theirs).to_table()


def test_pylance_reads_the_transaction(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    open_dataset(uri).compact_files()
    newest = lance.dataset(uri)
    operation = newest.read_transaction(newest.version).operation
    assert isinstance(operation, lance.LanceOperation.Rewrite)
    (group,) = operation.groups
    assert [item.id for item in group.old_fragments] == list(range(6))
    assert [item.id for item in group.new_fragments] == [6]


def test_round_trip(tmp_path: Path) -> None:
    """pylance commits the operation that this package writes."""
    uri = table(tmp_path / "table")
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    lance.dataset(uri).optimize.compact_files()
    for version in (8, 9):
        section = open_table(uri, version=version).manifest.transaction_section
        message = transaction_pb2.Transaction.FromString(section or b"")
        again = transaction_pb2.Transaction(read_version=message.read_version, uuid=message.uuid)
        operation_of(message, "test").write_to(again)
        assert again == message


def test_early_writers_have_one_group() -> None:
    message = transaction_pb2.Transaction()
    message.rewrite.old_fragments.add(id=3)
    message.rewrite.new_fragments.add(id=9)
    operation = operation_of(message, "test")
    assert operation.removed_fragments == {3}
    assert operation.touched_fragments == {3}


def test_broken_ids_of_indexes() -> None:
    message = transaction_pb2.Transaction()
    message.rewrite.rewritten_indices.add().old_id.uuid = b"short"
    with pytest.raises(CorruptTableError, match="UUID"):
        operation_of(message, "test")


@pytest.mark.parametrize("stable", [False, True])
def test_two_rewrites_of_different_fragments(tmp_path: Path, stable: bool) -> None:
    uri = table(tmp_path / "table", stable=stable)
    version = lance.dataset(uri).version
    first, second = compacted(uri, [0, 1]), compacted(uri, [3, 4, 5], version)
    commit_on(uri, first, version)
    commit_on(uri, second, version)
    assert ids(uri) == [2, 6, 7]
    assert values(uri) == list(range(60))
    if stable:
        rows = lance.dataset(uri).scanner(with_row_id=True).to_table()["_rowid"].to_pylist()
        assert sorted(rows) == list(range(60))


def test_two_rewrites_with_a_reuse_index(tmp_path: Path) -> None:
    """The second rewrite adds to the reuse index of the first."""
    uri = table(tmp_path / "table")
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    opened = open_table(uri)
    halves = [
        plan_compaction(opened, CompactionOptions(excluded_fragment_ids=numbers))
        for numbers in ((3, 4, 5), (0, 1, 2))
    ]
    results = [[task.run() for task in tasks] for tasks in halves]
    for result in results:
        commit_compaction(opened, result)
    for first in (0, 10, 25, 55):
        scan = lance.dataset(uri).scanner(filter=f"a >= {first} and a < {first + 3}")
        assert "ScalarIndex" in scan.explain_plan()
        assert scan.to_table()["a"].to_pylist() == [first, first + 1, first + 2]
    lance.dataset(uri).optimize.optimize_indices()
    assert lance.dataset(uri).count_rows("a < 30") == 30


def test_a_changed_fragment_is_not_replaced(tmp_path: Path) -> None:
    """Without the transaction too, a deleted row does not come back."""
    uri = table(tmp_path / "table")
    operation = compacted(uri, [0, 1])
    for name in ("deletion_file", "files"):
        builder = ManifestBuilder(open_table(uri).manifest)
        result = builder.fragment(0)
        assert result is not None
        if name == "files":
            result.files[0].path = "other.lance"
        else:
            result.deletion_file.id = 7
        with pytest.raises(CommitConflictError, match="was changed"):
            operation.apply(builder)


def test_ids_must_be_reserved(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    operation = compacted(uri, [0, 1])
    (group,) = operation.groups
    for number in (2, 99):
        proto = group.new[0].to_proto()
        proto.id = number
        new = (Fragment.from_proto(proto, "test"),)
        with pytest.raises(InvalidInputError, match="reserved"):
            Rewrite((RewriteGroup(group.old, new),)).apply(
                ManifestBuilder(open_table(uri).manifest)
            )


def test_rows_of_stable_tables_bring_their_ids(tmp_path: Path) -> None:
    uri = table(tmp_path / "table", stable=True)
    operation = compacted(uri, [0, 1])
    (group,) = operation.groups
    proto = group.new[0].to_proto()
    proto.ClearField("inline_row_ids")
    new = (Fragment.from_proto(proto, "test"),)
    with pytest.raises(InvalidInputError, match="no row ids"):
        Rewrite((RewriteGroup(group.old, new),)).apply(ManifestBuilder(open_table(uri).manifest))


def test_rewritten_overlays_prune_older_indexes(tmp_path: Path) -> None:
    uri = table(tmp_path / "table")
    operation = compacted(uri, [0, 1])
    (group,) = operation.groups
    builder = ManifestBuilder(open_table(uri).manifest)
    old = group.old[0].to_proto()
    overlay = table_pb2.DataOverlayFile(committed_version=5)
    overlay.data_file.path = "overlay.lance"
    overlay.data_file.fields.append(0)
    old.overlays.append(overlay)
    for result in [builder.fragment(0)]:
        assert result is not None
        result.CopyFrom(old)
    for at, (version, field) in enumerate([(4, 0), (5, 0), (4, 1)]):
        index = builder.indices.indices.add(name=f"i{at}", fields=[field], dataset_version=version)
        index.uuid.uuid = bytes([at]) * 16
        index.index_details.type_url = "/lance.table.BTreeIndexDetails"
        index.fragment_bitmap = _bitmap([0, 1, 2])
    Rewrite((RewriteGroup((Fragment.from_proto(old, "t"), group.old[1]), group.new),)).apply(
        builder
    )
    found_bitmaps = [set(fragment_bitmap(index) or ()) for index in builder.indices.indices]
    assert found_bitmaps == [{2}, {0, 1, 2}, {0, 1, 2}]


def _bitmap(numbers: list[int]) -> bytes:
    data: bytes = BitMap(numbers).serialize()
    return data
