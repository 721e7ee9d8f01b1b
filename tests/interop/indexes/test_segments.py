"""Segments that are built without a commit, merged, and committed, by both packages in turn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import LanceOperation
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.indexes.files import IndexFiles
from lance_spark.storage.store import ObjectStore

ROWS = 60
VECTORS = np.random.default_rng(3).standard_normal((ROWS, 4)).astype(np.float32)
CENTROIDS = VECTORS[:2].copy()
DATA = pa.table(
    {
        "id": [None if number % 7 == 0 else number for number in range(ROWS)],
        "word": [f"w{number % 5} text" for number in range(ROWS)],
        "tags": [[number % 3, number % 2] for number in range(ROWS)],
        "s": [{"x": number // 2} for number in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 4),
    }
)
#: Column, type, options, and a query that uses the index.
INDEXES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "btree": ("id", "BTREE", {}, {"filter": "id > 30"}),
    "nested": ("s.x", "BTREE", {}, {"filter": "s.x = 20"}),
    "bitmap": ("word", "BITMAP", {}, {"filter": "word = 'w1 text'"}),
    "zones": ("id", "ZONEMAP", {}, {"filter": "id = 44"}),
    "bloom": ("id", "BLOOMFILTER", {}, {"filter": "id = 44"}),
    "ngram": ("word", "NGRAM", {}, {"filter": "contains(word, 'w3')"}),
    "text": ("word", "INVERTED", {}, {"full_text_query": "w2"}),
    "flat": (
        "v", "IVF_FLAT", {"ivf_centroids": CENTROIDS, "num_partitions": 2},
        {"nearest": {"column": "v", "q": VECTORS[9], "k": 5, "nprobes": 2}},
    ),
}  # fmt: skip


def table(path: Path, **options: Any) -> lance_spark.Dataset:
    return lance_spark.write_dataset(DATA, str(path), max_rows_per_file=15, **options)


def matching_rows(dataset: Any, query: dict[str, Any]) -> list[Any]:
    rows = dataset.to_table(columns=["word", "s"], **query).select(["word", "s"])
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.sample(3)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", INDEXES)
def test_workers_build_and_one_commits(tmp_path: Path, name: str, stable: bool) -> None:
    column, index_type, options, query = INDEXES[name]
    dataset = table(tmp_path / "t", enable_stable_row_ids=stable)
    expected = None if name == "text" else matching_rows(dataset, query)
    parts = [
        dataset.create_index_uncommitted(column, index_type, fragment_ids=ids, **options)
        for ids in ([0, 1], [2])
    ]
    assert dataset.latest_version == 1
    parts = pickle.loads(pickle.dumps(parts))
    dataset = dataset.commit_existing_index_segments("i", column, parts)
    late = dataset.create_index_uncommitted(column, index_type, fragment_ids=[3], **options)
    merged = dataset.merge_existing_index_segments([parts[1], late])
    assert merged.name == late.name
    dataset = dataset.commit_existing_index_segments("i", column, [merged])
    covered = sorted(sorted(index["fragment_ids"]) for index in dataset.list_indices())
    assert covered == [[0, 1], [2, 3]]
    theirs = lance.dataset(str(tmp_path / "t"))
    own = matching_rows(dataset, query)
    assert own == matching_rows(theirs, query)
    assert expected is None or own == expected
    assert len(own) > 0
    assert theirs.to_table(filter="id > -1").num_rows == dataset.count_rows("id > -1")


@pytest.mark.parametrize("name", ["btree", "bitmap", "flat"])
def test_segments_of_pylance(tmp_path: Path, name: str) -> None:
    """pylance builds, this package merges and commits, and the other way round."""
    column, index_type, options, query = INDEXES[name]
    dataset = table(tmp_path / "t")
    expected = matching_rows(dataset, query)
    theirs = lance.dataset(str(tmp_path / "t"))
    parts = [
        client.create_index_uncommitted(column, index_type, fragment_ids=ids, **options)
        for client, ids in ((theirs, [0]), (dataset, [1]), (theirs, [2]), (dataset, [3]))
    ]
    merged = dataset.merge_existing_index_segments(parts[:2])
    dataset = dataset.commit_existing_index_segments("i", column, [merged, parts[2]])
    operation = LanceOperation.CreateIndex([_named(parts[3], "i")], [])
    dataset = lance_spark.Dataset.commit(dataset, operation, dataset.version)
    assert dataset.describe_indices()[0].num_rows_indexed == ROWS
    assert matching_rows(dataset, query) == expected
    assert matching_rows(lance.dataset(str(tmp_path / "t")), query) == expected
    # pylance commits a segment of this package as its own class.
    own = dataset.create_index_uncommitted(column, index_type, fragment_ids=[0, 1, 2], **options)
    fields = {key: getattr(own, key) for key in own.__dataclass_fields__}
    fields["files"] = [lance.IndexFile(file.path, file.size_bytes) for file in own.files]
    newest = lance.dataset(str(tmp_path / "t"))
    fields["fragment_ids"] = set(own.fragment_ids)
    newest.commit_existing_index_segments("i", column, [lance.Index(**fields)])
    assert matching_rows(newest, query) == expected
    assert matching_rows(lance_spark.open_dataset(str(tmp_path / "t")), query) == expected


def _named(index: Any, name: str) -> Any:
    fields = {key: getattr(index, key) for key in index.__dataclass_fields__}
    return type(index)(**{**fields, "name": name})


def test_removed_segments(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    part = dataset.create_index_uncommitted("id", "BTREE", "i", fragment_ids=[0])
    dataset = dataset.commit_existing_index_segments("i", "id", [part])
    operation = LanceOperation.CreateIndex([], [part])
    dataset = lance_spark.Dataset.commit(dataset, operation, dataset.version)
    assert dataset.list_indices() == []


def test_rows_that_changed_since_the_build(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    part = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0, 1])
    other = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[2])
    dataset = dataset.insert(DATA)
    dataset = dataset.commit_existing_index_segments("i", "id", [part])
    rewritten = dataset.update({"id": 1000}, "id = 31", mode="columns")
    dataset = rewritten.commit_existing_index_segments("j", "id", [other])
    # The rewritten column is not covered.
    by_name = {index["name"]: sorted(index["fragment_ids"]) for index in dataset.list_indices()}
    assert by_name == {"i": [0, 1], "j": []}
    for client in (dataset, lance.dataset(str(tmp_path / "t"))):
        assert client.count_rows("id = 1000") == 2
        assert client.count_rows("id = 31") == 0
    part = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0])
    moved, _ = dataset.compact_files(target_rows_per_fragment=200)
    with pytest.raises(CommitConflictError):
        moved.commit_existing_index_segments("k", "id", [part])


def test_refused_segments(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    part = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0])
    again = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0, 1])
    words = dataset.create_index_uncommitted("word", "BTREE", fragment_ids=[2])
    taken = dataset.create_scalar_index("word", "BTREE", "taken")
    for call in (
        lambda: dataset.create_index_uncommitted("id", "BTREE"),
        lambda: dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[9]),
        lambda: dataset.create_index_uncommitted("zz", "BTREE", fragment_ids=[0]),
        lambda: dataset.create_index_uncommitted(["id", "word"], "BTREE", fragment_ids=[0]),
        lambda: dataset.merge_existing_index_segments([]),
        lambda: dataset.merge_existing_index_segments([part, words]),
        lambda: dataset.merge_existing_index_segments([part, again]),
        lambda: dataset.merge_existing_index_segments(["x"]),
        lambda: dataset.commit_existing_index_segments("i", "id", []),
        lambda: dataset.commit_existing_index_segments("i", "id", [part, again]),
        lambda: dataset.commit_existing_index_segments("i", "id", [words]),
        lambda: dataset.commit_existing_index_segments("", "id", [part]),
        lambda: taken.commit_existing_index_segments("taken", "id", [part]),
    ):
        with pytest.raises(InvalidInputError):
            call()
    theirs = lance.dataset(str(tmp_path / "t"))
    staged = theirs.create_index_uncommitted("word", "INVERTED", fragment_ids=[0])
    with pytest.raises(UnsupportedFeatureError, match="is not finished"):
        dataset.commit_existing_index_segments("i", "word", [staged])


def test_fragments_without_vectors(tmp_path: Path) -> None:
    """pylance reads the files of all segments of an index, also of one that has no rows."""
    column = pa.array([None] * 30 + VECTORS.tolist(), pa.list_(pa.float32(), 4))
    data = pa.table({"id": range(len(column)), "v": column})
    # An index without rows has no files.
    dataset = lance_spark.write_dataset(data[:30], str(tmp_path / "t"))
    dataset = dataset.create_index("v", "IVF_FLAT", "i")
    dataset = dataset.insert(data[30:])
    theirs = lance.dataset(str(tmp_path / "t"))
    for client in (dataset, theirs):
        with pytest.raises((InvalidInputError, RuntimeError)):
            client.create_index_uncommitted(
                "v", "IVF_FLAT", "i", fragment_ids=[0], num_partitions=2
            )
    part = dataset.create_index_uncommitted("v", "IVF_FLAT", fragment_ids=[1], num_partitions=2)
    dataset = dataset.commit_existing_index_segments("i", "v", [part])
    assert len(dataset.list_indices()) == 1
    nearest = {"column": "v", "q": VECTORS[9], "k": 5, "nprobes": 2}
    newest = lance.dataset(str(tmp_path / "t"))
    assert matching_ids(dataset, nearest) == matching_ids(newest, nearest)


def matching_ids(dataset: Any, nearest: dict[str, Any]) -> list[int]:
    table: pa.Table = dataset.to_table(columns=["id"], nearest=nearest)
    return table["id"].to_pylist()  # type: ignore[no-any-return]


def test_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of each segment has the sizes of all its files. Some stores list files late."""
    dataset = table(tmp_path / "t")
    parts = [
        dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[number])
        for number in (0, 1, 2)
    ]
    opened = []
    source = IndexFiles.source

    def counted(files: IndexFiles, name: str) -> Any:
        opened.append(name)
        return source(files, name)

    monkeypatch.setattr(IndexFiles, "source", counted)
    dataset = dataset.commit_existing_index_segments("i", "id", parts[:2])
    assert opened == []
    monkeypatch.setattr(ObjectStore, "list", lambda store, folder: [])
    dataset = dataset.commit_existing_index_segments("i", "id", parts[2:])
    assert len(opened) == len(parts[2].files)
    assert len(dataset.list_indices()) == 3


