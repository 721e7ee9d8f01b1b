"""Tables that old releases of pylance wrote: every version reads as the release read it, and the
newest one as pylance reads it now. `make test-long` compares all versions with pylance.

`tests/fixtures/build.py` made them; `releases/index.json` there says what each release could not
do, and what the newer pylance refuses or reads otherwise. Where the two differ, the newer is right.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError
from tests.fixtures.tables import Fixture, Unpack, Version, fixtures, unpack
from tests.support.cells import ALL_CELLS

ALL = fixtures()
each_table = pytest.mark.parametrize("fixture", ALL, ids=str)


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Return the folder of a release's tables, which is unpacked once."""
    return cache(lambda release: unpack(release, tmp_path_factory.mktemp(release)))


def columns_read(fixture: Fixture, version: Version, releases: Unpack) -> list[str]:
    """Return the columns that the newer pylance reads."""
    names = fixture.expected(version, releases).column_names
    return [name for name in names if name not in version.refused_columns]


def stored(dtype: pa.DataType) -> pa.DataType:
    """Return the storage type of a type: old releases did not know some extension types."""
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def assert_same(table: pa.Table, expected: pa.Table, note: str) -> None:
    """Check that columns, types and values are equal. Chunks and unused items of dictionaries may
    differ.
    """
    assert table.column_names == expected.column_names, note
    assert table.num_rows == expected.num_rows, note
    for name in expected.column_names:
        our_column, their_column = table[name], expected[name]
        dtype = stored(our_column.type)
        assert dtype == stored(their_column.type), f"{note} column {name}"
        if their_column.type != our_column.type:
            our_column, their_column = our_column.cast(dtype), their_column.cast(dtype)
        if not our_column.equals(their_column):
            for row, (a, b) in enumerate(
                zip(our_column.to_pylist(), their_column.to_pylist(), strict=True)
            ):
                assert repr(a) == repr(b), f"{note} column {name} row {row}"


def assert_same_schema(schema: pa.Schema, expected: pa.Schema, note: str) -> None:
    assert schema.metadata == expected.metadata, note
    assert schema.names == expected.names, note
    for ours, theirs in zip(schema, expected, strict=True):
        place = f"{note} column {theirs.name}"
        if getattr(theirs.type, "extension_name", "") == "lance.blob.v2":
            # The schema has the type of the values that are read, as in tables of pylance.
            assert pa.types.is_struct(ours.type), place
            continue
        assert ours.equals(theirs, check_metadata=True), place
        assert ours.nullable == theirs.nullable, place


def check(ours: lance_spark.Dataset, theirs: pa.Table, note: str) -> None:
    """Check all rows, rows by position, and one column of these rows."""
    names = theirs.column_names
    assert ours.count_rows() == theirs.num_rows, note
    assert ours.to_table(names, limit=1).schema.types == theirs.schema.types, note
    assert_same(ours.to_table(names), theirs, note)
    rows = np.random.default_rng(3).integers(0, theirs.num_rows, 20)
    assert_same(ours.take(rows, names), theirs.take(pa.array(rows)), f"{note} take")
    assert_same(ours.to_table(names[-1:]), theirs.select(names[-1:]), f"{note} last column")


@pytest.mark.sample(5)
@each_table
def test_every_version_is_read_as_pylance_reads_it(fixture: Fixture, releases: Unpack) -> None:
    path = fixture.path(releases)
    read = [version for version in fixture.versions if not version.refused]
    for version in read if ALL_CELLS else read[-1:]:
        note = f"{fixture} version {version.number}"
        ours = lance_spark.open_dataset(path, version.number)
        theirs = lance.dataset(path, version=version.number)
        assert_same_schema(ours.schema, theirs.schema, note)
        columns = columns_read(fixture, version, releases)
        check(ours, theirs.to_table(columns=columns), note)


@pytest.mark.sample(5)
@each_table
def test_every_version_is_read_as_the_release_read_it(fixture: Fixture, releases: Unpack) -> None:
    path = fixture.path(releases)
    for version in fixture.versions:
        if version.refused:
            continue
        names = columns_read(fixture, version, releases)
        equal_columns = [name for name in names if name not in version.differing_columns]
        table = lance_spark.open_dataset(path, version.number).to_table(equal_columns)
        expected = fixture.expected(version, releases).select(equal_columns)
        assert_same(table, expected, f"{fixture} version {version.number}")


REFUSED = [(f, v) for f in ALL for v in f.versions if v.refused or v.refused_columns]


