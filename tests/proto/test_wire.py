"""The protos know all fields that pylance writes, and parsing loses none of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import Message

from lance_spark.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    index_pb2,
    table_pb2,
    transaction_pb2,
)
from tests.proto import tables
from tests.proto.containers import (
    DataFile,
    ManifestFile,
    legacy_messages,
    parse,
    strangers,
    unpack,
    walk,
)

#: Parses all files of the fixtures.
pytestmark = pytest.mark.slow

HISTORIES = [("2.0", False), ("2.1", True), ("2.2", False), ("2.2", True)]

COMPRESSIONS_2_1 = {
    "compression.byte_stream_split",
    "compression.fixed_size_list",
    "compression.flat",
    "compression.fsst",
    "compression.general",
    "compression.inline_bitpacking",
    "compression.out_of_line_bitpacking",
    "compression.packed_struct",
    "compression.rle",
    "compression.variable",
}
COMPRESSIONS_2_2 = COMPRESSIONS_2_1 | {"compression.variable_packed_struct"}

CHOICES = {
    "2.0": {
        "array_encoding.binary",
        "array_encoding.dictionary",
        "array_encoding.fixed_size_list",
        "array_encoding.flat",
        "array_encoding.fsst",
        "array_encoding.list",
        "array_encoding.nullable",
        "array_encoding.packed_struct",
        "array_encoding.struct",
        "column_encoding.blob",
        "column_encoding.values",
        "nullability.all_nulls",
        "nullability.no_nulls",
        "nullability.some_nulls",
    },
    "2.1": COMPRESSIONS_2_1
    | {
        "details.bits_per_offset",
        "details.bits_per_value",
        "layout.blob_layout",
        "layout.constant_layout",
        "layout.full_zip_layout",
        "layout.mini_block_layout",
    },
    "2.2": COMPRESSIONS_2_2
    | {
        "details.bits_per_offset",
        "details.bits_per_value",
        "layout.constant_layout",
        "layout.full_zip_layout",
        "layout.mini_block_layout",
    },
    "2.3": COMPRESSIONS_2_2
    | {
        "addressing.bits_per_offset",
        "codec.chunked",
        "codec.constant",
        "codec.dense",
        "codec.no_values",
        "codec.sparse",
        "codec.zipped",
        "compression.constant",
        "compression.delta",
        "compression.range",
        "layer.fixed_size_list",
        "layer.list",
        "layer.validity",
    },
}
ROOTS = {
    "2.0": encodings_v2_0_pb2.ArrayEncoding,
    "2.1": encodings_v2_1_pb2.PageLayout,
    "2.2": encodings_v2_1_pb2.PageLayout,
    "2.3": encodings_v2_3_pb2.PlanarLayout,
}

OPERATIONS = {
    "append",
    "clone",
    "create_index",
    "data_replacement",
    "delete",
    "merge",
    "overwrite",
    "project",
    "reserve_fragments",
    "restore",
    "rewrite",
    "update",
    "update_bases",
    "update_config",
}
DETAILS = {
    "/lance.index.pb.BloomFilterIndexDetails",
    "/lance.index.pb.VectorIndexDetails",
    "/lance.table.BTreeIndexDetails",
    "/lance.table.BitmapIndexDetails",
    "/lance.table.InvertedIndexDetails",
    "/lance.table.LabelListIndexDetails",
    "/lance.table.NGramIndexDetails",
    "/lance.table.ZoneMapIndexDetails",
}


def choices(messages: Iterable[Message]) -> set[str]:
    """Return which member of which oneof is set anywhere in the messages."""
    chosen = set()
    for message in messages:
        for inner in walk(message):
            for oneof in inner.DESCRIPTOR.oneofs:
                member = inner.WhichOneof(oneof.name)
                if member is not None and not oneof.name.startswith("_"):
                    chosen.add(f"{oneof.name}.{member}")
    return chosen


def all_strangers(messages: Iterable[Message | None]) -> list[str]:
    return [name for message in messages if message is not None for name in strangers(message)]


def manifests(root: Path) -> list[ManifestFile]:
    return [ManifestFile.read(path) for path in sorted((root / "_versions").glob("*.manifest"))]


def test_unknown_fields_are_found_at_any_depth() -> None:
    later = b"\xf8\x7f\x01"
    manifest = table_pb2.Manifest()
    manifest.fragments.add().deletion_file.MergeFromString(later)
    page = file2_pb2.ColumnMetadata().pages.add()
    page.encoding.direct.encoding = b"\n\x1a/lance.encodings.ZoneIndex\x12\x03" + later
    transaction = transaction_pb2.Transaction()
    transaction.update_config.field_metadata_updates[3].MergeFromString(later)
    index = table_pb2.IndexMetadata()
    index.index_details.type_url = "/lance.table.BTreeIndexDetails"
    index.index_details.value = later
    file = table_pb2.DataFragment(deletion_file=table_pb2.DeletionFile(file_type=9))
    assert strangers(manifest) == ["lance.table.DeletionFile: field 2047"]
    assert strangers(page) == ["lance.encodings.ZoneIndex: field 2047"]
    assert strangers(transaction) == ["lance.table.Transaction.UpdateMap: field 2047"]
    assert strangers(index) == ["lance.table.BTreeIndexDetails: field 2047"]
    assert strangers(file) == ["lance.table.DeletionFile.file_type: value 9"]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_page_encodings(tmp_path: Path, version: str) -> None:
    (path,) = tables.write_types(tmp_path, version).glob("*.lance")
    file = DataFile.read(path)
    pages = list(file.page_encodings())
    assert all_strangers([file.descriptor, *file.columns]) == []
    assert {type(page) for page in pages} == {ROOTS[version]}
    assert (
        choices([*pages, *(unpack(column.encoding) for column in file.columns)]) >= CHOICES[version]
    )
    assert file.descriptor.length == tables.ROWS
    assert all(
        page.buffer_sizes or not page.buffer_offsets for c in file.columns for page in c.pages
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(("version", "stable_row_ids"), HISTORIES)
def test_history_of_a_table(tmp_path: Path, version: str, stable_row_ids: bool) -> None:
    roots = tables.write_history(tmp_path, version, stable_row_ids)
    operations, details, writers = set(), set(), set()
    for root in roots:
        for file in manifests(root):
            manifest = file.manifest
            assert file.transaction is not None
            assert all_strangers([manifest, file.indices, file.transaction]) == []
            txn = root / "_transactions" / manifest.transaction_file
            assert txn.read_bytes() == file.transaction_bytes
            assert manifest.data_format.version == version
            assert manifest.HasField("timestamp")
            assert all(fragment.files for fragment in manifest.fragments)
            stable = {f.WhichOneof("row_id_sequence") for f in manifest.fragments}
            assert stable <= {"inline_row_ids" if stable_row_ids else None}
            operations.add(file.transaction.WhichOneof("operation"))
            writers.add(manifest.writer_version.library)
            indices = file.indices.indices if file.indices is not None else []
            details |= {index.index_details.type_url for index in indices}
            assert {len(index.uuid.uuid) for index in indices} <= {16}
    assert operations == OPERATIONS
    assert writers == {"lance"}
    reuse = set() if stable_row_ids else {"/lance.table.FragmentReuseIndexDetails"}
    assert details == DETAILS | reuse


def test_parts_of_a_manifest_that_need_presence(tmp_path: Path) -> None:
    root, clone, branch = tables.write_history(tmp_path, "2.2", stable_row_ids=False)
    newest = manifests(clone)[0].manifest
    moved = [file.HasField("base_id") for part in newest.fragments for file in part.files]
    assert True in moved
    assert False in moved
    assert {base.is_dataset_root for base in newest.base_paths} == {False, True}
    assert manifests(branch)[0].manifest.branch == "feat/x"
    assert not manifests(root)[0].manifest.HasField("branch")
    messages = [file.transaction for file in manifests(root) if file.transaction is not None]
    first = min(messages, key=lambda message: message.read_version)
    assert first.transaction_properties == {"__lance_commit_message": "first"}
    merges = [m.update for m in messages if m.update.HasField("inserted_rows")]
    assert [merge.inserted_rows.WhichOneof("data") for merge in merges] == ["bloom"]
    cleared = [
        entry.HasField("value")
        for message in messages
        for update in message.update_config.field_metadata_updates.values()
        for entry in update.update_entries
    ]
    assert sorted(cleared) == [False, True]


def test_features_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    overlaid, logged, spilled = tables.write_rarities(tmp_path)
    files = {root: manifests(root) for root in (overlaid, logged, spilled)}
    for written in files.values():
        for file in written:
            assert all_strangers([file.manifest, file.indices, file.transaction]) == []

    (fragment,) = files[overlaid][0].manifest.fragments
    coverage = [overlay.WhichOneof("coverage") for overlay in fragment.overlays]
    assert coverage == ["shared_offset_bitmap", "field_coverage"]

    shards = list((logged / "_mem_wal").glob("*/manifest/*.binpb"))
    states = [parse(table_pb2.ShardManifest, path.read_bytes()) for path in shards]
    assert all_strangers(states) == []
    assert max(len(state.sstables) for state in states) == 3

    sequences = choices(files[spilled][0].manifest.fragments)
    assert {"row_id_sequence.column_row_ids", "row_id_sequence.inline_row_ids"} <= sequences
    assert "created_at_version_sequence.column_created_at_versions" in sequences


def test_index_files(tmp_path: Path) -> None:
    tables.write_history(tmp_path, "2.2", stable_row_ids=False)
    messages: list[Message] = []
    for name in ("index.idx", "auxiliary.idx"):
        for path in (tmp_path / "history" / "_indices").glob(f"*/{name}"):
            file = DataFile.read(path)
            metadata = file.descriptor.schema.metadata
            assert all_strangers([file.descriptor, *file.columns]) == []
            messages.append(parse(index_pb2.IVF, file.buffers[int(metadata["lance:ivf"]) - 1]))
            storage = json.loads(metadata.get("storage_metadata", b'["{}"]'))
            for text in re.findall(r'"codebook_position": *(\d+)', " ".join(storage)):
                messages.append(parse(index_pb2.Tensor, file.buffers[int(text) - 1]))
    assert all_strangers(messages) == []
    tensors = [message for message in messages if isinstance(message, index_pb2.Tensor)]
    assert tensors
    assert {tuple(tensor.shape) for tensor in tensors} == {(256, 8)}


def test_legacy_files(tmp_path: Path) -> None:
    data = pa.table(
        {
            "id": pa.array(range(3000)),
            "word": pa.array([f"word {i}" for i in range(3000)]),
            "kind": pa.array(["a", "b", "c"] * 1000).dictionary_encode(),
            "list": pa.array([[i] for i in range(3000)]),
        }
    )
    uri = str(tmp_path / "legacy")
    dataset = lance.write_dataset(data, uri, data_storage_version="legacy")
    dataset.delete("id = 7")
    dataset.create_scalar_index("id", "BTREE")
    (path,) = (tmp_path / "legacy" / "data").iterdir()
    metadata, manifest = legacy_messages(path)
    files = manifests(tmp_path / "legacy")
    sections = [part for f in files for part in (f.manifest, f.indices, f.transaction)]
    assert all_strangers([metadata, manifest, *sections]) == []
    assert list(metadata.batch_offsets) == [0, 1024, 2048, 3000]
    assert metadata.statistics.page_table_position > 0
    (kind_field,) = (field for field in manifest.fields if field.name == "kind")
    assert kind_field.dictionary.length == 3
    assert files[0].manifest.data_format.version == "0.1"
