"""New versions on tables of old releases: the new manifest keeps all that rows and columns need."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import lance
import pytest

import lance_spark
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from tests.fixtures.tables import Fixture, Unpack, fixtures, unpack
from tests.interop.test_releases import assert_same, columns_read

ALL = [fixture for fixture in fixtures() if not fixture.versions[-1].refused]


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    return cache(lambda release: unpack(release, tmp_path_factory.mktemp(release)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("fixture", ALL, ids=str)
def test_a_new_version_of_a_release_table_has_the_same_rows(
    fixture: Fixture, releases: Unpack, tmp_path: Path
) -> None:
    path = str(shutil.copytree(fixture.path(releases), tmp_path / "table"))
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    columns = columns_read(fixture, fixture.versions[-1], releases)
    expected = lance.dataset(path).to_table(columns=columns)
    transaction = Transaction.new(base.version, Append(()))
    manifest = commit(store, transaction, base)
    assert lance.dataset(path).version == manifest.version == base.version + 1
    assert_same(lance_spark.open_dataset(path).to_table(columns), expected, "ours")
    theirs = lance.dataset(path).to_table(columns=columns)
    assert theirs.schema == expected.schema
    assert theirs.to_pylist() == expected.to_pylist()


def test_some_releases_have_tables_with_dictionaries(releases: Unpack) -> None:
    with_dictionaries = [
        fixture
        for fixture in ALL
        if read_latest(ObjectStore.from_uri(fixture.path(releases))).dictionaries
    ]
    assert len(with_dictionaries) >= 3
