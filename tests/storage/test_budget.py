"""The number of requests to S3 of an operation, beside pylance: the table in
docs/reference/requests.md has the limits.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import moto.s3.models
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode, read_manifest
from tests.support.stores.aws import BUCKET, Aws

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "requests.md"
FRAGMENTS = 10
ROWS = 100
MANY = 1_000
NOW = datetime.timedelta(0)
ONE_EACH = tuple(range(5, FRAGMENTS * ROWS, ROWS))
TAKEN = [1, 5, 100, 150, 250, 350, 450, 550, 650, 750]
_ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<requests>\d+) \| (?P<more>\d+|-) \|")


def budget() -> dict[str, tuple[int, int | None]]:
    """Maximum number of requests, and how many more than pylance, by operation."""
    result = (_ROW.fullmatch(line.strip()) for line in DOCS.read_text().splitlines())
    return {
        row["what"].strip(): (
            int(row["requests"]),
            None if row["more"] == "-" else int(row["more"]),
        )
        for row in result
        if row is not None
    }


def rows(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "x": pa.array(range(start, stop), pa.int64()),
            "y": pa.array([f"row {n}" for n in range(start, stop)]),
            "z": pa.array(np.arange(start, stop, dtype=np.float32)),
        }
    )


class Side:
    """A table for one of the clients."""

    def __init__(self, aws: Aws, uri: str) -> None:
        self.aws, self.uri = aws, uri

    def ours(self, version: int | None = None, tag: str | None = None) -> lance_spark.Dataset:
        return lance_spark.open_dataset(self.uri, version, tag=tag, storage_options=self.aws.ours)

    def theirs(self, version: int | str | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri, version, storage_options=self.aws.theirs)

    def we_append(self, count: int) -> None:
        lance_spark.write_dataset(
            rows(0, count * ROWS),
            self.uri,
            "append",
            max_rows_per_file=ROWS,
            storage_options=self.aws.ours,
        )

    def they_append(self, count: int) -> None:
        lance.write_dataset(
            rows(0, count * ROWS),
            self.uri,
            mode="append",
            max_rows_per_file=ROWS,
            storage_options=self.aws.theirs,
        )


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten fragments, three versions, a tag."""
    path = tmp_path_factory.mktemp("budget") / "t"
    dataset = lance.write_dataset(rows(0, FRAGMENTS * ROWS), str(path), max_rows_per_file=ROWS)
    dataset.update_config({"a": "b"})
    dataset.update_config({"a": "c"})
    dataset.tags.create("first", 1)
    return path


def put(key: str, data: bytes) -> None:
    """Store an object without a request, because a thousand requests would take long."""
    backend = next(iter(moto.s3.models.s3_backends.values()))["aws"]
    backend.put_object(BUCKET, key, data)


@pytest.fixture(scope="module")
def upload(aws: Aws, local: Path) -> Callable[[str], Side]:
    files = {
        file.relative_to(local).as_posix(): file.read_bytes()
        for file in local.rglob("*")
        if file.is_file()
    }

    def uploaded(name: str) -> Side:
        for path, data in files.items():
            put(f"{name}/{path}", data)
        return Side(aws, f"s3://{BUCKET}/{name}")

    # Requests of each process: whether the server honours conditions, the region, first requests of
    # packages.
    warm = uploaded("warm")
    warm.we_append(1)
    warm.they_append(1)
    return uploaded


@pytest.fixture(scope="module")
def long(aws: Aws, upload: Callable[[str], Side]) -> Side:
    """1,000 versions, and 1,000 fragments in the newest version."""
    side = upload("long")
    store = ObjectStore.from_uri(side.uri, aws.ours)
    manifest = read_manifest(store, versions.latest(store))
    proto = type(manifest.message)()
    proto.CopyFrom(manifest.message)
    proto.version = MANY
    fragment = proto.fragments[0]
    del proto.fragments[:]
    for number in range(MANY):
        proto.fragments.add().CopyFrom(fragment)
        proto.fragments[-1].id = number
    proto.max_fragment_id = MANY - 1
    proto.transaction_file = ""
    for number in range(4, MANY):
        put(f"long/{versions.NamingScheme.V2.locate(number).path}", b"not read")
    put(f"long/{versions.NamingScheme.V2.locate(MANY).path}", encode(proto, None, None))
    return side


#: Preparation, which is not counted, and the counted calls of both clients.
OPERATIONS: dict[str, tuple[tuple[Callable[[Side], Any], Callable[[Any], object]], ...]] = {}


def operation(
    name: str,
    ours: Callable[[Any], object],
    theirs: Callable[[Any], object],
    *,
    opened: bool = True,
) -> None:
    if opened:
        OPERATIONS[name] = ((Side.ours, ours), (Side.theirs, theirs))
    else:
        OPERATIONS[name] = ((_as_it_is, ours), (_as_it_is, theirs))


def _built(opened: Callable[[Side], Any]) -> Callable[[Side], tuple[Any, list[Any]]]:
    """Return a function that builds a segment of an index over each fragment."""

    def build(side: Side) -> tuple[Any, list[Any]]:
        dataset = opened(side)
        parts = [
            dataset.create_index_uncommitted("x", "BTREE", fragment_ids=[number])
            for number in range(FRAGMENTS)
        ]
        return dataset, parts

    return build


def _commit_segments(built: tuple[Any, list[Any]]) -> None:
    dataset, parts = built
    dataset.commit_existing_index_segments("i", "x", parts)


def _as_it_is(side: Side) -> Side:
    return side


