"""Manifests and references that try to make cleanup delete or read files outside of the table."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, LanceError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import find
from tests.support.tables.cleanup import (
    WEEK,
    check,
    copy_of,
    files,
    rows,
    write_files,
)

Change = Callable[[table_pb2.Manifest], object]


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A table beside other files."""
    names = ["outside/data/a.lance", "outside/_deletions/0-1-1.arrow", "a.lance", "data/a.lance"]
    write_files(tmp_path, [*names, "etc/_transactions/a.txn"], 10 * WEEK)
    copy_of(template, tmp_path / "t")
    return tmp_path / "t"


def change(path: Path, version: int, how: Change) -> None:
    """Rewrite the manifest of a version."""
    store = ObjectStore.from_uri(path)
    location = find(store, version)
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    how(proto)
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    (path / location.path).write_bytes(data)


def data_path(name: str) -> Change:
    def how(proto: table_pb2.Manifest) -> None:
        proto.fragments[0].files[0].path = name

    return how


def base_path(uri: str, *, is_root: bool, name: str = "a.lance") -> Change:
    def how(proto: table_pb2.Manifest) -> None:
        proto.base_paths.add(id=5, path=uri, is_dataset_root=is_root)
        proto.reader_feature_flags |= 16
        proto.writer_feature_flags |= 16
        file = proto.fragments[0].files[0]
        file.path, file.base_id = name, 5
        proto.fragments[0].deletion_file.CopyFrom(
            table_pb2.DeletionFile(read_version=1, id=1, num_deleted_rows=1, base_id=5)
        )

    return how


def clean(path: Path) -> object:
    return lance_spark.open_dataset(str(path)).cleanup_old_versions(
        retain_versions=1, delete_unverified=True, error_if_tagged_old_versions=False
    )


def check_stops(path: Path, error: type[LanceError], message: str) -> None:
    """Check that a cleanup fails, and deletes no file in the table and beside it."""
    before = files(path.parent)
    with pytest.raises(error, match=message):
        clean(path)
    assert files(path.parent) == before


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize(
    "how",
    [
        data_path("../a.lance"),
        data_path("../../outside/data/a.lance"),
        data_path("/etc/passwd"),
        data_path(""),
        data_path("file:///etc/passwd"),
        lambda proto: proto.fragments[0].deletion_file.CopyFrom(
            table_pb2.DeletionFile(file_type=7, num_deleted_rows=1)
        ),
        lambda proto: setattr(proto, "version", 77),
    ],
)
def test_unreadable_manifests_stop_cleanup(path: Path, version: int, how: Change) -> None:
    """If the references of a version are unknown, no file may be deleted."""
    change(path, version, how)
    check_stops(path, CorruptTableError, f"{2**64 - 1 - version}.manifest")


@pytest.mark.parametrize("section", [b"\xff\xff", b"\x0a\x04\x0a\x02\x0a\x00"])
def test_unreadable_index_sections_stop_cleanup(path: Path, section: bytes) -> None:
    store = ObjectStore.from_uri(path)
    location = find(store, 3)
    proto = read_manifest(store, location).to_proto()
    (path / location.path).write_bytes(encode(proto, section, None))
    check_stops(path, CorruptTableError, location.path)


@pytest.mark.parametrize("flag", ["reader_feature_flags", "writer_feature_flags"])
def test_unknown_features_stop_cleanup(path: Path, flag: str) -> None:
    change(path, 3, lambda proto: setattr(proto, flag, 1 << 40))
    check_stops(path, UnsupportedFeatureError, "1099511627776")


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("version", [2, 8])
@pytest.mark.parametrize(
    "location", ["outside", "outside/data", ".", "t", "t/data", "t/../outside"]
)
def test_files_below_base_paths_are_never_deleted(
    path: Path, location: str, is_root: bool, version: int
) -> None:
    other_files = {name for name in files(path.parent) if not name.startswith("t/")}
    change(path, version, base_path(str(path.parent / location), is_root=is_root))
    clean(path)
    assert {name for name in files(path.parent) if not name.startswith("t/")} == other_files
    assert lance.dataset(str(path)).to_table(columns=["i"]).num_rows == 6


def test_a_reference_into_a_base_path_does_not_verify_a_file_of_the_root(path: Path) -> None:
    """A running job has just written the file and is about to commit it."""
    change(path, 2, base_path(str(path.parent / "outside"), is_root=False, name="fresh.lance"))
    fresh = path / "data" / "fresh.lance"
    fresh.write_bytes(b"rows")
    lance_spark.open_dataset(str(path)).cleanup_old_versions(
        retain_versions=1, error_if_tagged_old_versions=False
    )
    assert fresh.exists()