@pytest.mark.parametrize(
    ("fixture", "version"), REFUSED, ids=[f"{f} version {v.number}" for f, v in REFUSED]
)
def test_columns_that_pylance_refuses_are_right_or_an_error(
    fixture: Fixture, version: Version, releases: Unpack
) -> None:
    expected = fixture.expected(version, releases)
    for name in version.refused_columns or expected.column_names:
        try:
            table = lance_spark.open_dataset(fixture.path(releases), version.number).to_table(
                [name]
            )
        except LanceError:
            continue
        assert_same(table, expected.select([name]), f"{fixture} version {version.number}")


@pytest.mark.parametrize("fixture", [f for f in ALL if f.facts.get("tags")], ids=str)
def test_tags(fixture: Fixture, releases: Unpack) -> None:
    tags = fixture.facts["tags"]
    path = fixture.path(releases)
    listed = lance_spark.open_dataset(path).tags.list()
    assert {name: tag["version"] for name, tag in listed.items()} == tags
    for tag, version in tags.items():
        assert lance_spark.open_dataset(path, tag=tag).version == version


@pytest.mark.parametrize(
    "fixture", [f for f in ALL if not any(v.refused for v in f.versions)], ids=str
)
def test_versions_are_listed(fixture: Fixture, releases: Unpack) -> None:
    path = fixture.path(releases)
    theirs = lance.dataset(path).versions()
    ours = lance_spark.open_dataset(path).versions()
    assert [v.version for v in ours] == [v["version"] for v in theirs]
    for ours_version, theirs_version in zip(ours, theirs, strict=True):
        seconds = theirs_version["timestamp"].timestamp()
        assert ours_version.timestamp.timestamp() == pytest.approx(seconds, abs=1e-3)


APPENDABLE = [
    f
    for f in ALL
    if f.file_version in ("0.1", "2.0", "2.1", "2.2")
    and not (f.versions[-1].refused or f.versions[-1].refused_columns)
    and not f.name.startswith("blobs")
]


BLOBS = [f for f in ALL if f.name.startswith("blobs")]


@pytest.mark.parametrize("fixture", BLOBS, ids=str)
def test_bytes_of_blobs(fixture: Fixture, releases: Unpack) -> None:
    ours = lance_spark.open_dataset(fixture.path(releases))
    theirs = lance.dataset(fixture.path(releases)).to_table(blob_handling="all_binary")
    assert_same(ours.to_table(blob_handling="all_binary"), theirs, str(fixture))
    if "bytes" not in fixture.facts.get("skipped", {}):
        # In older releases, the blob files of null blobs are empty.
        files = fixture.stored("bytes", releases)["blob"].to_pylist()
        values = theirs["blob"].to_pylist()
        assert [value or b"" for value in values] == [value or b"" for value in files]


def complaint(dataset: lance.LanceDataset) -> str:
    """Return the problem that pylance finds: releases around 0.25 wrote wrong row ids when they
    compacted.
    """
    try:
        dataset.validate()
    except OSError as error:
        return str(error).split(", in dataset")[0]
    return ""


#: The first release whose indexes name the right fragments. Commits leave out indexes of earlier
#: releases.
TRUSTED_BITMAPS = (0, 8, 15)


@pytest.mark.sample(5)
@pytest.mark.parametrize("fixture", APPENDABLE, ids=str)
def test_appends_are_read_by_pylance(fixture: Fixture, releases: Unpack, tmp_path: Path) -> None:
    path = str(tmp_path / "table.lance")
    shutil.copytree(fixture.path(releases), path)
    before = lance.dataset(path)
    old = before.to_table()
    wrong = complaint(before)
    count = min(30, old.num_rows)
    appended = lance_spark.open_dataset(path).take(range(count))
    lance_spark.write_dataset(appended, path, mode="append")
    after = lance.dataset(path)
    assert complaint(after) == wrong
    assert after.version == before.version + 1
    expected = pa.concat_tables([old, old.slice(0, count)])
    table = after.to_table()
    assert table.schema.equals(old.schema, check_metadata=True)
    for name in table.column_names:
        assert table[name].to_pylist() == expected[name].to_pylist(), f"{fixture} column {name}"
    if tuple(map(int, fixture.release.split("."))) < TRUSTED_BITMAPS:
        assert after.list_indices() == []
    else:
        names = [index["name"] for index in before.list_indices()]
        assert [index["name"] for index in after.list_indices()] == names
    if "row_ids" in fixture.facts:
        ids = after.scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_pylist()
        assert ids[: old.num_rows] == fixture.facts["row_ids"]
        assert len(set(ids)) == len(ids)