operation("open the newest version", Side.ours, Side.theirs, opened=False)
operation("open a version by its number", lambda s: s.ours(2), lambda s: s.theirs(2), opened=False)
operation("open a version by its tag", lambda s: s.ours(tag="first"), lambda s: s.theirs("first"), opened=False)  # fmt: skip
operation("count rows", lambda d: d.count_rows(), lambda d: d.count_rows())
operation("scan 10 fragments", lambda d: d.to_table(), lambda d: d.to_table())
operation("scan 2 columns of 10 fragments", lambda d: d.to_table(["x", "z"]), lambda d: d.to_table(["x", "z"]))  # fmt: skip
operation("scan 10 fragments by a filter", lambda d: d.to_table(filter="x = 5"), lambda d: d.to_table(filter="x = 5"))  # fmt: skip
operation("take 10 rows of 8 fragments", lambda d: d.take(TAKEN), lambda d: d.take(TAKEN))
operation("take 10 rows of 1 fragment", lambda d: d.take([*range(10)]), lambda d: d.take([*range(10)]))  # fmt: skip
operation("append 1 file", lambda s: s.we_append(1), lambda s: s.they_append(1), opened=False)
operation("append 4 files", lambda s: s.we_append(4), lambda s: s.they_append(4), opened=False)
operation("change the configuration", lambda d: d.update_config({"k": "v"}), lambda d: d.update_config({"k": "v"}))  # fmt: skip
operation("delete rows of 1 of 10 fragments", lambda d: d.delete([("x", "<", 5)]), lambda d: d.delete("x < 5"))  # fmt: skip
operation("delete rows of 10 fragments", lambda d: d.delete([("x", "in", ONE_EACH)]), lambda d: d.delete(f"x in {ONE_EACH}"))  # fmt: skip
operation("update rows of 1 of 10 fragments", lambda d: d.update({"z": 1.0}, [("x", "==", 8)]), lambda d: d.update({"z": "1.0"}, "x = 8"))  # fmt: skip
operation("compact 10 fragments", lambda d: d.compact_files(), lambda d: d.optimize.compact_files())
operation("add a column of NULL", lambda d: d.add_columns(pa.field("n", pa.int64())), lambda d: d.add_columns(pa.field("n", pa.int64())))  # fmt: skip
operation("add a column to 10 fragments", lambda d: d.add_columns(_doubled), lambda d: d.add_columns(_doubled, ["x"]))  # fmt: skip
operation("drop a column", lambda d: d.drop_columns(["z"]), lambda d: d.drop_columns(["z"]))
OPERATIONS["commit 10 segments of an index"] = (
    (_built(Side.ours), _commit_segments),
    (_built(Side.theirs), _commit_segments),
)
operation("make a tag", lambda d: d.tags.create("t", 2), lambda d: d.tags.create("t", 2))
operation("list 1 tag", lambda d: d.tags.list(), lambda d: d.tags.list())
operation("delete a tag", lambda d: d.tags.delete("first"), lambda d: d.tags.delete("first"))
operation("list 3 versions", lambda d: d.versions(), lambda d: d.versions())


def _clean_up(dataset: Any) -> object:
    return dataset.cleanup_old_versions(older_than=NOW, error_if_tagged_old_versions=False)


def _compacted(opened: Callable[[Side], Any], compact: Callable[[Any], Any]) -> Any:
    """Return a function that compacts a table without tags, and opens it again."""

    def prepare(side: Side) -> Any:
        dataset = opened(side)
        dataset.tags.delete("first")
        compact(dataset)
        return opened(side)

    return prepare


operation("clean up 1 of 3 versions", _clean_up, _clean_up)
OPERATIONS["clean up 4 versions and 10 files"] = (
    (_compacted(Side.ours, lambda d: d.compact_files()), _clean_up),
    (_compacted(Side.theirs, lambda d: d.optimize.compact_files()), _clean_up),
)


def _doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"w": batch.column("x")})


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(aws: Aws, upload: Callable[[str], Side], name: str) -> None:
    most, more = budget()[name]
    counts = []
    for number, (begin, act) in enumerate(OPERATIONS[name]):
        side = begin(upload(f"{name.replace(' ', '-')}-{number}"))
        with aws.counted() as requests:
            act(side)
        counts.append(requests)
    ours, theirs = counts
    assert len(ours) <= most, ours
    assert more is not None
    assert len(ours) <= len(theirs) + more, theirs


def test_a_long_history_and_many_fragments(aws: Aws, long: Side) -> None:
    allowed = budget()
    with aws.counted() as requests:
        dataset = long.ours()
    assert dataset.version == MANY
    assert len(dataset.fragments) == MANY
    assert len(requests) == allowed["open the newest of 1,000 versions"][0]
    with aws.counted() as theirs:
        assert long.theirs().version == MANY
    assert len(requests) <= len(theirs)
    with aws.counted() as requests:
        assert sum(len(task.slices) for task in dataset.plan(["x"], filter="x > 5")) == MANY
        assert dataset.count_rows() == MANY * ROWS
    assert len(requests) == allowed["plan a scan of 1,000 fragments"][0]
    # A commit requests new versions, not older versions.
    with aws.counted() as requests:
        dataset.update_config({"a": "d"})
    assert len(requests) == allowed["change the configuration"][0]


def test_the_documentation_names_what_is_measured() -> None:
    documented = {"open the newest of 1,000 versions", "plan a scan of 1,000 fragments"}
    assert set(budget()) == set(OPERATIONS) | documented
