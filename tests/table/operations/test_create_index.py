"""CreateIndex, and the rules by which index sections follow other operations; pylance beside us in both orders."""

from __future__ import annotations

import shutil
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import Index, IndexFile
from pyroaring import BitMap

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.mutations.indices import drop_index
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.indexes.updates import FragmentGroup
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import open_table
from lance_spark.table.operations.metadata.create_index import CreateIndex
from lance_spark.table.operations.registry import operation_of
from tests.support.tables.indexed import copy


def table(path: Path) -> str:
    uri = str(path)
    for at in range(4):
        rows = pa.table({"a": range(at * 10, at * 10 + 10), "b": range(10)})
        lance.write_dataset(rows, uri, mode="append")
    lance.dataset(uri).create_scalar_index("a", "BTREE", name="x")
    return uri


def segments(uri: str) -> list[table_pb2.IndexMetadata]:
    return list(indexes.section_of(open_table(uri).manifest).indices)


def another(uri: str, index: table_pb2.IndexMetadata, name: str) -> table_pb2.IndexMetadata:
    """Return a copy of a segment under another id, its files copied."""
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


# Removed or new segments of the first and second commit, and whether the second fits.
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
    """Whoever commits second, we or pylance: the outcome is the same."""
    first, second, fits = PAIRS[name]
    original = table(tmp_path / "original")
    (index,) = segments(original)

    def parts(
        uri: str, change: str
    ) -> tuple[list[table_pb2.IndexMetadata], list[table_pb2.IndexMetadata]]:
        what, target = change.split()
        new = [] if what == "drop" else [another(uri, index, target)]
        return new, [] if what == "add" else [index]

    outcomes = []
    for number, (one, two) in enumerate([("ours", "pylance"), ("pylance", "ours")]):
        uri = copy(original, tmp_path / str(number))
        COMMITS[one](uri, *parts(uri, first), 5)
        change = parts(uri, second)
        try:
            COMMITS[two](uri, *change, 5)
            outcomes.append("fits")
        except CommitConflictError as error:
            outcomes.append("retryable" if error.retryable else "incompatible")
        except OSError as error:
            outcomes.append("retryable" if "Retryable" in str(error) else str(error))
    assert outcomes == ["fits" if fits else "retryable"] * 2


