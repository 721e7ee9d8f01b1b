"""Delayed commits, while other clients commit and clean up."""

from __future__ import annotations

import itertools
import os
import random
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import StorageError, UncertainCommitError, VersionNotFoundError
from lance_spark.storage import local
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import ManifestLocation

ROWS = pa.table({"id": pa.array(range(4), pa.int64())})
CLEANED = "cleanup may have removed an earlier version"


@pytest.fixture(params=["disk", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "t") if request.param == "disk" else f"memory://{uuid.uuid4().hex}/t"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let other clients act right before or after the next commit creates its version."""

    def hold(concurrent_change: Callable[[], object], *, after: bool = False) -> None:
        create = versions.create_manifest

        def late(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
            monkeypatch.setattr(versions, "create_manifest", create)
            if after:
                created = create(store, location, data)
                concurrent_change()
                return created
            concurrent_change()
            return create(store, location, data)

        monkeypatch.setattr(versions, "create_manifest", late)

    return hold


def changed(uri: str, times: int) -> lance_spark.Dataset:
    dataset = lance_spark.open_dataset(uri)
    for number in range(times):
        dataset = dataset.update_config({"changed": str(number)})
    return dataset


def cleaned(uri: str) -> None:
    lance_spark.open_dataset(uri).cleanup_old_versions(
        timedelta(0), error_if_tagged_old_versions=False
    )


def numbers(uri: str) -> list[int]:
    return [version.version for version in lance_spark.open_dataset(uri).versions()]


@pytest.mark.parametrize("times", [2, 3])
def test_previous_version_kept_by_a_tag(uri: str, held: Callable[..., None], times: int) -> None:
    dataset = lance_spark.write_dataset(ROWS, uri)
    dataset.tags.create("first", 1)

    def others() -> None:
        changed(uri, times)
        cleaned(uri)
        assert numbers(uri) == [1, times + 1]
        changed(uri, 1)
        time.sleep(0.01)

    held(others)
    with pytest.raises(UncertainCommitError, match=CLEANED):
        dataset.delete([("id", "==", 3)])
    assert lance_spark.open_dataset(uri).to_table()["id"].to_pylist() == [0, 1, 2, 3]


def test_previous_version_kept_by_a_tag_and_next_version_exists(
    uri: str, held: Callable[..., None]
) -> None:
    dataset = lance_spark.write_dataset(ROWS, uri)
    dataset.tags.create("first", 1)

    def others() -> None:
        changed(uri, 2).tags.create("third", 3)
        changed(uri, 1)
        cleaned(uri)
        assert numbers(uri) == [1, 3, 4]
        time.sleep(0.01)

    held(others)
    with pytest.raises(UncertainCommitError, match=CLEANED):
        dataset.delete([("id", "==", 3)])
    assert numbers(uri) == [1, 2, 3, 4]
    # The content was never acknowledged, and may be removed.
    with pytest.raises(
        VersionNotFoundError, match="version 2 is being removed by a cleanup, or was"
    ):
        lance_spark.open_dataset(uri, 2).restore()
    assert lance_spark.open_dataset(uri).to_table()["id"].to_pylist() == [0, 1, 2, 3]


def test_recreated_version_leaves_first_commit_unknown(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first commit is lost, others commit, and cleanup removes the version."""
    dataset = lance_spark.write_dataset(ROWS, uri)
    create = versions.create_manifest

    def lost(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
        monkeypatch.setattr(versions, "create_manifest", create)
        assert create(store, location, data)
        changed(uri, 1)
        cleaned(uri)
        newest = read_manifest(store, versions.latest(store))
        proto = type(newest.message)()
        proto.CopyFrom(newest.message)
        proto.version = location.version
        time.sleep(0.01)
        assert create(store, location, encode(proto, None, newest.transaction_section))
        raise StorageError("no answer") from TimeoutError()

    monkeypatch.setattr(versions, "create_manifest", lost)
    with pytest.raises(UncertainCommitError, match="no answer"):
        dataset.delete([("id", "==", 3)])
    assert lance_spark.open_dataset(uri).version == 3


def test_version_recreated_before_the_check(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put is quick and its answer is lost; the next attempt comes late."""
    dataset = lance_spark.write_dataset(ROWS, uri)
    create, uniform = versions.create_manifest, random.uniform
    lost: list[ManifestLocation] = []

    def without_answer(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
        monkeypatch.setattr(versions, "create_manifest", create)
        monkeypatch.setattr(random, "uniform", others)
        assert create(store, location, data)
        lost.append(location)
        raise StorageError("no answer") from TimeoutError()

    def others(first: float, last: float) -> float:
        monkeypatch.setattr(random, "uniform", uniform)
        changed(uri, 1)
        cleaned(uri)
        time.sleep(0.3)
        store = ObjectStore.from_uri(uri)
        newest = read_manifest(store, versions.latest(store))
        proto = type(newest.message)()
        proto.CopyFrom(newest.message)
        proto.version = lost[0].version
        assert create(store, lost[0], encode(proto, None, newest.transaction_section))
        return 0.0

    monkeypatch.setattr(versions, "create_manifest", without_answer)
    with pytest.raises(UncertainCommitError, match="no answer"):
        lance_spark.write_dataset(ROWS, uri, "append")
    assert lance_spark.open_dataset(uri).count_rows() == 8
    assert dataset.version == 1


def test_table_created_and_cleaned_up_by_others(uri: str, held: Callable[..., None]) -> None:
    def others() -> None:
        lance_spark.write_dataset(ROWS, uri, "overwrite")
        changed(uri, 1)
        cleaned(uri)
        time.sleep(0.01)

    held(others)
    with pytest.raises(UncertainCommitError, match=CLEANED):
        lance_spark.write_dataset(ROWS, uri)


@pytest.mark.parametrize("mode", ["create", "append"])
def test_later_versions_do_not_cause_errors(uri: str, held: Callable[..., None], mode: str) -> None:
    if mode == "append":
        lance_spark.write_dataset(ROWS, uri)
    held(lambda: changed(uri, 3), after=True)
    made = lance_spark.write_dataset(ROWS, uri, mode)  # type: ignore[arg-type]
    assert numbers(uri) == [*range(1, made.version + 4)]
    assert lance_spark.open_dataset(uri).count_rows() == 4 * made.version


def test_local_file_time_is_the_time_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is not the time at which the bytes were written, which may be long before."""
    store = ObjectStore.from_uri(tmp_path)
    write, wait = local.write_temporary, itertools.chain([0.1], itertools.repeat(0.0))

    def slow(path: str, data: bytes, *, durable: bool) -> str:
        written = write(path, data, durable=durable)
        time.sleep(next(wait))
        return written

    monkeypatch.setattr(local, "write_temporary", slow)
    before = time.time()
    assert store.put_if_absent("a", b"a")
    named = store.modified("a")
    assert named is not None
    assert named > before + 0.09
    assert store.put_if_absent("b", b"b")
    later = store.modified("b")
    assert later is not None
    assert named <= later <= os.stat(tmp_path / "b").st_ctime
