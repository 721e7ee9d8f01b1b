"""A MemWAL is set up and removed as by pylance; nothing of an earlier one comes back to life."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.mem_wal import claims, setup
from lance_spark.mem_wal.compaction import compact_mem_wal, drain
from lance_spark.mem_wal.sharding import bucket_entries, num_buckets_of, shard_uuid
from lance_spark.mem_wal.shards import entries_of_shard
from lance_spark.mem_wal.table.details import ShardingField, ShardingSpec, details_of
from lance_spark.mem_wal.table.shard_manifest import (
    ShardStatus,
    list_shards,
    publish,
    read_latest_manifest,
)
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import open_table
from tests.support.tables.damaged import files_below

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        pa.field("s", pa.string()),
        pa.field("f", pa.float64()),
    ]
)


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "s": [text] * len(ids), "f": [0.5] * len(ids)}, SCHEMA)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(list(range(5)), "base"), uri).create_scalar_index("id", "BTREE")
    return uri


def text(dataset: Any) -> dict[int, str]:
    table = dataset.to_table()
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


def upsert(uri: str, ids: list[int], value: str, *, flush: bool = True) -> str:
    """Put rows into the only shard, and return its UUID."""
    writer = lance_spark.open_dataset(uri).mem_wal_writer()
    writer.put(rows(ids, value))
    writer.close(flush=flush)
    return writer.shard_id


SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "unsharded": {"unsharded": True},
    "buckets": {"bucket_column": "id", "num_buckets": 7},
    "identity": {"identity_column": "id"},
    "indexes": {"maintained_indexes": ["id_idx"]},
    "no indexes": {"maintained_indexes": []},
    "options": {"durable_write": False, "max_memtable_rows": 7},
    "hnsw": {"hnsw_params": {"a": {"max_level": 2}}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_details_are_those_of_pylance(uri: str, tmp_path: Path, name: str) -> None:
    theirs = lance.write_dataset(rows([1], "a"), str(tmp_path / "theirs"))
    theirs.create_scalar_index("id", "BTREE")
    theirs.initialize_mem_wal(**SETTINGS[name])
    own = lance_spark.open_dataset(uri).initialize_mem_wal(**SETTINGS[name])
    details = own.mem_wal_index_details()
    assert lance.dataset(uri).mem_wal_index_details() == details
    for spec in details["sharding_specs"]:
        assert 0 < spec["spec_id"] < 2**31
        spec["spec_id"] = 1
    assert details == theirs.mem_wal_index_details()
    opened = lance_spark.open_dataset(str(tmp_path / "theirs"))
    assert opened.mem_wal_index_details() == theirs.mem_wal_index_details()
    own_index, their_index = (
        {
            key: value
            for key, value in next(
                index for index in dataset.list_indices() if index["name"] == "__lance_mem_wal"
            ).items()
            if key != "uuid"
        }
        for dataset in (lance.dataset(uri), theirs)
    )
    assert own_index["type"] == their_index["type"]
    lance.dataset(uri).validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bucket_column": "id"}, "together"),
        ({"num_buckets": 2}, "together"),
        ({"bucket_column": "id", "num_buckets": 0}, "from 1 to 1024"),
        ({"bucket_column": "id", "num_buckets": 1025}, "from 1 to 1024"),
        ({"bucket_column": "x", "num_buckets": 2}, "x"),
        ({"identity_column": "f"}, "double"),
        ({"unsharded": True, "identity_column": "id"}, "at most one"),
        ({"maintained_indexes": ["x"]}, "'x'"),
        ({"max_memtable_rows": -1}, "max_memtable_rows"),
    ],
)
def test_refused_by_both(uri: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LanceError, match=message):
        lance_spark.open_dataset(uri).initialize_mem_wal(**settings)
    with pytest.raises((OSError, ValueError, OverflowError)):
        lance.dataset(uri).initialize_mem_wal(**settings)


def test_a_key_cannot_move_to_another_shard(uri: str) -> None:
    """pylance allows it; an upsert of the column would leave two rows of the key."""
    for settings in ({"identity_column": "s"}, {"bucket_column": "s", "num_buckets": 2}):
        with pytest.raises(InvalidInputError, match="primary key"):
            lance_spark.open_dataset(uri).initialize_mem_wal(**settings)
    lance.dataset(uri).initialize_mem_wal(identity_column="s")
    with pytest.raises(InvalidInputError, match="primary key"):
        lance_spark.open_dataset(uri).split_by_shard(rows([1], "a"))


def test_a_second_mem_wal_is_refused(uri: str) -> None:
    lance.dataset(uri).initialize_mem_wal()
    with pytest.raises(InvalidInputError, match="already"):
        lance_spark.open_dataset(uri).initialize_mem_wal()


@pytest.mark.parametrize("dtype", [pa.date32(), pa.float64(), pa.timestamp("us"), pa.binary(4)])
def test_keys_of_other_types_are_refused(tmp_path: Path, dtype: pa.DataType) -> None:
    schema = pa.schema([pa.field("id", dtype, False, KEY)])
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    with pytest.raises(LanceError, match="key"):
        lance_spark.open_dataset(str(tmp_path / "t")).initialize_mem_wal()


def test_rows_of_another_shard_are_refused(uri: str) -> None:
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal(bucket_column="id", num_buckets=4)
    parts = dataset.split_by_shard(rows(list(range(20)), "a"))
    assert len(parts) == 4
    ids = list(parts)
    with dataset.mem_wal_writer(ids[0]) as writer:
        writer.put(parts[ids[0]])
        for wrong in (parts[ids[1]], rows(list(range(20)), "a")):
            with pytest.raises(InvalidInputError, match="do not belong"):
                writer.put(wrong)
        with pytest.raises(InvalidInputError, match="do not belong"):
            writer.delete(parts[ids[1]].select(["id"]))
    with pytest.raises(InvalidInputError, match="from 0 to 3"):
        dataset.mem_wal_writer(shard_values={"bucket": 4})
    with pytest.raises(InvalidInputError, match="other values"):
        dataset.mem_wal_writer(ids[0], shard_values={"bucket": _other_bucket(dataset, ids[0])})
    with pytest.raises(InvalidInputError, match="shard_id"):
        dataset.mem_wal_writer()
    assert {shard.shard_id for shard in dataset.mem_wal_shards()} == {ids[0]}


def _other_bucket(dataset: Dataset, shard_id: str) -> int:
    (shard,) = dataset.mem_wal_shards()
    assert shard.shard_id == shard_id
    return int(shard.values["bucket"] + 1) % 4


@pytest.mark.parametrize("change", ["overwrite", "drop index"])
def test_shards_that_another_client_left_do_not_come_back(uri: str, change: str) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1, 99], "old")
    if change == "overwrite":
        lance.write_dataset(rows([1], "new"), uri, mode="overwrite")
    else:
        lance.dataset(uri).drop_index("__lance_mem_wal")
    dataset = lance_spark.open_dataset(uri)
    assert 99 not in text(dataset.fresh())
    with pytest.raises(InvalidInputError, match="earlier MemWAL"):
        dataset.initialize_mem_wal(unsharded=True)
    dataset.disable_mem_wal()
    assert not (Path(uri) / "_mem_wal").exists()
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [2], "next")
    assert text(lance_spark.open_dataset(uri).fresh())[2] == "next"
    assert 99 not in text(lance_spark.open_dataset(uri).fresh())


def test_own_overwrites_and_restores_are_refused(uri: str) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    # Without shards, as the Java connector uses it for partitions.
    lance_spark.open_dataset(uri).restore()
    upsert(uri, [1], "a")
    with pytest.raises(UnsupportedFeatureError, match="shards"):
        lance_spark.write_dataset(rows([1], "x"), uri, mode="overwrite")
    with pytest.raises(UnsupportedFeatureError, match="shards"):
        lance_spark.open_dataset(uri, version=2).restore()
    lance_spark.open_dataset(uri).disable_mem_wal()
    with pytest.raises(InvalidInputError, match="no MemWAL"):
        lance_spark.open_dataset(uri).disable_mem_wal()
    lance_spark.write_dataset(rows([1], "x"), uri, mode="overwrite")
    assert text(lance.dataset(uri)) == {1: "x"}


CHANGES: dict[str, Any] = {
    "delete": lambda dataset: dataset.delete("id = 1"),
    "update": lambda dataset: dataset.update({"s": "x"}, "id = 1"),
    "update of columns": lambda dataset: dataset.update({"s": "x"}, "id = 1", mode="columns"),
    "update by overlay": lambda dataset: dataset.update({"s": "x"}, "id = 1", mode="overlay"),
    "truncate": lambda dataset: dataset.truncate_table(),
    "merge": lambda dataset: (
        dataset.merge_insert("id").when_matched_update_all().execute(rows([1], "x"))
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_rows_wait_for_the_compaction(uri: str, name: str, flush: bool) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "fresh", flush=flush)
    opened = lance_spark.open_dataset(uri)
    with pytest.raises(UnsupportedFeatureError, match="would hide or undo"):
        CHANGES[name](opened)
    assert text(opened.fresh())[1] == "fresh"
    opened.compact_mem_wal(flush=True)
    # A handle from before the compaction is not refused.
    CHANGES[name](opened)
    assert text(lance_spark.open_dataset(uri)).get(1) in (None, "x")


def test_a_branch_has_shards_of_its_own(uri: str) -> None:
    """The branch has the progress of its origin, but none of its shards."""
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    for value in ("a", "b"):
        upsert(uri, [1], value)
    compacted = lance_spark.open_dataset(uri).compact_mem_wal()
    branch = compacted.create_branch("work")
    with branch.mem_wal_writer() as writer:
        writer.put(rows([1, 50], "branch"))
    (shard,) = branch.mem_wal_shards()
    assert (shard.compacted_generation, shard.current_generation) == (2, 4)
    assert text(branch.fresh())[50] == "branch"
    folded = branch.compact_mem_wal()
    assert text(folded)[1] == "branch"
    assert text(lance_spark.open_dataset(uri).fresh()) == text(compacted)
    assert (Path(uri) / "tree" / "work" / "_mem_wal").exists()


def test_disable_ends_writers(uri: str) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    writer = lance_spark.open_dataset(uri).mem_wal_writer()
    writer.put(rows([1, 7], "a"))
    with pytest.raises(UnsupportedFeatureError, match="not in the base table"):
        lance_spark.open_dataset(uri).disable_mem_wal(compact=False)
    dataset = lance_spark.open_dataset(uri).disable_mem_wal()
    assert text(dataset)[7] == "a"
    with pytest.raises(LanceError):
        writer.close()
    assert lance.dataset(uri).mem_wal_index_details() is None
    assert text(lance.dataset(uri)) == text(dataset)


def test_rows_that_come_during_the_end_keep_the_mem_wal(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "a")

    def compact(*arguments: Any) -> None:
        original(*arguments)
        upsert(uri, [2], "late", flush=False)

    original = setup.compact_mem_wal
    monkeypatch.setattr(setup, "compact_mem_wal", compact)
    with pytest.raises(UnsupportedFeatureError, match="not in the base table"):
        lance_spark.open_dataset(uri).disable_mem_wal()
    # The shard takes writers again.
    upsert(uri, [3], "next")
    assert {1: "a", 2: "late", 3: "next"}.items() <= text(
        lance_spark.open_dataset(uri).fresh()
    ).items()


@pytest.mark.parametrize("step", ["change_schema", "delete_files"])
def test_an_interrupted_end_is_finished(
    uri: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "a")

    def fail(*arguments: Any, **options: Any) -> None:
        raise StorageError("the store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(setup, step, fail)
        with pytest.raises(StorageError):
            lance_spark.open_dataset(uri).disable_mem_wal()
    # The shards are sealed, or without an index.
    with pytest.raises(InvalidInputError, match=r"sealed|no MemWAL"):
        upsert(uri, [2], "b")
    assert text(lance_spark.open_dataset(uri).disable_mem_wal())[1] == "a"
    assert not (Path(uri) / "_mem_wal").exists()


def test_a_sealed_shard_refuses_pylance_too(uri: str) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    shard = upsert(uri, [1], "a")
    claims.seal(ObjectStore.from_uri(uri), uuid.UUID(shard))
    with pytest.raises(OSError, match="sealed"):
        lance.dataset(uri).mem_wal_writer(shard)


def test_a_lost_answer_does_not_double_or_lose_rows(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store carries a put out, but its answer is lost."""
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    original = ObjectStore.put_if_absent
    lost: list[str] = []

    def put(store: ObjectStore, path: str, data: bytes) -> bool:
        created = original(store, path, data)
        if path.endswith(".arrow") and path not in lost:
            lost.append(path)
            raise StorageError("timeout") from TimeoutError()
        return created

    monkeypatch.setattr(ObjectStore, "put_if_absent", put)
    writer = lance_spark.open_dataset(uri).mem_wal_writer()
    for number in range(3):
        writer.put(rows([10 + number], "a"))
    writer.close(flush=False)
    assert len(lost) == 3
    (shard,) = lance_spark.open_dataset(uri).mem_wal_shards()
    assert (shard.num_log_entries, shard.log_rows) == (3, 3)