def test_segments_of_another_table(tmp_path: Path) -> None:
    """pylance commits them, and then reads of the table fail."""
    dataset, other = table(tmp_path / "t"), table(tmp_path / "o")
    branch = dataset.create_branch("b")
    for source, target in ((other, dataset), (branch, dataset), (dataset, branch)):
        part = source.create_index_uncommitted("word", "INVERTED", fragment_ids=[0])
        with pytest.raises(InvalidInputError, match="is not of this table or branch"):
            target.commit_existing_index_segments("i", "word", [part])
    part = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0])
    file = next((tmp_path / "t" / "_indices" / part.uuid).iterdir())
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(InvalidInputError, match=r"has \d+ bytes, not \d+"):
        dataset.commit_existing_index_segments("i", "id", [part])
    assert dataset.latest_version == 1


@pytest.mark.parametrize(
    ("column", "differing", "first", "second"),
    [
        ("id", "type", ("BTREE", {}), ("ZONEMAP", {})),
        ("word", "stem", ("INVERTED", {}), ("INVERTED", {"stem": False})),
        (
            "word",
            "with_position",
            ("INVERTED", {"with_position": True}),
            ("INVERTED", {"with_position": False}),
        ),
        (
            "v",
            "type",
            ("IVF_FLAT", {"ivf_centroids": CENTROIDS, "num_partitions": 2}),
            ("IVF_SQ", {"ivf_centroids": CENTROIDS, "num_partitions": 2}),
        ),
        (
            "v",
            "metric",
            ("IVF_FLAT", {"ivf_centroids": CENTROIDS, "num_partitions": 2}),
            ("IVF_FLAT", {"ivf_centroids": CENTROIDS, "num_partitions": 2, "metric": "cosine"}),
        ),
    ],
)
def test_segments_that_are_not_alike(
    tmp_path: Path,
    column: str,
    differing: str,
    first: tuple[str, dict[str, Any]],
    second: tuple[str, dict[str, Any]],
) -> None:
    """Under one name, or as one segment, they would give other answers than each other."""
    dataset = table(tmp_path / "t")
    for client in (lance.dataset(str(tmp_path / "t")), dataset):
        parts = [
            client.create_index_uncommitted(column, index_type, fragment_ids=[number], **options)
            for number, (index_type, options) in enumerate((first, second))
        ]
        with pytest.raises((InvalidInputError, ValueError, RuntimeError)):
            client.merge_existing_index_segments(parts)
    if differing != "type" or column == "v":
        with pytest.raises(InvalidInputError, match=f"must have one {differing}"):
            dataset.merge_existing_index_segments(parts)
    with pytest.raises(InvalidInputError, match=f"must have one {differing}"):
        dataset.commit_existing_index_segments("i", column, parts)
    dataset = dataset.commit_existing_index_segments("i", column, parts[:1])
    with pytest.raises(InvalidInputError, match=f"must have one {differing}"):
        dataset.commit_existing_index_segments("i", column, parts[1:])
    # In place of the other, or under another name.
    dataset = dataset.commit_existing_index_segments("j", column, parts[1:])
    assert len(dataset.list_indices()) == 2


