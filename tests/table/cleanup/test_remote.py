"""Cleanup of tables on object stores, with and without an external manifest store."""

from __future__ import annotations

import datetime

import lance
import pytest

import lance_spark
from lance_spark.storage.commit import ManifestEntry
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup import plan as cleanup_plan
from tests.support.stores.aws import BUCKET, Aws, numbers

UUID = "0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05"


@pytest.mark.parametrize(
    "uri", [f"s3://{BUCKET}/plain", f"s3+ddb://{BUCKET}/ext?ddbTableName=lock"]
)
def test_cleanup_on_s3(aws: Aws, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(3):
        lance.write_dataset(numbers(start), uri, mode="overwrite", storage_options=aws.theirs)
    prefix = uri.partition("?")[0].removeprefix("s3+ddb://").removeprefix("s3://")
    prefix = prefix.removeprefix(f"{BUCKET}/") + "/"
    aws.s3.put_object(Bucket=BUCKET, Key=f"{prefix}data/lost.lance", Body=b"x")
    aws.s3.put_object(Bucket=BUCKET, Key=f"{prefix[:-1]}-other/data/a.lance", Body=b"x")
    table = lance_spark.open_dataset(uri, storage_options=aws.ours)
    stats = table.cleanup_old_versions(retain_versions=1)
    assert stats.versions == (1, 2)
    assert (stats.data_files_removed, stats.transaction_files_removed) == (2, 2)
    assert len([name for name in aws.names(prefix) if name.startswith("data/")]) == 2
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    assert [version["version"] for version in theirs.versions()] == [3]
    assert theirs.to_table() == numbers(2)
    # The times of the store count.
    monkeypatch.setattr(cleanup_plan, "GRACE_SECONDS", -60)
    stats = table.cleanup_old_versions()
    assert [(file.path, file.unverified) for file in stats.files] == [("data/lost.lance", True)]
    assert aws.names(f"{prefix[:-1]}-other/") == ["data/a.lance"]
    assert theirs.to_table() == numbers(2)


def test_staging_files_of_an_external_manifest_store(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging files of older versions are removed. The staging file of the newest version may be
    its only manifest.
    """
    uri = f"s3+ddb://{BUCKET}/staged?ddbTableName=lock"
    for start in range(3):
        lance.write_dataset(numbers(start), uri, mode="append", storage_options=aws.theirs)
    store = ObjectStore.from_uri(uri, aws.ours)
    external = store.manifest_store
    assert external is not None
    # The writer of version 4 was killed after the commit; writers of versions 2 and 4 were killed
    # before the commit.
    committed_manifest = f"_versions/{2**64 - 1 - 3}.manifest"
    place = f"_versions/{2**64 - 1 - 4}.manifest"
    lance_spark.write_dataset(numbers(9), uri, mode="append", storage_options=aws.ours)
    store.copy(place, f"{place}-{UUID}")
    store.delete([place])
    external.put_final(store.object_uri, ManifestEntry(4, f"{place}-{UUID}"))
    lost = [
        f"{place}-{UUID[:-1]}0",
        f"{committed_manifest}-{UUID}",
        f"_versions/{2**64 - 1 - 2}.manifest-{UUID}",
    ]
    for name in lost:
        store.write_bytes(name, b"x")
    table = lance_spark.open_dataset(uri, version=3, storage_options=aws.ours)
    monkeypatch.setattr(cleanup_plan, "GRACE_SECONDS", -60)
    stats = table.cleanup_old_versions(older_than=datetime.timedelta(days=1))
    assert {file.path for file in stats.files if file.kind == "temporary"} == set(lost[1:])
    assert lance_spark.open_dataset(uri, storage_options=aws.ours).count_rows() == 12
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    assert (theirs.version, theirs.count_rows()) == (4, 12)
