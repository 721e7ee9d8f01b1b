"""Tags: created, moved, described and deleted by one client, and read by the other."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import CorruptTableError, InvalidInputError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import tags as tag_store
from tests.support.tables.pylance_written import rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Main: versions 1 to 3; branch `feat/x`: 2 and 3."""
    path = tmp_path / "t"
    for start in range(3):
        lance.write_dataset(rows(start * 3), str(path), mode="append" if start else "create")
    branch = lance.dataset(str(path)).create_branch("feat/x", 2)
    lance.write_dataset(rows(50), branch, mode="append")
    return path


def both(path: Path) -> tuple[Dataset, lance.LanceDataset]:
    return open_dataset(str(path)), lance.dataset(str(path))


def text(path: Path, name: str) -> str:
    return (path / f"_refs/tags/{name}.json").read_text()


def test_tag_files_equal_those_of_pylance(path: Path) -> None:
    ours, theirs = both(path)
    ours.tags.create("a", ("feat/x", 3))
    theirs.tags.create("b", ("feat/x", 3))
    for name, tags in (("a", ours.tags), ("b", theirs.tags)):
        tags.update(name, 2)
        # One metadata key: pylance writes several keys in any order.
        tags.replace_metadata(name, {"b": 'ü"\n'})
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{3}){1,3}Z"
    result = text(path, "a")
    assert len(re.findall(time, result)) == 2
    assert re.sub(time, "T", result) == re.sub(time, "T", text(path, "b"))


def test_all_forms_of_references(path: Path) -> None:
    ours, theirs = both(path)
    on_branch = (
        ours.checkout_version(("feat/x", None)),
        theirs.checkout_version(("feat/x", None)),
    )
    references = [None, 2, ("feat/x", 2), ("feat/x", None), (None, 1), (None, None), ("main", 2)]
    for client, handles in enumerate(zip((ours, theirs), on_branch, strict=True)):
        for handle_number, handle in enumerate(handles):
            for at, reference in enumerate([*references, "t0-0-0"]):
                handle.tags.create(f"t{client}-{handle_number}-{at}", reference)
    tags = ours.tags.list()
    assert tags == theirs.tags.list()
    assert len(tags) == 32
    for name, tag in tags.items():
        twin = tags[f"t{1 - int(name[1])}{name[2:]}"]
        assert (tag["branch"], tag["version"]) == (twin["branch"], twin["version"])
        assert tag["manifest_size"] == twin["manifest_size"]
        our_dataset = open_dataset(str(path), tag=name)
        their_dataset = lance.dataset(str(path), version=name)
        assert (our_dataset.version, our_dataset.branch) == (their_dataset.version, tag["branch"])
        assert our_dataset.to_table() == their_dataset.to_table()
    assert ours.tags.list_ordered() == theirs.tags.list_ordered()
    assert ours.tags.list_ordered("asc") == theirs.tags.list_ordered("asc")


def test_pylance_and_this_package_change_tags_of_each_other(path: Path) -> None:
    ours, theirs = both(path)
    ours.tags.create("ours", 1)
    theirs.tags.create("theirs", 1)
    theirs.tags.replace_metadata("theirs", {"k": "v"})
    ours.tags.update("theirs", ("feat/x", 3))
    theirs.tags.update("ours", ("feat/x", 3))
    tags = ours.tags.list()
    assert tags == theirs.tags.list()
    for tag in tags.values():
        assert (tag["branch"], tag["version"]) == ("feat/x", 3)
        assert tag["created_at"] < tag["updated_at"]
    assert tags["theirs"]["metadata"] == {"k": "v"}
    assert ours.tags.get_version("theirs") == theirs.tags.get_version("ours") == 3
    theirs.tags.delete("ours")
    ours.tags.delete("theirs")
    assert ours.tags.list() == theirs.tags.list() == {}


