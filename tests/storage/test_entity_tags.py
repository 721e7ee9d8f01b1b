"""Tags of files, from listings of different packages."""

from __future__ import annotations

import datetime

from lance_spark.storage.kept_ranges import tag_of

TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER = TIME + datetime.timedelta(seconds=1)


def test_what_a_tag_depends_on() -> None:
    entries = [
        {"ETag": '"a"', "Size": 1, "LastModified": TIME},
        {"ETag": '"b"', "Size": 1, "LastModified": TIME},
        # The bytes of before, restored from a copy.
        {"ETag": '"a"', "Size": 1, "LastModified": LATER},
        {"etag": "a", "size": 1, "last_modified": TIME},
        {"e_tag": "b", "size": 1, "last_modified": LATER},
        {"etag": "a", "generation": "1", "size": "1", "updated": "2026"},
        {"etag": "a", "generation": "2", "size": "1", "updated": "2026"},
    ]
    assert len({tag_of(entry) for entry in entries}) == len(entries)
    assert all(tag_of(dict(entry)) == tag_of(entry) for entry in entries)


def test_a_listing_without_entity_tags() -> None:
    for entry in ({"size": 1, "mtime": 1.5}, {"ETag": "", "Size": 1, "LastModified": TIME}):
        assert tag_of(entry) is None
