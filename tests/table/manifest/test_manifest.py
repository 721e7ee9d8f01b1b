"""Manifests: compared with pylance; and bytes that are not a manifest are refused."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptTableError, LanceError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.files import DeletionFileType
from lance_spark.table.manifest import codec as m
from lance_spark.table.manifest.versions import NamingScheme, list_manifests
from tests.support.tables.pylance_written import manifests, new_table, rows


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with versions of nearly all operations."""
    path = tmp_path_factory.mktemp("history") / "t"
    dataset = new_table(path, enable_stable_row_ids=True)
    lance.write_dataset(rows(6, 12_000), str(path), mode="append")
    dataset = lance.dataset(str(path))
    dataset.delete("id = 1")
    dataset.delete("id >= 100 and id < 6000")
    dataset.update({"word": "'new'"}, where="id = 3")
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    dataset.update_metadata({"c": "d"})
    dataset.update_schema_metadata({"e": "f"})
    dataset.add_columns({"twice": "id * 2"})
    dataset.drop_columns(["word"])
    dataset.optimize.compact_files()
    dataset.restore()
    return path


def test_manifest_agrees_with_pylance(history: Path) -> None:
    for ours in manifests(history):
        theirs = lance.dataset(str(history), version=ours.version)
        assert ours.schema.to_arrow().equals(theirs.schema, check_metadata=True)
        assert ours.config == theirs.config()
        assert ours.table_metadata == theirs.metadata
        assert ours.num_rows == theirs.count_rows()
        assert f"{'.'.join(map(str, ours.data_storage_version))}" == theirs.data_storage_version
        for our_fragment, their_fragment in zip(
            ours.fragments, theirs.get_fragments(), strict=True
        ):
            assert our_fragment.id == their_fragment.fragment_id
            assert our_fragment.physical_rows == their_fragment.physical_rows
            assert our_fragment.num_deleted_rows == their_fragment.num_deletions
            assert [f.path for f in our_fragment.files] == [
                f.path for f in their_fragment.metadata.files
            ]
            assert [list(f.fields) for f in our_fragment.files] == [
                f.fields for f in their_fragment.metadata.files
            ]
            theirs_deleted = their_fragment.deletion_file()
            own_deleted = our_fragment.deletion_file
            assert (theirs_deleted is None) == (own_deleted is None)
            if own_deleted is not None:
                assert theirs_deleted.endswith(own_deleted.name(our_fragment.id))


def test_sample_has_both_types_of_deletion_files(history: Path) -> None:
    file_types = {
        fragment.deletion_file.file_type
        for manifest in manifests(history)
        for fragment in manifest.fragments
        if fragment.deletion_file
    }
    assert file_types == {DeletionFileType.ARROW, DeletionFileType.BITMAP}


def test_encode_reproduces_bytes(history: Path) -> None:
    store = ObjectStore.from_uri(history)
    for location in list_manifests(store):
        data = store.read_bytes(location.path)
        read = m.decode(data, "x")
        again = m.encode(read.to_proto(), read.index_section, read.transaction_section)
        # The entries of protobuf maps have no order.
        decoded, original = m.decode(again, "x"), read
        assert len(again) == len(data)
        assert decoded.to_proto() == original.to_proto()
        assert decoded.index_section == original.index_section
        assert decoded.transaction_section == original.transaction_section


def test_manifest_can_be_pickled(history: Path) -> None:
    for manifest in manifests(history):
        copy = pickle.loads(pickle.dumps(manifest))
        assert copy.to_proto() == manifest.to_proto()
        assert copy.fragments == manifest.fragments
        assert copy.index_section == manifest.index_section
        assert copy.name == manifest.name


