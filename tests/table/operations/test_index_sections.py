"""Rules by which index sections follow other operations."""

from __future__ import annotations

import tracemalloc
import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.indexes.updates import FragmentGroup
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import open_table
from tests.table.operations.index_tables import fields, section, table


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
            for segment, their_segment in zip(mine.segments, their.segments, strict=True):
                assert segment.uuid == their_segment.uuid
                assert segment.fragment_ids == set(their_segment.fragment_ids)
                assert segment.dataset_version == their_segment.dataset_version_at_last_update
                assert segment.created_at == their_segment.created_at

    def test_coverage_of_millions_of_missing_fragments(self, tmp_path: Path) -> None:
        """Some kilobytes of a bitmap represent these ids. No list of them is made unless a caller
        asks.
        """
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

    def test_moved_rows_are_covered_if_all_their_old_fragments_are(self) -> None:
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

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ({1: 10, 2: 10}, {3: 20}, None),
            ({1: 10, 2: 10}, {3: 15, 4: 4}, None),
            ({1: 10, 2: 0}, {3: 15}, None),
            ({1: 10, 2: 10}, {3: 15, 4: 6}, "fragments of 21 rows from fragments of 20"),
            ({}, {3: 1}, "fragments of 1 rows from fragments of 0"),
        ],
    )
    def test_rows_come_from_old_fragments(
        self, old: dict[int, int], new: dict[int, int], message: str | None
    ) -> None:
        entry = _entry_of(list(old.items()), list(new.items()))
        if message is None:
            assert fragment_reuse.inline_content(entry) is not None
        else:
            with pytest.raises(CorruptTableError, match=message):
                fragment_reuse.inline_content(entry)

    def test_a_fragment_is_replaced_once(self) -> None:
        with pytest.raises(CorruptTableError, match="replaced a fragment twice"):
            fragment_reuse.inline_content(_entry_of([(1, 10), (1, 10)], [(2, 10)]))

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


def _entry_of(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> table_pb2.IndexMetadata:
    """Return the entry of one compaction, from ids and rows of fragments."""
    details = table_pb2.FragmentReuseIndexDetails()
    group = details.inline.legacy_versions.add().groups.add()
    for fragments, digests in ((old, group.old_fragments), (new, group.new_fragments)):
        for number, rows in fragments:
            digests.add(id=number, physical_rows=rows)
    entry = table_pb2.IndexMetadata(name=fragment_reuse.NAME)
    entry.index_details.value = details.SerializeToString()
    return entry