def test_invalid_calls_are_refused(path: Path) -> None:
    tags = open_dataset(str(path)).tags
    tags.create("a", 1)
    with pytest.raises(InvalidInputError, match="tag 'a' already exists"):
        tags.create("a", 2)
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        tags.create("b", 9)
    with pytest.raises(VersionNotFoundError, match="no version 1: it has the versions 2 to 3"):
        tags.create("b", ("feat/x", 1))
    with pytest.raises(
        VersionNotFoundError, match="branch 'feat/y' not found: did you mean 'feat/x'"
    ):
        tags.create("b", ("feat/y", 1))
    for missing in (tags.update, tags.delete, tags.get_version):
        with pytest.raises(VersionNotFoundError, match="tag 'b' not found"):
            missing("b")
    with pytest.raises(InvalidInputError, match="must map strings to strings"):
        tags.replace_metadata("a", {"k": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match="reference must be"):
        tags.create("b", 1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="order must be"):
        tags.list_ordered("up")
    with pytest.raises(InvalidInputError, match="use ASCII characters only"):
        tags.create("é", 1)
    assert list(tags.list()) == ["a"]


def test_tag_files_of_early_releases_have_fewer_fields(path: Path) -> None:
    folder = path / "_refs/tags"
    folder.mkdir(parents=True)
    (folder / "old.json").write_text('{"version": 1, "manifestSize": 3, "other": [1]}')
    (folder / "main.json").write_text(
        '{"version": 2, "manifestSize": 3, "branch": "main", "createdAt": "2020-01-01T00:00:00+02:00"}'
    )
    ours, theirs = both(path)
    assert ours.tags.list()["old"] == theirs.tags.list()["old"]
    for name in ("created_at", "updated_at", "version", "metadata"):
        assert ours.tags.list()["main"][name] == theirs.tags.list()["main"][name]
    assert open_dataset(str(path), tag="main").version == 2
    ours.tags.update("old", 3)
    assert theirs.tags.list()["old"]["version"] == 3
    assert theirs.tags.list()["old"]["created_at"] is None


def test_a_name_that_is_not_ascii_can_be_read_and_deleted(path: Path) -> None:
    ours, theirs = both(path)
    theirs.tags.create("é", 1)
    assert ours.tags.get_version("é") == 1
    assert list(ours.tags.list()) == ["é"]
    ours.tags.delete("é")
    assert theirs.tags.list() == {}


GOOD = {"branch": None, "version": 1, "manifestSize": 3, "metadata": {}}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[1]",
        "[" * 100_000,
        "{" + '"a":{' * 5_000,
        '{"version": ' + "9" * 5_000 + "}",
        '{"version": 1e300}',
        '{"version": NaN}',
        *(
            json.dumps({**GOOD, **change})
            for change in (
                {"version": -1},
                {"version": 0},
                {"version": 2**64},
                {"version": "1"},
                {"version": True},
                {"version": None},
                {"branch": 5},
                {"branch": ""},
                {"branch": "/etc"},
                {"branch": "a/../../b"},
                {"branch": "a\x00b"},
                {"branch": "x" * 70 + "\\"},
                {"manifestSize": -1},
                {"manifestSize": "3"},
                {"metadata": []},
                {"metadata": {"a": 1}},
                {"createdAt": "yesterday"},
                {"createdAt": 5},
                {"updatedAt": "2020-01-01T00:00:00"},
                {"updatedAt": "9999-12-31T23:59:59-23:59"},
            )
        ),
    ],
    ids=lambda content: content[:40],
)
def test_corrupt_tag_files_are_refused(path: Path, content: str) -> None:
    folder = path / "_refs/tags"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_text(content)
    dataset = open_dataset(str(path))
    for look in (
        dataset.tags.list,
        lambda: dataset.tags.get_version("bad"),
        lambda: open_dataset(str(path), tag="bad"),
        lambda: dataset.tags.update("bad", 1),
    ):
        with pytest.raises(CorruptTableError, match=r"_refs/tags/bad\.json"):
            look()
    # A broken tag can be deleted.
    dataset.tags.delete("bad")
    assert dataset.tags.list() == {}


@pytest.mark.parametrize("cut", range(0, 170, 13))
def test_truncated_tag_files_are_refused(path: Path, cut: int) -> None:
    dataset = open_dataset(str(path))
    dataset.tags.create("t", 1)
    file = path / "_refs/tags/t.json"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(CorruptTableError, match=r"_refs/tags/t\.json"):
        dataset.tags.list()


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fx.json", "%2Fetc.json", "a%00b.json", "%61.json", "%.json", "a b.json"]
)
def test_files_with_invalid_tag_names_are_refused(path: Path, name: str) -> None:
    folder = path / "_refs/tags"
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(GOOD))
    with pytest.raises(CorruptTableError, match=re.escape(name)):
        open_dataset(str(path)).tags.list()


def test_other_files_in_the_folder_are_ignored(path: Path) -> None:
    folder = path / "_refs/tags"
    folder.mkdir(parents=True)
    (folder / ".t.json.0123.tmp").write_text("{")
    (folder / "README").write_text("{")
    assert open_dataset(str(path)).tags.list() == {}


def test_only_one_of_many_clients_creates_a_tag(path: Path) -> None:
    store = ObjectStore.from_uri(path)
    made = tag_store.create_tag(store, "t", 1)
    with pytest.raises(InvalidInputError, match="already"):
        tag_store.create_tag(store, "t", 2)
    assert tag_store.read_tag(store, "t") == made


@pytest.mark.parametrize(
    ("nanos", "expected"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000, "1970-01-01T00:00:01.500Z"),
        (1_000_001_000, "1970-01-01T00:00:01.000001Z"),
        (1_795_269_602_768_704_129, "2026-11-21T14:00:02.768704129Z"),
    ],
)
def test_times_are_formatted_as_pylance_does(nanos: int, expected: str) -> None:
    assert ref_json.format_time(nanos) == expected
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert ref_json.parse_time(expected) - epoch == datetime.timedelta(microseconds=nanos // 1000)


def test_error_about_a_tag_names_the_branch_of_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = write_dataset(pa.table({"id": [1]}), path)
    dataset.create_branch("dev")
    with pytest.raises(VersionNotFoundError, match="'dev' is a branch"):
        open_dataset(path, version="dev")