def test_a_failed_writer_refuses_calls_and_the_next_one_goes_on(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    writer = lance_spark.open_dataset(uri).mem_wal_writer()
    writer.put(rows([10], "a"))

    def put(store: ObjectStore, path: str, data: bytes) -> bool:
        raise StorageError("timeout") from TimeoutError()

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_if_absent", put)
        with pytest.raises(StorageError, match="timeout"):
            writer.put(rows([11], "b"))
    with pytest.raises(InvalidInputError, match="open a new writer"):
        writer.put(rows([12], "c"))
    upsert(uri, [13], "d")
    assert set(text(lance_spark.open_dataset(uri).fresh())) == {*range(5), 10, 13}


def test_two_claims_at_once(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One creates the version of the shard manifest; the other gives up."""
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    shard = uuid.UUID(upsert(uri, [1], "a"))
    store = ObjectStore.from_uri(uri)
    original = claims.publish
    others: list[claims.Claim] = []

    def publish_late(*arguments: Any) -> Any:
        if not others:
            monkeypatch.setattr(claims, "publish", original)
            others.append(claims.claim(store, shard))
        return original(*arguments)

    monkeypatch.setattr(claims, "publish", publish_late)
    with pytest.raises(CommitConflictError, match="at the same time"):
        claims.claim(store, shard)
    newest = read_latest_manifest(store, shard)
    assert newest is not None
    assert newest.writer_epoch == others[0].epoch


def test_a_store_with_a_manifest_store_is_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest store keeps commits apart, but not the files of a log."""
    monkeypatch.setattr(ObjectStore, "manifest_store", object())
    with pytest.raises(StorageError, match="manifest store"):
        claims.check_store(ObjectStore.from_uri(uri))


def test_progress_of_an_unknown_shard_is_kept(uri: str) -> None:
    """A change of the table keeps what other clients recorded."""
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    shard = uuid.uuid4()
    (
        lance.dataset(uri)
        .merge_insert("id")
        .when_matched_update_all()
        .mark_sstables_as_compacted([lance.CompactedSsTable(str(shard), 4)])
        .execute(rows([1], "m"))
    )
    dataset = lance_spark.open_dataset(uri)
    dataset = dataset.update({"s": "x"}, "id = 2").compact_files()[0]
    details = details_of(dataset._table.manifest)
    assert details is not None
    assert details.compacted == {shard: 4}
    assert list_shards(dataset._table.store) == []


@pytest.mark.parametrize("is_shallow", [True, False])
def test_clones_have_shards_of_their_own(uri: str, tmp_path: Path, is_shallow: bool) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "a")
    dataset = lance_spark.open_dataset(uri).compact_mem_wal()
    upsert(uri, [2], "later")
    target = str(tmp_path / "clone")
    clone = dataset.shallow_clone(target) if is_shallow else dataset.deep_clone(target)
    assert clone.mem_wal_shards() == []
    upsert(target, [1], "clone")
    assert text(clone.fresh()) == text(dataset) | {1: "clone"}
    assert text(clone.compact_mem_wal()) == text(dataset) | {1: "clone"}
    assert text(lance_spark.open_dataset(uri).fresh()) == text(dataset) | {2: "later"}


def test_cleanups_of_versions_keep_the_files_of_a_mem_wal(uri: str) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "a")
    upsert(uri, [2], "b", flush=False)
    before = files_below(Path(uri) / "_mem_wal")
    dataset = lance_spark.open_dataset(uri)
    dataset.cleanup_old_versions(datetime.timedelta(), delete_unverified=True)
    assert files_below(Path(uri) / "_mem_wal") == before
    assert {1: "a", 2: "b"}.items() <= text(dataset.fresh()).items()