def test_versions_that_were_cleaned_up(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    part = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0])
    dataset = dataset.delete("id = 1").delete("id = 2").delete("id = 3")
    dataset.cleanup_old_versions(retain_versions=1, delete_unverified=True)
    with pytest.raises((CommitConflictError, VersionNotFoundError)):
        dataset.commit_existing_index_segments("i", "id", [part])


def test_segment_of_rows_that_moved(tmp_path: Path) -> None:
    """A segment replaces another one that names the fragments before a compaction."""
    path = str(tmp_path / "t")
    vectors = pa.array([[float(number)] * 2 for number in range(40)], pa.list_(pa.float32(), 2))
    data = pa.table({"id": range(40), "v": vectors})
    lance_spark.write_dataset(data, path, max_rows_per_file=20)
    options: dict[str, Any] = {"num_partitions": 1}
    dataset = lance_spark.open_dataset(path).create_index("v", "IVF_FLAT", **options)
    dataset.optimize.compact_files()
    dataset = lance_spark.open_dataset(path)
    segment = dataset.create_index_uncommitted("v", "IVF_FLAT", fragment_ids=[2], **options)
    dataset.commit_existing_index_segments("v_idx", "v", [segment])
    (index,) = (
        index
        for index in lance_spark.open_dataset(path).describe_indices()
        if index.name == "v_idx"
    )
    assert [set(part.fragment_ids or ()) for part in index.segments] == [{2}]
    nearest = {"column": "v", "q": [3.0, 3.0], "k": 5}
    for current in (lance_spark.open_dataset(path), lance.dataset(path)):
        ids = current.to_table(["id", "_distance"], nearest=nearest)["id"].to_pylist()
        assert sorted(ids) == [1, 2, 3, 4, 5]


