"""Tables of pylance, opened by version, tag, branch and time."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import numpy as np
import pytest

from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    PathNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import codec as manifest_file
from lance_spark.table.manifest.history import list_versions, manifest_as_of
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import canonical, open_table
from lance_spark.table.refs import tags
from lance_spark.table.rows.deletions import read_deletions
from tests.support.tables.pylance_written import new_table, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Versions 1 to 4: 6, 9, 12 and 15 rows; version 2 is tagged."""
    path = tmp_path / "t"
    dataset = new_table(path)
    for start in (6, 9, 12):
        dataset = lance.write_dataset(rows(start), str(path), mode="append")
    dataset.tags.create("second", 2)
    return path


def test_open_by_version(path: Path) -> None:
    assert open_table(str(path)).version == 4
    for version in range(1, 5):
        table = open_table(str(path), version=version)
        assert (table.version, table.manifest.num_rows) == (version, 3 + 3 * version)
    with pytest.raises(VersionNotFoundError, match="no version 9: it has the versions 1 to 4"):
        open_table(str(path), version=9)


@pytest.mark.parametrize("version", [("main", 1), [1], 1.0, True, np.True_])
def test_versions_that_are_no_numbers(path: Path, version: object) -> None:
    with pytest.raises(InvalidInputError, match="version must be a number or the name of a tag"):
        open_table(str(path), version=version)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [np.int64(2), np.uint8(2)])
def test_open_by_a_number_of_numpy(path: Path, version: int) -> None:
    assert open_table(str(path), version=version).manifest.num_rows == 9


def test_open_by_tag(path: Path) -> None:
    dataset = lance.dataset(str(path))
    store = ObjectStore.from_uri(path)
    assert open_table(str(path), tag="second").version == 2
    made = tags.create_tag(store, "mine", 3)
    assert dataset.tags.get_version("mine") == 3
    for name, theirs in dataset.tags.list().items():
        ours = tags.read_tags(store)[name]
        assert (ours.version, ours.branch) == (theirs["version"], theirs["branch"])
        assert ours.manifest_size == theirs["manifest_size"]
    assert tags.read_tag(store, "mine") == made
    tags.delete_tag(store, "mine")
    assert list(dataset.tags.list()) == ["second"]


def test_missing_tags(path: Path) -> None:
    store = ObjectStore.from_uri(path)
    with pytest.raises(
        VersionNotFoundError, match=r"tag 'secnd' not found: did you mean 'second'\?"
    ):
        open_table(str(path), tag="secnd")
    with pytest.raises(VersionNotFoundError, match="tag 'x' not found: the table has 'second'"):
        open_table(str(path), tag="x")
    with pytest.raises(InvalidInputError, match="tag 'second' already exists"):
        tags.create_tag(store, "second", 1)
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        tags.create_tag(store, "new", 9)
    tags.delete_tag(store, "second")
    with pytest.raises(VersionNotFoundError, match="tag 'second' not found: the table has none"):
        open_table(str(path), tag="second")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".a", "a.", "a.lock", "a..b", "a b", "../t"])
def test_invalid_tag_names(path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name of a tag"):
        open_table(str(path), tag=name)
    if name:
        with pytest.raises(OSError, match=r"(?i)ref"):
            lance.dataset(str(path)).tags.create(name, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": "2"}',
        b'{"version": true}',
        b'{"version": 0}',
        b'{"version": 18446744073709551616}',
        b'{"branch": "../../x", "version": 1}',
    ],
)
def test_corrupt_tags(path: Path, content: bytes) -> None:
    (path / "_refs/tags/second.json").write_bytes(content)
    with pytest.raises(CorruptTableError, match=r"second\.json"):
        open_table(str(path), tag="second")


def test_open_by_branch(path: Path) -> None:
    lance.dataset(str(path)).delete("id = 1")
    branch = lance.dataset(str(path)).create_branch("feat/x")
    lance.write_dataset(rows(15), branch, mode="append")
    branch = lance.dataset(str(path)).checkout_version(("feat/x", None))
    store = ObjectStore.from_uri(path)
    tag = {"branch": "feat/x", "version": branch.version, "manifestSize": 1, "metadata": {}}
    store.write_bytes("_refs/tags/there.json", json.dumps(tag).encode())
    assert lance.dataset(str(path), version="there").count_rows() == 17
    table = open_table(str(path), tag="there")
    assert table.manifest.branch == "feat/x"
    assert table.manifest.num_rows == 17
    # The rows of the parent are below the root of the parent.
    for fragment in table.manifest.fragments:
        assert table.paths.open_data_file(fragment.files[0]).size == fragment.size_bytes
    assert read_deletions(table.paths, table.manifest.fragments[0]).tolist() == [1]


