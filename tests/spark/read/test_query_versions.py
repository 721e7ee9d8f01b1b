"""A query that scans a table twice reads one version of it, also if a tag is moved in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lance_spark.errors import UnsupportedError
from lance_spark.spark.pushdown.request import Version
from tests.support.spark.requests import ask

BRANCH = "süd/way.1"


@pytest.fixture
def tagged(tmp_path: Path) -> str:
    """Write versions with one and with two rows, a branch with three rows, and a tag at the first
    version.
    """
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"row": [1], "twice": [2]}), uri)
    lance.dataset(uri).create_branch(BRANCH, 1)
    more = pa.table({"row": [2, 3], "twice": [4, 6]})
    lance.dataset(uri).checkout_version((BRANCH, None)).insert(more)
    lance.write_dataset(pa.table({"row": [2], "twice": [4]}), uri, mode="append")
    lance.dataset(uri).tags.create("now", 1)
    return uri


@pytest.mark.parametrize(
    ("first", "second", "rows"),
    [
        (1, 2, [1]),
        (2, 1, [1, 2]),
        (1, (BRANCH, 2), [1]),
        ((BRANCH, 2), 1, [1, 2, 3]),
        ((BRANCH, 2), 2, [1, 2, 3]),
    ],
)
@pytest.mark.parametrize("below", ["", f"/tree/{BRANCH}"])
def test_a_tag_that_is_moved_between_two_scans(
    tagged: str, first: Any, second: Any, rows: list[int], below: str
) -> None:
    tags = lance.dataset(tagged).tags
    tags.update("now", first)
    planned = ask(tagged + below, ["row"], {}, tag="now")
    assert planned.column("row") == rows
    assert planned.at.isascii()
    tags.update("now", second)
    assert ask(tagged + below, ["row"], {}, tag="now").column("row") != rows
    again = ask(tagged + below, ["twice"], {"at": planned.at}, tag="now")
    assert again.column("twice") == [2 * row for row in rows]
    assert again.at == planned.at
    tags.delete("now")
    # The table with which the query was analysed.
    known = StructType([StructField("row", LongType())])
    assert ask(tagged + below, known, {"at": planned.at}, tag="now").column("row") == rows


def test_version_names_round_trip() -> None:
    for version in (
        Version(7),
        Version(7, "main"),
        Version(1 << 63, BRANCH),
        Version(0, "a;b @c%"),
    ):
        text = str(version)
        assert Version.parse(text) == version
        assert not set(text) & set("; ")
    for text in ("", "x", "main", "@7", "main@", "main@x", "7@main", "-1", "main@-1", "٣", None, 7):
        with pytest.raises(UnsupportedError, match="the version is malformed"):
            Version.parse(text)


@pytest.mark.parametrize("at", [2, (BRANCH, 2)])
def test_a_join_of_a_tagged_version_with_itself(
    read: Callable[..., Any], pushdown: Callable[[bool], None], tagged: str, at: Any
) -> None:
    lance.dataset(tagged).tags.update("now", at)
    pushdown(True)
    left = read(tag="now").where("row > 0").selectExpr("row as id")
    right = read(tag="now").selectExpr("row as id", "twice")
    joined = left.join(right, "id")
    plan = joined._jdf.queryExecution().executedPlan().toString()
    # Two scans, and those of the keys that filter them.
    assert plan.count("lance pushdown") >= 2
    assert len(set(re.findall(r" version=(\S+)", plan))) == 1
    expected = lance.dataset(tagged, version="now").to_table().to_pylist()
    assert len(expected) in (2, 3)
    result = [{"row": item["id"], "twice": item["twice"]} for item in joined.collect()]
    assert sorted(result, key=lambda item: item["row"]) == expected
