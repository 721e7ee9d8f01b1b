"""Sentences of the specification about names and numbers, looked up in the files that this package
writes.

Where the sentence and pylance differ, the file has to be as pylance's;
docs/reference/specification.md says so.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.manifest.codec import decode
from tests.support.tables.damaged import newest_manifest

ROWS = 12_000


def manifest(path: Path) -> table_pb2.Manifest:
    file = newest_manifest(path)
    return decode(file.read_bytes(), str(file)).to_proto()


def table(count: int = ROWS) -> pa.Table:
    words = pa.array([f"w{number}" for number in range(count)], pa.string())
    return pa.table({"i": np.arange(count), "s": words})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write two fragments of 6,000 rows. The second version has few deleted rows in one fragment,
    many in the other.
    """
    lance_spark.write_dataset(
        table(), tmp_path, max_rows_per_file=6_000, enable_stable_row_ids=True
    ).delete([("i", "not in", [7, *range(11_900, 12_000)]), ("i", ">", 5_999)]).delete(
        [("i", "in", [7, 9])]
    )
    return tmp_path


def test_deletion_files(path: Path) -> None:
    first, second = manifest(path).fragments
    # _deletions/{fragment_id}-{read_version}-{id}.{arrow|bin}; read_version is the version that it
    # was created off of.
    names = {
        f"{first.id}-2-{first.deletion_file.id}.arrow",
        f"{second.id}-1-{second.deletion_file.id}.bin",
    }
    assert {file.name for file in (path / "_deletions").iterdir()} == names
    # "One batch and one column": of uint32, as pylance writes it, where the text says Int32.
    with pa.ipc.open_file(next((path / "_deletions").glob("*.arrow"))) as reader:
        assert (reader.num_record_batches, reader.schema.types) == (1, [pa.uint32()])
        assert sorted(reader.get_batch(0).column(0).to_pylist()) == [7, 9]
    bitmap = BitMap.deserialize(next((path / "_deletions").glob("*.bin")).read_bytes())
    assert list(bitmap) == list(range(5_900))
    # "The number of rows that are marked as deleted", "original rows in the fragment, not counting
    # deletions".
    assert first.deletion_file.num_deleted_rows == 2
    assert second.deletion_file.num_deleted_rows == 5_900
    assert [first.physical_rows, second.physical_rows] == [6_000, 6_000]
    assert lance.dataset(str(path)).count_rows() == ROWS - 5_902


def test_manifests_and_transactions(path: Path) -> None:
    # _versions/{u64::MAX - version:020}.manifest
    names = {f"{2**64 - 1 - version:020}.manifest" for version in (1, 2, 3)}
    assert {file.name for file in (path / "_versions").glob("*.manifest")} == names
    message = manifest(path)
    # "{read_version}-{uuid}.txn", relative to {root}/_transactions; decimal without padding,
    # hyphens.
    match = re.fullmatch(r"2-([0-9a-f-]{36})\.txn", message.transaction_file)
    assert match
    assert str(uuid.UUID(match[1])) == match[1]
    data = (path / "_transactions" / message.transaction_file).read_bytes()
    transaction = transaction_pb2.Transaction.FromString(data)
    assert (transaction.read_version, transaction.uuid) == (2, match[1])
    assert transaction.WhichOneof("operation") == "delete"
    assert (message.version, message.tag, message.version_aux_data) == (3, "", 0)
    # "The format of the data files": "lance", and one version that all of them have.
    assert message.data_format.file_format == "lance"
    versions = {
        f"{file.file_major_version}.{file.file_minor_version}"
        for fragment in message.fragments
        for file in fragment.files
    }
    assert versions == {message.data_format.version}
    # "The next unused row id."
    assert message.next_row_id == ROWS


def test_feature_flags_are_those_of_pylance(tmp_path: Path) -> None:
    flags = []
    for name, stable in (("ours", False), ("theirs", False), ("ours stable", True)):
        path = tmp_path / name
        write = lance.write_dataset if name == "theirs" else lance_spark.write_dataset
        write(table(10), str(path), enable_stable_row_ids=stable)
        manifests = [manifest(path)]
        if name == "theirs":
            lance.dataset(str(path)).delete("i < 2")
            manifests.append(manifest(path))
            lance.dataset(str(path)).update_config({"a": "b"})
            manifests.append(manifest(path))
            lance.dataset(str(path)).optimize.compact_files(materialize_deletions_threshold=0.0)
        else:
            lance_spark.open_dataset(path).delete([("i", "<", 2)])
            manifests.append(manifest(path))
            lance_spark.open_dataset(path).update_config({"a": "b"})
            manifests.append(manifest(path))
            lance_spark.open_dataset(path).compact_files(materialize_deletions_threshold=0.0)
        manifests.append(manifest(path))
        flags.append(
            [(message.reader_feature_flags, message.writer_feature_flags) for message in manifests]
        )
    ours, theirs, stable_flags = flags
    assert ours == theirs
    # 1: deletion files are present. 2: row ids are stable.
    assert [reader & 3 for reader, _ in ours] == [0, 1, 1, 0]
    assert [reader & 3 for reader, _ in stable_flags] == [2, 3, 3, 2]