def test_open_by_timestamp(path: Path) -> None:
    theirs = lance.dataset(str(path)).versions()
    ours = list_versions(ObjectStore.from_uri(path))
    for our_version, their_version in zip(ours, theirs, strict=True):
        assert our_version.version == their_version["version"]
        # pylance rounds through a float.
        local = our_version.timestamp.astimezone().replace(tzinfo=None)
        assert abs(local - their_version["timestamp"]) <= timedelta(microseconds=2)
        assert open_table(str(path), timestamp=our_version.timestamp).version == our_version.version
    just_before = ours[2].timestamp - timedelta(microseconds=1)
    assert open_table(str(path), timestamp=just_before).version == 2
    assert open_table(str(path), timestamp=datetime.now(UTC)).version == 4
    with pytest.raises(VersionNotFoundError, match="the oldest is version 1 of"):
        open_table(str(path), timestamp=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidInputError, match="no time zone"):
        open_table(str(path), timestamp=datetime(2020, 1, 1))


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_open_by_timestamp_with_unordered_clocks(path: Path, scheme: str) -> None:
    """The clock of the writer of version 3 was a day behind, that of version 2 a day ahead."""
    local = ObjectStore.from_uri(path)
    store = local if scheme == "file" else ObjectStore.from_uri("memory://out-of-order/t")
    seconds = {1: 1_000, 2: 100_000, 3: 500, 4: 2_000}
    for location in list_manifests(local):
        manifest = manifest_file.read_manifest(local, location)
        proto = manifest.to_proto()
        proto.timestamp.seconds, proto.timestamp.nanos = seconds[location.version], 0
        data = manifest_file.encode(proto, None, manifest.transaction_section)
        store.write_bytes(location.path, data)
    expected = {499: None, 500: 3, 999: 3, 1_000: 3, 1_999: 3, 2_000: 4, 100_000: 4}
    for second, version in expected.items():
        time = datetime.fromtimestamp(second, UTC)
        if version is None:
            with pytest.raises(VersionNotFoundError, match="no version as of"):
                manifest_as_of(store, time)
        else:
            assert manifest_as_of(store, time).version == version
    assert [info.version for info in list_versions(store)] == [1, 2, 3, 4]


def test_only_one_of_version_tag_and_timestamp(path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="version and tag are given"):
        open_table(str(path), version=1, tag="second")


def test_path_without_table(tmp_path: Path) -> None:
    memory = f"memory://{tmp_path.name}"
    ObjectStore.from_uri(memory).write_bytes("other/file", b"")
    for way in ({}, {"version": 1}, {"tag": "x"}, {"timestamp": datetime.now(UTC)}):
        for missing in (str(tmp_path / "none"), f"{memory}/none"):
            with pytest.raises(PathNotFoundError, match="the path does not exist"):
                open_table(missing, **way)  # type: ignore[arg-type]
        for folder in (str(tmp_path), memory):
            with pytest.raises(TableNotFoundError, match="it has no manifest"):
                open_table(folder, **way)  # type: ignore[arg-type]
    # The copy that early releases wrote beside the versions suffices to read the newest version.
    (tmp_path / "_latest.manifest").write_bytes(b"")
    with pytest.raises(UnsupportedError, match="early release"):
        open_table(str(tmp_path), version=1)
    with pytest.raises(CorruptTableError, match=r"_latest\.manifest.*truncated"):
        open_table(str(tmp_path))


def test_a_client_that_may_not_list_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: ObjectStore) -> bool:
        raise StorageError("denied")

    monkeypatch.setattr(ObjectStore, "is_missing_folder", denied)
    with pytest.raises(TableNotFoundError, match="it has no manifest"):
        open_table("memory://denied/t")


def test_pickled_table_keeps_storage_options_hidden(path: Path) -> None:
    options = {"secret": "hunter2"}
    uri = f"memory://{path.name}-pickled/t"
    store = ObjectStore.from_uri(uri)
    source = ObjectStore.from_uri(path)
    for location in list_manifests(source):
        store.write_bytes(location.path, source.read_bytes(location.path))
    table = open_table(uri, storage_options=options)
    copy = pickle.loads(pickle.dumps(table))
    assert copy.manifest.fragments == table.manifest.fragments
    assert "hunter2" not in repr(copy)


@pytest.mark.parametrize(
    ("path", "others", "same"),
    [
        ("s3://b/a%3Fx", ("s3://b/a%3Fx/tree/c", "s3://b/a", "s3://b/a%23x"), "s3a://b/a%3Fx/"),
        ("s3+ddb://b/a%20x?ddbTableName=n", ("s3://b/a", "gs://b/a x"), "s3://b/a x"),
        ("abfss://c@n.dfs.core.windows.net/a%3Fx", ("az://c/a",), "az://c/a%3Fx"),
        ("ftp://host/a?x", ("ftp://host/b",), "ftp://host/a?y"),
    ],
)
def test_paths_of_one_place(path: str, others: tuple[str, ...], same: str) -> None:
    assert canonical(path) == canonical(same)
    assert canonical(path) not in {canonical(other) for other in others}
