"""Paths in a table never lead out of it, except to base paths that it declares."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, encode
from tests.hostile import corpus
from tests.hostile.session import replay

OUTSIDE = (
    "../../outside",
    "../../../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "a/../../../../../../../../etc/passwd",
    "./../../outside",
    "file:///etc/passwd",
    "..\\..\\outside",
    "a\0/../../outside",
    "..",
    "~root/x",
    "memory://x/y",
    "%2e%2e/%2e%2e/outside",
    "%252e%252e/outside",
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")


def changed(table: str, change: Callable[[Any, Any], None]) -> bytes:
    """Return the newest manifest of a table after a change of the manifest, or of its index
    section.
    """
    result = decode(corpus.newest(corpus.table(table)).read_bytes(), "m")
    proto = result.to_proto()
    section = table_pb2.IndexSection.FromString(result.index_section or b"")
    change(proto, section)
    return encode(proto, section.SerializeToString(), result.transaction_section)


def _data_file(path: str) -> Callable[[Any, Any], None]:
    def change(proto: Any, _section: Any) -> None:
        for fragment in proto.fragments:
            fragment.files[0].path = path

    return change


def _row_ids(path: str) -> Callable[[Any, Any], None]:
    def change(proto: Any, _section: Any) -> None:
        for fragment in proto.fragments:
            fragment.external_row_ids.path = path
            fragment.external_row_ids.size = 10

    return change


def _transaction(path: str) -> Callable[[Any, Any], None]:
    def change(proto: Any, _section: Any) -> None:
        proto.transaction_file = path

    return change


def _branch(path: str) -> Callable[[Any, Any], None]:
    def change(proto: Any, _section: Any) -> None:
        proto.branch = path

    return change


def _moved(path: str) -> Callable[[Any, Any], None]:
    def change(_proto: Any, section: Any) -> None:
        details = table_pb2.FragmentReuseIndexDetails()
        details.external.path = path
        details.external.size = 10
        for index in section.indices:
            if index.name == "__lance_frag_reuse":
                index.index_details.value = details.SerializeToString()

    return change


def _index_file(path: str) -> Callable[[Any, Any], None]:
    def change(_proto: Any, section: Any) -> None:
        for index in section.indices:
            for file in index.files:
                file.path = path

    return change


PLACES = {
    "data_file": ("plain", _data_file),
    "row_ids": ("stable", _row_ids),
    "transaction": ("old", _transaction),
    "branch": ("plain", _branch),
    "fragment_reuse": ("moved", _moved),
    "index_file": ("plain", _index_file),
}
_TARGETS = {
    "plain": "table_manifest",
    "stable": "table_manifest_stable",
    "moved": "table_manifest_moved",
    "old": "table_manifest_old",
}


def inputs(folder: Path) -> Iterator[Path]:
    """Write the inputs, and yield their paths."""
    for place, (table, change) in PLACES.items():
        for number, path in enumerate(OUTSIDE):
            yield kept(folder, _TARGETS[table], f"{place}_{number}", changed(table, change(path)))
    for number, path in enumerate(OUTSIDE):
        tag = json.dumps({"version": 2, "branch": path, "manifestSize": 300})
        yield kept(folder, "table_tag", f"tag_{number}", tag.encode())
        branch = {"parentBranch": path, "parentVersion": 2, "createAt": 1, "manifestSize": 300}
        yield kept(folder, "table_branch", f"branch_{number}", json.dumps(branch).encode())


def kept(folder: Path, target: str, name: str, data: bytes) -> Path:
    """Write an input of a target."""
    path = folder / target / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def test_nothing_outside_is_opened(tmp_path: Path) -> None:
    assert replay(list(inputs(tmp_path))) == []


def test_a_base_path_is_followed_and_seen(tmp_path: Path) -> None:
    """The table declares the base path; files that are opened outside are noticed."""

    def change(proto: Any, _section: Any) -> None:
        proto.base_paths.add(id=1, path=str(tmp_path / "elsewhere"))
        for fragment in proto.fragments:
            fragment.files[0].base_id = 1

    (wrong,) = replay([kept(tmp_path, "table_manifest", "base", changed("plain", change))])
    assert str(tmp_path / "elsewhere") in wrong
