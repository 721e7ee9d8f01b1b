from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from lance_spark.storage.listing import modified
from lance_spark.storage.store import ObjectStore

_WHEN = datetime.datetime(2025, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "entry",
    [
        {"mtime": _WHEN.timestamp(), "created": 0.0},
        {"LastModified": _WHEN},
        {"last_modified": _WHEN.replace(tzinfo=None)},
        {"last_modified": _WHEN.astimezone(datetime.timezone(datetime.timedelta(hours=5)))},
        {"updated": "2025-03-01T12:00:00Z", "mtime": None},
        {"updated": "a while ago", "created": _WHEN},
    ],
)
def test_times_of_stores(entry: dict[str, object]) -> None:
    assert modified(entry) == _WHEN.timestamp()


@pytest.mark.parametrize("entry", [{}, {"mtime": None}, {"mtime": True}, {"updated": "yesterday"}])
def test_unknown_times(entry: dict[str, object]) -> None:
    assert modified(entry) is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.lance").write_bytes(b"abc")
    (tmp_path / "t" / "data").mkdir(parents=True)
    (tmp_path / "t" / "data" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "t" / "data" / "loop").symlink_to(tmp_path / "t")
    (tmp_path / "t" / "data" / "own.lance").write_bytes(b"1")
    store = ObjectStore.from_uri(tmp_path / "t")
    assert [info.path for info in store.list_tree("data")] == ["data/own.lance"]