def assert_new_words(path: Path) -> None:
    """Check that an index of `word` has the values after `word = 'new'` where `s.x > 20`."""
    for dataset in (lance_spark.open_dataset(str(path)), lance.dataset(str(path))):
        for text in ("word = 'new'", "word = 'w1 text'"):
            scanned = matching_rows(dataset, {"filter": text, "use_scalar_index": False})
            assert matching_rows(dataset, {"filter": text}) == scanned, text


@pytest.mark.parametrize("merge", [False, True])
def test_segments_of_several_versions(tmp_path: Path, *, merge: bool) -> None:
    """A column is rewritten in a fragment that the oldest segment was built without."""
    path = tmp_path / "t"
    dataset = lance_spark.write_dataset(DATA.slice(0, 45), str(path), max_rows_per_file=15)
    first = dataset.create_index_uncommitted("word", "BTREE", "i", fragment_ids=[0, 1])
    dataset = lance_spark.write_dataset(DATA.slice(45), str(path), mode="append")
    dataset = lance_spark.write_dataset(DATA.slice(0, 5), str(path), mode="append")
    second = dataset.create_index_uncommitted("word", "BTREE", "i", fragment_ids=[2, 3, 4])
    dataset = dataset.update({"word": "'new'"}, "s.x > 20", mode="columns")
    assert [fragment.fragment_id for fragment in dataset.get_fragments()] == [0, 1, 2, 3, 4]
    parts = [dataset.merge_existing_index_segments([first, second])] if merge else [first, second]
    dataset = dataset.commit_existing_index_segments("i", "word", parts)
    covered = set().union(*(index["fragment_ids"] for index in dataset.list_indices()))
    # A merged segment is as old as the oldest part.
    assert covered == ({0, 1} if merge else {0, 1, 4})
    assert_new_words(path)


def test_merged_segments_of_moved_rows(tmp_path: Path) -> None:
    """Over the new fragments, nothing would show that values changed before the compaction."""
    dataset = table(tmp_path / "t")
    parts = [
        dataset.create_index_uncommitted("word", "BTREE", "i", fragment_ids=ids)
        for ids in ([0, 1], [2, 3])
    ]
    dataset = dataset.update({"word": "'new'"}, "s.x > 20", mode="columns")
    dataset, _ = dataset.compact_files(target_rows_per_fragment=30, defer_index_remap=True)
    with pytest.raises(InvalidInputError, match="a compaction has moved rows of it"):
        dataset.merge_existing_index_segments(parts)
    with pytest.raises(CommitConflictError, match="build it again"):
        dataset.commit_existing_index_segments("i", "word", parts)
