"""Tables that old releases of pylance wrote: every version reads as the release read it, and as pylance reads it now.

`tests/fixtures/build.py` made them; `releases/index.json` there says what each release could not do, which versions
the newer pylance refuses or reads otherwise, and which of its columns then count. Where the two differ, the newer is right.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError
from tests.interop.tables import assert_same

RELEASES = Path(__file__).parent.parent / "fixtures" / "releases"


@dataclass(frozen=True)
class Fixture:
    """One table of one release, and what is known of it."""

    release: str
    name: str
    facts: dict[str, Any]

    @property
    def folder(self) -> Path:
        return RELEASES / self.release / self.name

    @property
    def path(self) -> str:
        return str(self.folder / "table.lance")

    @property
    def file_version(self) -> str:
        return self.name.rsplit("_", 1)[1]

    @property
    def versions(self) -> dict[int, dict[str, Any]]:
        return {int(k): v for k, v in self.facts["versions"].items()}

    @property
    def newest(self) -> int:
        return max(self.versions)

    def expected(self, name: object) -> pa.Table:
        with pa.ipc.open_file(str(self.folder / "expected" / f"{name}.arrow")) as file:
            return file.read_all()


def fixtures() -> list[Fixture]:
    index = json.loads((RELEASES / "index.json").read_text())
    return [
        Fixture(release, name, facts)
        for release, notes in index.items()
        for name, facts in notes["tables"].items()
        if facts.get("versions")
    ]


ALL = fixtures()


def name_of(fixture: Fixture) -> str:
    return f"{fixture.release}-{fixture.name}"


def check(ours: lance_spark.Dataset, theirs: pa.Table, schema: pa.Schema, note: str) -> None:
    """Schema, rows, the number of rows, and rows by position."""
    assert ours.schema.equals(schema, check_metadata=True), note
    assert ours.count_rows() == theirs.num_rows, note
    assert_same(ours.to_table(), theirs, note)
    rows = np.random.default_rng(3).integers(0, theirs.num_rows, 20)
    assert_same(ours.take(rows), theirs.take(pa.array(rows)), f"{note} take")
    last = theirs.column_names[-1:]
    assert_same(ours.to_table(last), theirs.select(last), f"{note} last column")


@pytest.mark.parametrize("fixture", ALL, ids=name_of)
def test_every_version_is_read(fixture: Fixture) -> None:
    for version, facts in fixture.versions.items():
        note = f"{name_of(fixture)} version {version}"
        if "refused" in facts:
            # No oracle but the release itself: its values or an error, never other values.
            try:
                got = lance_spark.open_dataset(fixture.path, version).to_table()
            except LanceError:
                continue
            assert_same(got, fixture.expected(facts["expected"]), note)
            continue
        ours = lance_spark.open_dataset(fixture.path, version)
        theirs = lance.dataset(fixture.path, version=version)
        check(ours, theirs.to_table(), theirs.schema, note)


@pytest.mark.parametrize("fixture", ALL, ids=name_of)
def test_values_are_those_the_release_read(fixture: Fixture) -> None:
    for version, facts in fixture.versions.items():
        if "refused" in facts:
            continue
        expected = fixture.expected(facts["expected"])
        same = [n for n in expected.column_names if n not in facts.get("differs", {})]
        assert same
        got = lance_spark.open_dataset(fixture.path, version).to_table(same)
        assert_same(got, expected.select(same), f"{name_of(fixture)} version {version}")


@pytest.mark.parametrize("fixture", [f for f in ALL if f.facts.get("tags")], ids=name_of)
def test_tags(fixture: Fixture) -> None:
    tags = fixture.facts["tags"]
    assert lance_spark.open_dataset(fixture.path).tags() == tags
    for tag, version in tags.items():
        assert lance_spark.open_dataset(fixture.path, tag=tag).version == version


@pytest.mark.parametrize("fixture", ALL, ids=name_of)
def test_versions_are_listed(fixture: Fixture) -> None:
    theirs = [
        (v["version"], v["timestamp"].timestamp()) for v in lance.dataset(fixture.path).versions()
    ]
    ours = lance_spark.open_dataset(fixture.path).versions()
    assert [v.version for v in ours] == [v for v, _ in theirs]
    for mine, (_, seconds) in zip(ours, theirs, strict=True):
        assert mine.timestamp.timestamp() == pytest.approx(seconds, abs=1e-3)


APPENDABLE = [
    f
    for f in ALL
    if f.file_version in ("2.0", "2.1", "2.2") and "refused" not in f.versions[f.newest]
]


@pytest.mark.parametrize("fixture", APPENDABLE, ids=name_of)
def test_appends_are_read_by_pylance(fixture: Fixture, tmp_path: Path) -> None:
    path = str(tmp_path / "table.lance")
    shutil.copytree(fixture.path, path)
    before = lance.dataset(path)
    old = before.to_table()
    more = lance_spark.open_dataset(path).take(range(min(30, old.num_rows)))
    lance_spark.write_dataset(more, path, mode="append")
    after = lance.dataset(path)
    after.validate()
    assert after.version == before.version + 1
    assert_same(after.to_table(), pa.concat_tables([old, more]), name_of(fixture))
    assert [i["name"] for i in after.list_indices()] == [i["name"] for i in before.list_indices()]
    if "row_ids" in fixture.facts:
        ids = after.scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_pylist()
        assert ids[: old.num_rows] == fixture.facts["row_ids"]
        assert len(set(ids)) == len(ids)