def test_naming_scheme_v1(tmp_path: Path) -> None:
    new_table(tmp_path / "t", enable_v2_manifest_paths=False)
    lance.write_dataset(rows(6), str(tmp_path / "t"), mode="append")
    store = ObjectStore.from_uri(tmp_path / "t")
    assert {location.scheme for location in list_manifests(store)} == {NamingScheme.V1}
    assert [manifest.version for manifest in manifests(tmp_path / "t")] == [1, 2]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_versions_of_data_files(tmp_path: Path, version: str) -> None:
    new_table(tmp_path / "t", data_storage_version=version)
    (manifest,) = manifests(tmp_path / "t")
    assert ".".join(map(str, manifest.data_storage_version)) == version


def test_table_without_a_version_of_data_files(tmp_path: Path) -> None:
    assert m.Manifest(table_pb2.Manifest(), "x").data_storage_version == (0, 1)
    v2 = table_pb2.Manifest(reader_feature_flags=4, writer_feature_flags=4)
    # The flags that pylance reports for such a table are the flags of new tables.
    assert m.Manifest(v2, "x").data_storage_version == (2, 2)


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ([(0, 0)], (0, 1)),
        ([(0, 2)], (0, 1)),
        ([(0, 3)], (2, 0)),
        ([(2, 1)], (2, 1)),
        ([(2, 0), (0, 2)], (2, 0)),
    ],
)
def test_file_version_from_data_files(
    files: list[tuple[int, int]], version: tuple[int, int]
) -> None:
    proto = table_pb2.Manifest()
    for major, minor in files:
        proto.fragments.add().files.add(file_major_version=major, file_minor_version=minor)
    assert m.Manifest(proto, "x").data_storage_version == version


@pytest.mark.parametrize("text", ["2", "2.x", "-2.1", "2.1.0", "２.1", "x" * 1000])
def test_invalid_file_version(text: str) -> None:
    proto = table_pb2.Manifest()
    proto.data_format.version = text
    with pytest.raises(CorruptTableError, match=r"x: .* is not a version of data files"):
        _ = m.Manifest(proto, "x").data_storage_version