BETWEEN: dict[str, tuple[Callable[[str], object], bool]] = {
    "append": (
        lambda uri: write_dataset(pa.table({"a": [99], "b": [1]}), uri, "append"),
        True,
    ),
    "delete": (lambda uri: lance.dataset(uri).delete("a = 5"), True),
    "update": (lambda uri: lance.dataset(uri).update({"a": "77"}, where="a = 5"), True),
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
    "configuration": (lambda uri: lance.dataset(uri).update_config({"x": "1"}), True),
    "column": (lambda uri: lance.dataset(uri).add_columns({"c": "a + 1"}), True),
    "drop of another column": (lambda uri: lance.dataset(uri).drop_columns(["b"]), True),
    "overwrite": (
        lambda uri: lance.write_dataset(pa.table({"a": [1]}), uri, mode="overwrite"),
        False,
    ),
    "restore": (lambda uri: lance.dataset(uri, version=3).restore(), False),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_rebase_onto_another_commit(tmp_path: Path, name: str) -> None:
    change, fits = BETWEEN[name]
    uri = table(tmp_path / "ours")
    new = another(uri, segments(uri)[0], "y")
    other = copy(uri, tmp_path / "pylance")
    for one in (uri, other):
        change(one)
    if fits:
        commit_ours(uri, [new], [], 5)
        commit_theirs(other, [new], [], 5)
        assert [segment.name for segment in segments(uri)] == [
            segment.name for segment in segments(other)
        ]
        for query in ("a = 5", "a = 77", "a = 13"):
            expected = lance.dataset(uri).scanner(filter=query, use_scalar_index=False)
            assert lance.dataset(uri).to_table(filter=query) == expected.to_table()
    else:
        with pytest.raises(CommitConflictError):
            commit_ours(uri, [new], [], 5)
        with pytest.raises(OSError, match=r"conflict|incompatible"):
            commit_theirs(other, [new], [], 5)


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
    """Bitmaps and the reuse index know where the rows are, and not which of them have new values."""
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


class TestOwners:
    def test_list_and_describe(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table")
        lance.dataset(uri).create_scalar_index("b", "BITMAP")
        lance.dataset(uri).delete("a < 3")
        open_dataset(uri).compact_files()
        ours, theirs = open_dataset(uri), lance.dataset(uri)
        expected = theirs.list_indices()
        for item in expected:
            item["fragment_ids"] = set(item["fragment_ids"])
        assert ours.list_indices() == expected
        for mine, their in zip(ours.describe_indices(), theirs.describe_indices(), strict=True):
            for name in ("name", "index_type", "type_url", "num_rows_indexed", "total_size_bytes"):
                if mine.name != fragment_reuse.NAME or name != "total_size_bytes":
                    assert getattr(mine, name) == getattr(their, name), name
            assert list(mine.fields) == their.fields
            assert list(mine.field_names) == their.field_names
            for segment, other in zip(mine.segments, their.segments, strict=True):
                assert segment.uuid == other.uuid
                assert segment.fragment_ids == set(other.fragment_ids)
                assert segment.dataset_version == other.dataset_version_at_last_update
                assert segment.created_at == other.created_at

    def test_coverage_of_millions_of_missing_fragments(self, tmp_path: Path) -> None:
        """Some kilobytes of a bitmap stand for them; nobody makes a list of them unasked."""
        path = tmp_path / "table"
        dataset = open_dataset(table(path))
        before = dataset.list_indices()[0]["fragment_ids"]
        (known,) = dataset.describe_indices()
        file = min((path / "_versions").glob("*.manifest"))
        result = decode(file.read_bytes(), "m")
        section = table_pb2.IndexSection.FromString(result.index_section or b"")
        every = BitMap(range(2**23))
        every.run_optimize()
        section.indices[0].fragment_bitmap = every.serialize()
        file.write_bytes(encode(result.to_proto(), section.SerializeToString(), None))
        dataset = open_dataset(str(path))
        tracemalloc.start()
        try:
            (listed,) = dataset.list_indices()
            (described,) = dataset.describe_indices()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20
        assert len(listed["fragment_ids"]) == 2**23
        assert before < listed["fragment_ids"]
        assert described.num_rows_indexed == known.num_rows_indexed
        assert len(described.segments[0].fragment_ids) == 2**23

    def test_drop(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table")
        dataset = open_dataset(uri).drop_index("x", commit_message="not needed")
        assert dataset.list_indices() == []
        assert lance.dataset(uri).list_indices() == []
        assert lance.dataset(uri).count_rows("a = 13") == 1
        with pytest.raises(InvalidInputError, match="index 'x' not found"):
            dataset.drop_index("x")

    def test_system_indexes_in_use_cannot_be_dropped(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table")
        dataset, _ = open_dataset(uri).compact_files(defer_index_remap=True)
        with pytest.raises(InvalidInputError, match="other indexes need it"):
            dataset.drop_index(fragment_reuse.NAME)

    def test_vector_types(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "table")
        values = pa.array([float(n % 97) for n in range(8 * 512)], pa.float32())
        rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 8)})
        dataset = lance.write_dataset(rows, uri)
        options = {"num_partitions": 1}
        dataset.create_index("v", "IVF_FLAT", name="flat", **options)
        dataset.create_index("v", "IVF_HNSW_SQ", name="hnsw", **options)
        dataset.create_index("v", "IVF_PQ", name="pq", num_sub_vectors=2, **options)
        result = {index.name: index.index_type for index in open_dataset(uri).describe_indices()}
        assert result == {"flat": "IVF_FLAT", "hnsw": "IVF_HNSW_SQ", "pq": "IVF_PQ"}


def fields(*parents: int) -> list[file_pb2.Field]:
    return [file_pb2.Field(id=number, parent_id=above) for number, above in enumerate(parents)]


def section(*segments: tuple[str, list[int], list[int] | None]) -> table_pb2.IndexSection:
    result = table_pb2.IndexSection()
    for at, (name, on, covered) in enumerate(segments):
        index = result.indices.add(name=name, fields=on, dataset_version=at + 1)
        index.uuid.uuid = bytes([at]) * 16
        index.index_details.type_url = "/lance.table.BitmapIndexDetails"
        indexes.set_fragment_bitmap(index, None if covered is None else BitMap(covered))
    return result


def covered(of: table_pb2.IndexSection) -> list[set[int] | None]:
    bitmaps = [indexes.fragment_bitmap(index) for index in of.indices]
    return [None if item is None else set(item) for item in bitmaps]


class TestSections:
    def test_fields_above_and_below_are_related(self) -> None:
        # 0, 1 { 2 { 3 }, 4 }
        tree = fields(-1, -1, 1, 2, 1)
        assert indexes.related_fields(tree, [0]) == {0}
        assert indexes.related_fields(tree, [2]) == {1, 2, 3}
        assert indexes.related_fields(tree, [1]) == {1, 2, 3, 4}
        assert indexes.related_fields(tree, [3]) == {1, 2, 3}

    def test_cycles_of_fields_end(self) -> None:
        assert indexes.related_fields(fields(1, 0), [0]) == {0, 1}

    def test_pruned_where_values_changed(self) -> None:
        result = section(("a", [0], [1, 2]), ("b", [1], [1, 2]), ("c", [0], None))
        index_updates.prune_fields(result, [2], [0], fields(-1, -1))
        assert covered(result) == [{1}, {1, 2}, None]

    def test_pruned_where_files_changed(self) -> None:
        def fragment(number: int, *paths: str) -> table_pb2.DataFragment:
            files = [table_pb2.DataFile(path=p, fields=[at]) for at, p in enumerate(paths)]
            return table_pb2.DataFragment(id=number, files=files)

        result = section(("a", [0], [1, 2, 3]), ("b", [1], [1, 2, 3]))
        before = [fragment(1, "p", "q"), fragment(2, "p", "q"), fragment(3, "p", "q")]
        after = [fragment(1, "p", "q", "r"), fragment(2, "new", "q"), fragment(3, "p", "new")]
        index_updates.prune_rewritten_columns(result, before, after, fields(-1, -1, -1))
        assert covered(result) == [{1, 3}, {1, 2}]

    def test_moved_rows_are_covered_if_all_they_come_from_is(self) -> None:
        result = section(
            ("a", [0], [1, 2]), ("b", [1], [1, 2]), ("c", [1], [1]), ("z", [1], [1, 2])
        )
        result.indices[3].index_details.type_url = "/lance.table.ZoneMapIndexDetails"
        index_updates.extend_to_moved_rows(result, [9], [1, 2], [0], fields(-1, -1))
        assert covered(result) == [{1, 2}, {1, 2, 9}, {1}, {1, 2}]

    def test_segments_of_dropped_fields_are_removed(self) -> None:
        result = section(("a", [0], [1]), ("b", [5], [1]), (indexes.FRAGMENT_REUSE, [], [1]))
        index_updates.retain_relevant(result, fields(-1), [1])
        assert [index.name for index in result.indices] == ["a", indexes.FRAGMENT_REUSE]

    def test_the_oldest_segment_of_an_index_that_covers_nothing_stays(self) -> None:
        result = section(("a", [0], [7]), ("a", [0], [8]), ("b", [0], [7]), ("b", [0], [1]))
        index_updates.retain_relevant(result, fields(-1), [1])
        assert covered(result) == [{7}, {1}]

    def test_a_segment_of_unknown_coverage_stays(self) -> None:
        result = section(("a", [0], None), ("a", [0], [1]), ("a", [0], [7]))
        index_updates.retain_relevant(result, fields(-1), [1])
        assert covered(result) == [None, {1}]

    def test_groups_that_are_covered_in_part(self) -> None:
        result = section(("a", [0], [1]))
        with pytest.raises(CommitConflictError, match="covers only some"):
            index_updates.follow_compaction(
                result, [FragmentGroup((1, 2), (3,))], stable_row_ids=True
            )

    def test_damage(self) -> None:
        result = section(("a", [0], [1]))
        result.indices[0].fragment_bitmap = b"\x01\x02\x03"
        with pytest.raises(CorruptTableError, match="bitmap"):
            indexes.fragment_bitmap(result.indices[0])
        result.indices[0].uuid.uuid = b"short"
        with pytest.raises(CorruptTableError, match="5 bytes"):
            indexes.uuid_of(result.indices[0])


class TestReuse:
    def test_translation_goes_through_all_versions(self) -> None:
        content = table_pb2.FragmentReuseIndexDetails.InlineContent()
        for old, new in (([1, 2], [5]), ([3, 4], [6]), ([5, 6], [7, 8])):
            group = content.legacy_versions.add().groups.add()
            for number in old:
                group.old_fragments.add(id=number)
            for number in new:
                group.new_fragments.add(id=number)
        assert set(fragment_reuse.remap_fragments(BitMap([0, 1, 2, 3, 4]), content)) == {0, 7, 8}
        assert set(fragment_reuse.remap_fragments(BitMap([0, 1, 2]), content)) == {0}
        assert set(fragment_reuse.remap_fragments(BitMap([1, 3, 9]), content)) == {9}

    def test_entries_of_another_kind_are_kept_and_not_extended(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table")
        opened = open_table(uri)
        result = indexes.section_of(opened.manifest)
        entry = result.indices.add(name=fragment_reuse.NAME, index_version=1)
        entry.uuid.uuid = bytes(16)
        with pytest.raises(UnsupportedFeatureError, match="version 1"):
            fragment_reuse.build_entry(opened.paths, result, (), 5)
        index_updates.prune_fields(result, [1], [0], opened.manifest.message.fields)
        assert covered(result)[0] == set()

    @pytest.mark.parametrize("path", ["../../x", "/etc/passwd", "a/../../../x"])
    def test_files_outside_of_the_index_are_refused(self, tmp_path: Path, path: str) -> None:
        uri = table(tmp_path / "table")
        details = table_pb2.FragmentReuseIndexDetails()
        details.external.path = path
        details.external.size = 2**60
        entry = table_pb2.IndexMetadata(name=fragment_reuse.NAME)
        entry.uuid.uuid = bytes(16)
        entry.index_details.value = details.SerializeToString()
        with pytest.raises(CorruptTableError, match="fragment reuse index"):
            fragment_reuse.read_content(open_table(uri).paths, entry)

    def test_damage(self, tmp_path: Path) -> None:
        uri = table(tmp_path / "table")
        folder = tmp_path / "table" / "_indices" / str(uuid.UUID(int=0))
        folder.mkdir()
        (folder / "details.binpb").write_bytes(b"\xff" * 10)
        details = table_pb2.FragmentReuseIndexDetails()
        details.external.path = "details.binpb"
        entry = table_pb2.IndexMetadata(name=fragment_reuse.NAME)
        entry.uuid.uuid = bytes(16)
        for size, message in ((2**60, "10 bytes"), (10, "cannot be parsed")):
            details.external.size = size
            entry.index_details.value = details.SerializeToString()
            with pytest.raises(CorruptTableError, match=message):
                fragment_reuse.read_content(open_table(uri).paths, entry)
        details.inline.legacy_versions.add().groups.add().new_fragments.add(id=2**32)
        entry.index_details.value = details.SerializeToString()
        with pytest.raises(CorruptTableError, match="4294967296 is out of range"):
            fragment_reuse.read_content(open_table(uri).paths, entry)
        with pytest.raises(CorruptTableError, match="4294967296 is out of range"):
            fragment_reuse.inline_content(entry)
        entry.index_details.value = b"\xff" * 3
        with pytest.raises(CorruptTableError, match="cannot be parsed"):
            fragment_reuse.inline_content(entry)


def test_drop_of_an_index_that_was_remapped(tmp_path: Path) -> None:
    """Its segment has another id since a compaction: the drop must not pass it over."""
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


def test_pylance_keeps_our_segments(tmp_path: Path) -> None:
    """The helper of these tests tells pylance all there is to a segment."""
    uri = table(tmp_path / "table")
    (index,) = segments(uri)
    shown = lance.dataset(uri).read_transaction(5).operation.new_indices[0]
    assert replaced(as_pylance(index), created_at=None, files=None) == replaced(
        shown, created_at=None, files=None
    )