def test_a_claim_during_the_end_opens_all_shards_again(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MemWAL stays, so that no shard may stay sealed."""
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal(bucket_column="id", num_buckets=2)
    for bucket in range(2):
        dataset.mem_wal_writer(shard_values={"bucket": bucket}).close()
    original = setup.seal
    sealed: list[uuid.UUID] = []

    def seal(store: ObjectStore, shard: uuid.UUID) -> Any:
        if sealed:
            raise CommitConflictError("claimed", retryable=True)
        sealed.append(shard)
        return original(store, shard)

    with monkeypatch.context() as patch:
        patch.setattr(setup, "seal", seal)
        with pytest.raises(CommitConflictError):
            dataset.disable_mem_wal()
    assert [shard.status for shard in dataset.mem_wal_shards()] == ["active", "active"]
    dataset.disable_mem_wal()


def test_a_compaction_during_the_end(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes the shard manifest between the claim and the seal, and ends no claim."""
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    shard = uuid.UUID(upsert(uri, [1], "a"))
    store = ObjectStore.from_uri(uri)
    claimed = claims.claim(store, shard).manifest
    drained = replace(claimed, version=claimed.version + 1, sstables=())
    assert publish(store, drained)
    sealed = claims.change_status(store, claimed, ShardStatus.SEALED)
    assert (sealed.version, sealed.sstables) == (claimed.version + 2, ())


def test_an_interrupted_deletion_leaves_no_folders(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    upsert(uri, [1], "a")

    def remove_folder(store: ObjectStore, folder: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "remove_folder", remove_folder)
        with pytest.raises(KeyboardInterrupt):
            lance_spark.open_dataset(uri).disable_mem_wal()
    lance_spark.open_dataset(uri).disable_mem_wal()
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)


def test_a_column_with_the_name_of_the_tombstones_is_refused(uri: str) -> None:
    """Its values would be read as the marks of deleted rows."""
    data = pa.table({"a": [1], "_tombstone": [True]})
    dataset = lance_spark.write_dataset(data, f"{uri}_2")
    with pytest.raises(UnsupportedFeatureError, match="rename the column"):
        dataset.initialize_mem_wal()
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    with pytest.raises(UnsupportedFeatureError, match="_tombstone"):
        dataset.add_columns(pa.field("_tombstone", pa.bool_()))
    with pytest.raises(UnsupportedFeatureError, match="_tombstone"):
        dataset.alter_columns({"path": "s", "name": "_tombstone"})


def test_numbers_of_other_clients_are_bounded(uri: str) -> None:
    """No number of a file makes this package count up to it."""
    part = ShardingField("bucket", (0,), "bucket", parameters={"num_buckets": "2147483647"})
    spec = ShardingSpec(1, (part,))
    for bucket, known in ((1023, bucket_entries(spec, 1023)), (1024, ())):
        assert entries_of_shard(spec, shard_uuid(spec, bucket_entries(spec, bucket))) == known
    zeros = replace(part, parameters={"num_buckets": "0000000000" + "19" * 20})
    with pytest.raises(InvalidInputError, match="positive number"):
        num_buckets_of(zeros)
    with pytest.raises(InvalidOptionError, match="64 bits"):
        WriterOptions.from_text({"max_memtable_rows": "0" * 21 + "9" * 5000})
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    shard = uuid.UUID(upsert(uri, [1], "a"))
    store = ObjectStore.from_uri(uri)
    newest = read_latest_manifest(store, shard)
    assert newest is not None
    assert publish(store, replace(newest, version=newest.version + 1, current_generation=2**62))
    with pytest.raises(CorruptTableError, match="lacks the rows"):
        lance_spark.open_dataset(uri).compact_mem_wal()
    assert publish(store, replace(newest, version=newest.version + 2, writer_epoch=2**64 - 1))
    with pytest.raises(InvalidInputError, match=str(shard)):
        lance_spark.open_dataset(uri).mem_wal_writer()


def test_a_late_drain_leaves_a_new_mem_wal(tmp_path: Path) -> None:
    """pylance gives each MemWAL the same spec id, so that shards have the same names again."""
    path = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.string())])
    lance_spark.write_dataset(pa.table({"id": [1], "v": ["base"]}, schema), path)

    def put(value: str) -> None:
        with lance_spark.open_dataset(path).mem_wal_writer() as writer:
            writer.put(pa.table({"id": [1], "v": [value]}, schema))

    lance.dataset(path).initialize_mem_wal(unsharded=True)
    put("old")
    compact_mem_wal(open_table(path), drains=False)
    late = open_table(path)
    lance_spark.open_dataset(path).disable_mem_wal()
    lance.dataset(path).initialize_mem_wal(unsharded=True)
    put("new")
    assert drain(late) == {}
    assert lance_spark.open_dataset(path).fresh().to_table()["v"].to_pylist() == ["new"]
    compact_mem_wal(open_table(path), drains=False)
    (count,) = drain(late).values()
    assert count == 1
    assert lance.dataset(path).to_table()["v"].to_pylist() == ["new"]


@pytest.mark.parametrize("name", ["unsharded", "buckets", "identity"])
def test_shards_of_a_new_mem_wal_have_other_names(uri: str, name: str) -> None:
    """A client of the MemWAL before, which was stopped meanwhile, finds none of the new files."""
    dataset = lance_spark.open_dataset(uri)
    shards: list[set[uuid.UUID]] = []
    for _ in range(2):
        dataset = dataset.initialize_mem_wal(**SETTINGS[name])
        for shard in dataset.split_by_shard(rows([7], "a")):
            with dataset.mem_wal_writer(shard) as writer:
                writer.put(rows([7], "a"))
        shards.append(set(list_shards(ObjectStore.from_uri(uri))))
        dataset = lance_spark.open_dataset(uri).disable_mem_wal()
    assert len(shards[0]) == len(shards[1]) == 1
    assert shards[0].isdisjoint(shards[1])
