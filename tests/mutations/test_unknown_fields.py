"""Mutations keep the fields of a manifest that only newer clients know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode, read_manifest

NUMBER = 9999
#: Field 9999, three bytes.
UNKNOWN = b"\xfa\xf0\x04\x03abc"

CHANGES: dict[str, Callable[[Dataset], Any]] = {
    "delete": lambda d: d.delete([("k", "==", 1)]),
    "delete a fragment": lambda d: d.delete([("k", "<", 3)]),
    "update rows": lambda d: d.update({"y": 7}, [("k", "==", 1)]),
    "update columns": lambda d: d.update({"x": 7}, [("k", "==", 1)], mode="columns"),
    "add": lambda d: d.add_columns({"new": 1}),
    "add without values": lambda d: d.add_columns(pa.field("new", pa.int64())),
    "rename": lambda d: d.alter_columns({"path": "y", "name": "z"}),
    "cast": lambda d: d.alter_columns({"path": "y", "name": "new", "data_type": pa.int32()}),
    "drop": lambda d: d.drop_columns(["y"]),
    "metadata of a field": lambda d: d.update_field_metadata({"y": {"a": "b"}}),
    "configuration": lambda d: d.update_config({"a": "b"}),
    "compact": lambda d: d.compact_files(max_source_fragments=2)[0],
    "drop an index": lambda d: d.drop_index("k_idx"),
    "restore": lambda d: (d.delete([("k", "==", 5)]), d.restore())[1],
    "branch": lambda d: d.create_branch("b"),
    "clone": lambda d: d.shallow_clone(f"{d.uri}-clone", d.version),
    "copy": lambda d: d.deep_clone(f"{d.uri}-copy", d.version),
}


def is_marked(message: Message) -> bool:
    return any(unknown.field_number == NUMBER for unknown in UnknownFieldSet(message))


def mark(uri: str) -> set[str]:
    """Put an unknown field into all messages of the newest manifest; return the names of the
    data files.
    """
    store = ObjectStore.from_uri(uri)
    location = versions.list_manifests(store)[-1]
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    section = table_pb2.IndexSection.FromString(manifest.index_section or b"")
    files = [file for fragment in proto.fragments for file in fragment.files]
    for fragment in (*proto.fields, *proto.fragments, *files, *section.indices, proto, section):
        fragment.MergeFromString(UNKNOWN)
    data = encode(proto, section.SerializeToString(), manifest.transaction_section)
    store.write_bytes(location.path, data)
    return {file.path for file in files}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_unknown_fields_are_kept(tmp_path: Path, name: str, stable: bool) -> None:
    uri = str(tmp_path / "t")
    data = pa.table({"k": range(9), "x": range(9), "y": range(9)})
    lance.write_dataset(data, uri, max_rows_per_file=3, enable_stable_row_ids=stable)
    lance.dataset(uri).create_scalar_index("x", "BTREE")
    lance.dataset(uri).create_scalar_index("k", "BITMAP")
    files = mark(uri)
    manifest = CHANGES[name](open_dataset(uri))._table.manifest
    proto = manifest.message
    section = table_pb2.IndexSection.FromString(manifest.index_section or b"")
    old = [fragment for fragment in proto.fragments if fragment.id < 3]
    assert all(map(is_marked, (proto, section, *old)))
    assert all(is_marked(field) for field in proto.fields if field.name != "new")
    assert all(is_marked(index) for index in section.indices if not index.name.startswith("__"))
    files_of_old = [file for fragment in old for file in fragment.files]
    assert all(is_marked(file) for file in files_of_old if file.path in files)
    assert any(is_marked(file) for file in files_of_old)