@pytest.mark.parametrize(
    "name",
    ["../../etc/_transactions/a.txn", "/etc/passwd", "../_versions/latest_version_hint.json"],
)
def test_transaction_names_with_folders_are_only_compared(path: Path, name: str) -> None:
    other_files = {file for file in files(path.parent) if not file.startswith("t/")}
    change(path, 2, lambda proto: setattr(proto, "transaction_file", name))
    clean(path)
    assert {file for file in files(path.parent) if not file.startswith("t/")} == other_files
    assert (path / "_versions" / "latest_version_hint.json").exists()


def test_files_referred_to_by_another_spelling_of_the_root_are_kept(path: Path) -> None:
    """The newest version reads a file of this table through a base path; an old one owns it."""
    own_file = next(name for name in (path / "data").iterdir() if name.suffix == ".lance")
    newest = lance.dataset(str(path)).version
    change(path, newest, base_path(str(path), is_root=True, name=own_file.name))
    clean(path)
    assert own_file.exists()


@pytest.mark.parametrize("name", ["..%2F..%2Foutside", "%2Fetc", "a%2F..%2F..%2Fb", "%00"])
def test_hostile_branch_names_stop_cleanup(path: Path, name: str) -> None:
    folder = path / "_refs" / "branches"
    folder.mkdir(parents=True)
    content = {"parentVersion": 1, "identifier": {"version_mapping": [[1, "x"]]}}
    (folder / f"{name}.json").write_text(json.dumps(content))
    check_stops(path, CorruptTableError, "branch")


@pytest.mark.parametrize(
    ("folder_name", "content"),
    [
        *[
            ("branches", content)
            for content in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000)
        ],
        ("branches", b'{"identifier": 5}'),
        ("branches", b'{"identifier": {"version_mapping": [[1]]}}'),
        ("branches", b'{"identifier": {"version_mapping": [[1e999, "x"]]}}'),
        ("branches", b'{"identifier": {"version_mapping": [["9' + b"9" * 10_000 + b'", "x"]]}}'),
        ("branches", b'{"parentVersion": "x"}'),
        *[("tags", content) for content in (b"", b"{", b'{"version": -1}', b"[" * 100_000)],
    ],
    ids=lambda value: repr(value[:30]),
)
def test_hostile_references_stop_cleanup(path: Path, folder_name: str, content: bytes) -> None:
    folder = path / "_refs" / folder_name
    folder.mkdir(parents=True)
    (folder / "x.json").write_bytes(content)
    check_stops(path, CorruptTableError, r"x\.json")


def test_a_damaged_branch_stops_cleanup(path: Path) -> None:
    lance.dataset(str(path)).create_branch("b", 2)
    manifest = next((path / "tree" / "b" / "_versions").glob("*.manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    check_stops(path, CorruptTableError, manifest.name)


@pytest.mark.parametrize("branch", ["../../outside", "/etc", ""])
def test_hostile_branch_names_in_manifests_stop_cleanup(path: Path, branch: str) -> None:
    change(path, 9, lambda proto: setattr(proto, "branch", branch))
    check_stops(path, CorruptTableError, r"18446744073709551606\.manifest: branch")


def test_a_copy_of_a_branch_has_its_own_tags(path: Path) -> None:
    lance.dataset(str(path)).tags.create("t", 3)
    change(path, 9, lambda proto: setattr(proto, "branch", "elsewhere"))
    stats = lance_spark.open_dataset(str(path)).cleanup_old_versions(
        retain_versions=1, error_if_tagged_old_versions=False
    )
    assert stats.versions == (1, 2, *range(4, 9))


def test_links_out_of_the_table_are_not_followed(path: Path) -> None:
    outside = path.parent / "outside"
    (path / "data" / "link").symlink_to(outside, target_is_directory=True)
    (path / "_indices" / "0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05").symlink_to(outside)
    (path / "tree").mkdir()
    (path / "tree" / "loop").symlink_to(path, target_is_directory=True)
    other_files = {name for name in files(path.parent) if not name.startswith("t/")}
    started = time.monotonic()
    clean(path)
    assert time.monotonic() - started < 20
    assert {name for name in files(path.parent) if not name.startswith("t/")} == other_files


def test_both_manifests_of_a_version_are_removed(path: Path) -> None:
    """An interrupted migration of the naming scheme leaves two manifests."""
    folder = path / "_versions"
    for version in (2, 3):
        shutil.copy(folder / f"{2**64 - 1 - version}.manifest", folder / f"{version}.manifest")
    stats = clean(path)
    assert stats.versions == tuple(range(1, 9))
    assert stats.old_versions == 10
    assert lance_spark.open_dataset(str(path)).versions()[0].version == 9
    check(path)


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    write_files(tmp_path, ["t/data/a.lance"], 10 * WEEK)
    store = ObjectStore.from_uri(tmp_path / "t")
    with pytest.raises(LanceError, match="not a Lance table"):
        lance_spark.table.cleanup.run.cleanup(store, lance_spark.table.cleanup.plan.CleanupPolicy())
    assert files(tmp_path) == {"t/data/a.lance"}
    lance.write_dataset(rows(0), str(tmp_path / "t"))