def test_max_fragment_id(tmp_path: Path) -> None:
    # "For a single fragment, will be zero. For no fragments, will be absent." Ids are not given
    # again.
    histories = []
    for name in ("ours", "theirs"):
        path = tmp_path / name
        write = lance.write_dataset if name == "theirs" else lance_spark.write_dataset
        manifests = []
        write(table(0), str(path))
        manifests.append(manifest(path))
        write(table(4), str(path), mode="append")
        manifests.append(manifest(path))
        write(table(4), str(path), mode="append")
        if name == "theirs":
            lance.dataset(str(path)).delete("i >= 0")
        else:
            lance_spark.open_dataset(path).delete([])
        manifests.append(manifest(path))
        write(table(4), str(path), mode="append")
        manifests.append(manifest(path))
        histories.append(
            [
                (
                    message.HasField("max_fragment_id"),
                    message.max_fragment_id,
                    [f.id for f in message.fragments],
                )
                for message in manifests
            ]
        )
    assert histories[0] == histories[1]
    assert histories[0][:2] == [(False, 0, []), (True, 0, [0])]
    assert histories[0][2:] == [(True, 1, []), (True, 2, [2])]


def test_row_ids_are_in_the_order_of_rows(path: Path) -> None:
    # Rows that move keep their ids; the sequence is the inline bytes of `RowIdSequence`.
    ours = lance_spark.open_dataset(path)
    ours.update({"s": "new"}, [("i", "in", [3, 11_950])])
    for fragment in manifest(path).fragments:
        assert fragment.WhichOneof("row_id_sequence") == "inline_row_ids"
    rows = lance.dataset(str(path)).to_table(columns=["i", "s", "_rowid"])
    assert rows["i"].to_pylist() == rows["_rowid"].to_pylist()
    assert rows.filter(pa.compute.equal(rows["s"], "new"))["_rowid"].to_pylist() == [3, 11_950]
    # Shuffled ids: compaction keeps them in the order of the rows.
    ours = lance_spark.open_dataset(path)
    compacted, _ = ours.compact_files(materialize_deletions_threshold=0.0)
    compacted_rows = lance.dataset(str(path)).to_table(columns=["i", "_rowid"])
    assert compacted_rows["i"].to_pylist() == compacted_rows["_rowid"].to_pylist()
    lance.dataset(str(path)).validate()
    compacted.validate()


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_fields_and_columns_of_data_files(tmp_path: Path, version: str) -> None:
    data = pa.table(
        {"p": [{"x": 1, "y": "a"}], "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}
    )
    for name, write in (("ours", lance_spark.write_dataset), ("theirs", lance.write_dataset)):
        write(data, str(tmp_path / name), data_storage_version=version)
    (ours,), (theirs,) = (manifest(tmp_path / name).fragments for name in ("ours", "theirs"))
    (ours_file,), (theirs_file,) = ours.files, theirs.files
    assert list(ours_file.fields) == list(theirs_file.fields)
    assert list(ours_file.column_indices) == list(theirs_file.column_indices)
    # "If the data file is version 1 then this property will be empty", "must be sorted".
    assert bool(ours_file.column_indices) == (version != "0.1")
    assert list(ours_file.fields) == sorted(ours_file.fields)
    shown = [index for index in ours_file.column_indices if index >= 0]
    assert len(shown) == len(set(shown))
    assert ours_file.file_size_bytes == (tmp_path / "ours" / "data" / ours_file.path).stat().st_size


def test_tags_and_branches(path: Path) -> None:
    ours = lance_spark.open_dataset(path)
    ours.tags.create("v1", 1)
    ours.create_branch("feature/x").delete([("i", "==", 1)])
    assert [file.name for file in (path / "_refs" / "tags").iterdir()] == ["v1.json"]
    (branch,) = (path / "_refs" / "branches").iterdir()
    assert branch.suffix == ".json"
    # The manifests of a branch are below tree/, and refer to files of the main branch by a base
    # path.
    root = path / "tree" / "feature" / "x"
    assert {folder.name for folder in root.iterdir()} >= {"_versions", "_deletions"}
    message = manifest(root)
    assert message.branch == "feature/x"
    assert {base.path for base in message.base_paths} == {str(path)}
    theirs = lance.dataset(str(path))
    assert theirs.tags.list()["v1"]["version"] == 1
    assert theirs.checkout_version(("feature/x", None)).count_rows() == ours.count_rows() - 1


def test_empty_strings_of_version_0_1_are_null(tmp_path: Path) -> None:
    # "If offsets[i] == offsets[i + 1], we treat the i-th value as Null."
    lance.write_dataset(pa.table({"s": ["", "a"]}), str(tmp_path), data_storage_version="0.1")
    for dataset in (lance.dataset(str(tmp_path)), lance_spark.open_dataset(tmp_path)):
        assert dataset.to_table()["s"].to_pylist() == [None, "a"]
    with pytest.raises(lance_spark.LanceError, match="would be read as null"):
        lance_spark.write_dataset(pa.table({"s": [""]}), tmp_path / "t", data_storage_version="0.1")


def test_page_tables_of_version_0_1(tmp_path: Path) -> None:
    # Every field has a run of <position, length>. For a struct, the length is 0.
    data = pa.table({"a": np.arange(2_000), "p": [{"x": number} for number in range(2_000)]})
    lance_spark.write_dataset(data, tmp_path, data_storage_version="0.1")
    (file,) = (tmp_path / "data").iterdir()
    raw = file.read_bytes()
    assert raw[-4:] == b"LANC"
    position = int.from_bytes(raw[-16:-8], "little")
    length = int.from_bytes(raw[position : position + 4], "little")
    metadata = file_pb2.Metadata.FromString(raw[position + 4 : position + 4 + length])
    assert list(metadata.batch_offsets) == [0, 1_024, 2_000]
    pages = np.frombuffer(raw, "<i8", 3 * 2 * 2, metadata.page_table_position).reshape(3, 2, 2)
    assert pages[:, :, 1].tolist() == [[1_024, 976], [0, 0], [1_024, 976]]
    values = np.frombuffer(raw, "<i8", 976, int(pages[2, 1, 0]))
    assert values.tolist() == list(range(1_024, 2_000))
