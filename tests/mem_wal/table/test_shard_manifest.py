"""Shard manifests: found by hints and listings, published once, checked when they are read."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pytest

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    ShardStatus,
    SsTable,
    decode,
    encode,
    list_shards,
    publish,
    read_latest_manifest,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore

SHARD = uuid.UUID("12345678-1234-5678-1234-567812345678")
FULL = ShardManifest(
    SHARD,
    version=3,
    writer_epoch=2,
    replay_after=7,
    last_seen=9,
    current_generation=5,
    sstables=(SsTable(2, "0123abcd_gen_2", 10, 3, 24), SsTable(4, "0123abcd_gen_4")),
    spec_id=1,
    field_entries=(("bucket", b"\x02\0\0\0"),),
    status=ShardStatus.SEALED,
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore.from_uri(str(tmp_path))


@pytest.mark.parametrize(
    ("number", "digits"),
    [(1, "1" + 63 * "0"), (5, "101" + 61 * "0"), (2**63, 63 * "0" + "1"), (2**64 - 1, 64 * "1")],
)
def test_numbers_of_files_are_reversed_binary(number: int, digits: str) -> None:
    assert shard_manifest.digits_of(number) == digits
    assert shard_manifest.number_of(f"{digits}.binpb") == number
    assert shard_manifest.number_of(f"{digits}.arrow") == number


@pytest.mark.parametrize("name", ["", "1.arrow", 64 * "1", 64 * "2" + ".arrow", 64 * "1" + ".tmp"])
def test_other_files_have_no_number(name: str) -> None:
    assert shard_manifest.number_of(name) is None


def test_folders_with_other_names_are_no_shards(store: ObjectStore, tmp_path: Path) -> None:
    for name in (str(SHARD), SHARD.hex, str(uuid.UUID(int=2**127 + 10)).upper(), "tmp"):
        (tmp_path / "_mem_wal" / name).mkdir(parents=True)
    assert list_shards(store) == [SHARD]


def test_round_trip() -> None:
    read = decode(encode(FULL), SHARD, 3, "m")
    assert read == FULL
    assert decode(encode(read), SHARD, 3, "m") == FULL


def test_fields_of_later_releases_are_kept() -> None:
    unknown = b"\xa0\x1f\x07"  # field 500, value 7
    read = decode(encode(FULL) + unknown, SHARD, 3, "m")
    assert unknown in encode(dataclasses.replace(read, version=4))


def test_two_writers_never_write_the_same_bytes() -> None:
    assert encode(FULL) != encode(FULL)


def test_a_version_is_published_once(store: ObjectStore) -> None:
    assert read_latest_manifest(store, SHARD) is None
    assert publish(store, ShardManifest(SHARD))
    assert not publish(store, ShardManifest(SHARD, writer_epoch=1))
    assert publish(store, ShardManifest(SHARD, version=2, writer_epoch=1))
    assert read_latest_manifest(store, SHARD) == ShardManifest(SHARD, version=2, writer_epoch=1)


@pytest.mark.parametrize(
    "hint", [None, "", "{", "[]", '{"version":1}', '{"version":99}', '{"version":"x"}', "[" * 3000]
)
@pytest.mark.parametrize("missing", [[], [4], [1, 2, 3]])
def test_the_newest_version_is_found_with_any_hint(
    store: ObjectStore, tmp_path: Path, hint: str | None, missing: list[int]
) -> None:
    for version in range(1, 6):
        publish(store, ShardManifest(SHARD, version=version))
    for version in missing:
        (tmp_path / shard_manifest.manifest_path(SHARD, version)).unlink()
    path = tmp_path / shard_manifest.hint_path(SHARD)
    path.unlink()
    if hint is not None:
        path.write_text(hint)
    newest = read_latest_manifest(store, SHARD)
    assert newest is not None
    assert newest.version == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 4}, "version 4"),
        ({"current_generation": 0}, "generation is 0"),
        ({"current_generation": 4}, "generation 4"),
        ({"shard": uuid.UUID(int=1)}, "its path has"),
        ({"sstables": (SsTable(1, "a"), SsTable(1, "b"))}, "generation 1"),
        ({"sstables": (SsTable(1, "../../x"),)}, "folder"),
        ({"sstables": (SsTable(1, ".."),)}, "folder"),
        ({"sstables": (SsTable(1, "wal"),)}, "folder"),
        ({"sstables": (SsTable(1, ""),)}, "folder"),
    ],
)
def test_wrong_contents_are_refused(change: dict[str, object], message: str) -> None:
    wrong = dataclasses.replace(FULL, **change)  # type: ignore[arg-type]
    with pytest.raises(CorruptFileError, match=message):
        decode(encode(wrong), SHARD, 3, "m")


def test_an_unknown_status_is_refused() -> None:
    wrong = table_pb2.ShardManifest.FromString(encode(FULL))
    wrong.status = 7  # type: ignore[assignment]
    with pytest.raises(UnsupportedFeatureError, match="status 7"):
        decode(wrong.SerializeToString(), SHARD, 3, "m")


def test_a_wrong_manifest_is_not_published(store: ObjectStore) -> None:
    with pytest.raises(InvalidInputError, match="folder"):
        publish(store, ShardManifest(SHARD, current_generation=2, sstables=(SsTable(1, "a/b"),)))
    assert read_latest_manifest(store, SHARD) is None