def test_transaction_in_the_old_field(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    store = ObjectStore.from_uri(tmp_path / "t")
    data = store.read_bytes(list_manifests(store)[0].path)
    new = m.decode(data, "x")
    proto = new.to_proto()
    proto.transaction_section_deprecated = proto.transaction_section
    proto.ClearField("transaction_section")
    old = m.decode(_with_message(data, proto), "x")
    assert old.transaction_section == new.transaction_section
    assert old.transaction_section is not None


def test_unknown_fields_survive(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    store = ObjectStore.from_uri(tmp_path / "t")
    data = store.read_bytes(list_manifests(store)[0].path)
    # Field 1000, length-delimited: "hello".
    unknown = b"\xc2\x3e\x05hello"
    position, *_ = m.FOOTER.unpack_from(data, len(data) - m.FOOTER.size)
    message = data[position + 4 : -m.FOOTER.size] + unknown
    changed = data[:position] + struct.pack("<I", len(message)) + message + data[-m.FOOTER.size :]
    read = m.decode(changed, "x")
    again = m.encode(read.to_proto(), read.index_section, read.transaction_section)
    assert unknown in again


def test_damage_is_named_in_errors(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    store = ObjectStore.from_uri(tmp_path / "t")
    (location,) = list_manifests(store)
    data = store.read_bytes(location.path)
    store.write_bytes(location.path, data[:-1])
    with pytest.raises(CorruptTableError, match=location.path):
        m.read_manifest(store, location)
    other_location = NamingScheme.V2.locate(2)
    store.write_bytes(other_location.path, data)
    with pytest.raises(CorruptTableError, match="the file contains version 1, but its name says 2"):
        m.read_manifest(store, other_location)


def test_unknown_feature(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    store = ObjectStore.from_uri(tmp_path / "t")
    (location,) = list_manifests(store)
    data = store.read_bytes(location.path)
    proto = m.decode(data, "x").to_proto()
    proto.reader_feature_flags = 1 << 40
    store.write_bytes(location.path, _with_message(data, proto))
    with pytest.raises(UnsupportedFeatureError, match=rf"flag {1 << 40} \(bit 40\)"):
        m.read_manifest(store, location)


def test_fragments_outside_of_the_manifest() -> None:
    proto = table_pb2.Manifest(version=1)
    proto.fragment_tree.tree.next_action_sequence = 1
    with pytest.raises(UnsupportedFeatureError, match="tree of files"):
        m.decode(m.encode(proto, None, None), "x")


@pytest.fixture(scope="module")
def sample(history: Path) -> bytes:
    store = ObjectStore.from_uri(history)
    return max((store.read_bytes(at.path) for at in list_manifests(store)), key=len)


def touch(data: bytes) -> None:
    """Use all properties of a manifest; only errors of this package may be raised."""
    try:
        manifest = m.decode(data, "x")
        _ = manifest.schema.to_arrow()
        _ = (manifest.timestamp, manifest.data_storage_version, manifest.base_paths)
        _ = (manifest.config, manifest.table_metadata, manifest.max_fragment_id)
        for fragment in manifest.fragments:
            _ = (fragment.files, fragment.deletion_file, fragment.num_rows)
    except LanceError:
        pass


def test_truncated_bytes(sample: bytes) -> None:
    for length in range(0, len(sample), max(1, len(sample) // 300)):
        with pytest.raises(CorruptTableError):
            m.decode(sample[:length], "x")


def test_flipped_bits(sample: bytes) -> None:
    rng = np.random.default_rng(3)
    tracemalloc.start()
    for at in rng.integers(0, len(sample) * 8, 1000):
        data = bytearray(sample)
        data[at // 8] ^= 1 << (at % 8)
        touch(bytes(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_hostile_footers(sample: bytes) -> None:
    for position in (0, 1, len(sample), len(sample) - 16, 2**63, 2**64 - 1):
        touch(sample[:-16] + m.FOOTER.pack(position, 0, 2, m.MAGIC))
    for length in (2**31, 2**32 - 1):
        with pytest.raises(CorruptTableError, match="would end at byte"):
            m.decode(struct.pack("<I", length) + m.FOOTER.pack(0, 0, 2, m.MAGIC), "x")
    proto = table_pb2.Manifest(index_section=2**64 - 1)
    message = proto.SerializeToString()
    data = struct.pack("<I", len(message)) + message + m.FOOTER.pack(0, 0, 2, m.MAGIC)
    with pytest.raises(CorruptTableError, match="index section would start"):
        m.decode(data, "x")


def test_time_out_of_range() -> None:
    proto = table_pb2.Manifest()
    proto.timestamp.seconds = 2**62
    with pytest.raises(CorruptTableError, match="out of range"):
        _ = m.Manifest(proto, "x").timestamp


def _with_message(data: bytes, proto: table_pb2.Manifest) -> bytes:
    """Put another message into a file, at the same place."""
    position, *_ = m.FOOTER.unpack_from(data, len(data) - m.FOOTER.size)
    message = proto.SerializeToString()
    return data[:position] + struct.pack("<I", len(message)) + message + data[-m.FOOTER.size :]


def test_schema_of_many_types(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.struct([pa.field("x", pa.int8(), False), pa.field("y", pa.utf8())])),
            pa.field("b", pa.list_(pa.float32(), 4), metadata={"k": "v"}),
            pa.field("c", pa.large_list(pa.field("item", pa.timestamp("us", "UTC")))),
            pa.field("d", pa.dictionary(pa.int16(), pa.utf8())),
            pa.field("e", pa.map_(pa.utf8(), pa.decimal128(10, 2))),
        ],
        metadata={"meta": "data"},
    )
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), data_storage_version="2.2")
    (manifest,) = manifests(tmp_path / "t")
    theirs = lance.dataset(str(tmp_path / "t")).schema
    assert manifest.schema.to_arrow().equals(theirs, check_metadata=True)
    assert manifest.max_fragment_id is None
