"""Columns about rows, and rows by their ids: the same as pylance, at every version of tables
whose rows moved.
"""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.rows.ids import store_lineage
from tests.support.interop.blobs import extended, marked, table
from tests.support.tables.lineage import lived_in, versions_of

ALL = [
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
]
TABLES = [(v, s) for v in ("2.0", "2.1", "2.2") for s in ("stable", "spilled", "addresses")]


@pytest.fixture(scope="module", params=TABLES, ids="-".join)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    version, row_ids = request.param
    folder = tmp_path_factory.mktemp("rows") / "t.lance"
    lived_in(folder, version, stable=row_ids != "addresses", spill=row_ids == "spilled")
    return folder


def both(path: Path, version: int | None = None) -> tuple[Any, Any]:
    return lance_spark.open_dataset(str(path), version), lance.dataset(str(path), version=version)


def same(ours: pa.Table, theirs: pa.Table) -> None:
    assert ours.schema.equals(theirs.schema)
    assert ours.combine_chunks().equals(theirs.combine_chunks())


def with_row_ids(path: Path, ids: Any) -> None:
    """Rewrite the newest manifest with other row ids, or no row ids, for its first fragment."""
    store = ObjectStore.from_uri(path)
    location = list_manifests(store)[0]
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    proto.fragments[0].ClearField("inline_row_ids")
    if ids is not None:
        store_lineage(proto.fragments[0], row_ids=ids)
    (path / location.path).write_bytes(encode(proto, None, manifest.transaction_section))


@pytest.mark.sample(3)
def test_at_every_version(path: Path) -> None:
    for version in versions_of(path):
        ours, theirs = both(path, version)
        for name in ALL:
            same(ours.to_table([name]), theirs.to_table(columns=[name]))
        same(ours.to_table(["id", *ALL]), theirs.to_table(columns=["id", *ALL]))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["_rowaddr", "s", "_rowid", "id", "_rowoffset"]},
        {"with_row_id": True, "with_row_address": True},
        {"columns": ["_rowid", "id"], "with_row_address": True},
        {"columns": ["_rowid", "_rowaddr", "id"], "with_row_id": True},
        {"columns": ["_rowaddr", "_rowid", "id"], "with_row_id": True, "with_row_address": True},
        {"columns": [], "with_row_id": True},
        {"columns": ["_row_created_at_version", "id"], "with_row_address": True},
    ],
    ids=str,
)
def test_order_and_types(path: Path, options: dict[str, Any]) -> None:
    ours, theirs = both(path)
    same(ours.to_table(**options), theirs.to_table(**options))
    assert ours.schema_of(**options).equals(theirs.to_table(**options).schema)


def test_tasks_that_start_in_the_middle(path: Path) -> None:
    ours, theirs = both(path)
    tasks = ours.plan(["s", *ALL], rows_per_task=7, batch_size=3)
    assert len(tasks) > 10
    batches = [pickle.loads(pickle.dumps(task)).batches() for task in reversed(tasks)]
    table_read = pa.Table.from_batches(itertools.chain(*reversed(batches)))
    same(table_read, theirs.to_table(columns=["s", *ALL]))


def test_tasks_do_not_carry_what_they_do_not_read(tmp_path: Path) -> None:
    """Unordered ids take megabytes of the manifest, and every slice of the fragment would have
    them.
    """
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": range(50_000)}), str(path), enable_stable_row_ids=True)
    ids = np.random.default_rng(1).permutation(50_000).astype(np.uint64)
    with_row_ids(path, ids)
    ours, theirs = both(path)
    tasks = ours.plan(["id"], rows_per_task=5_000)
    assert sum(len(pickle.dumps(task)) for task in tasks) < 30_000
    assert ours.to_table(["id"], filters=[("_rowid", "<", 3)]).equals(
        theirs.to_table(columns=["id"], filter="_rowid < 3")
    )
    same(ours.to_table(["_rowid", "_rowaddr"]), theirs.to_table(columns=["_rowid", "_rowaddr"]))
    same(ours.take_rows([7, 5, 9], ["id"]), theirs._take_rows([7, 5, 9], columns=["id"]))


@pytest.mark.sample(2)
def test_with_filters(path: Path) -> None:
    ours, theirs = both(path)
    for ours_filter, theirs_filter in [
        (("id", ">", 60), "id > 60"),
        (("_rowid", ">=", 2**33), f"_rowid >= {2**33}"),
        (("_rowid", "in", [3, 4, 111]), "_rowid in (3, 4, 111)"),
        (("_rowaddr", "<", 2**34), f"_rowaddr < {2**34}"),
        (("_row_last_updated_at_version", ">", 3), "_row_last_updated_at_version > 3"),
        (("_row_created_at_version", "!=", 1), "_row_created_at_version != 1"),
    ]:
        for columns in (["id", *ALL], ["id"], ["_rowoffset"]):
            table_read = ours.to_table(columns, filters=[ours_filter])
            same(table_read, theirs.to_table(columns=columns, filter=theirs_filter))
    # pylance has no filter on row offsets.
    table_read = ours.to_table(["id"], filters=[("_rowoffset", ">=", 10), ("_rowoffset", "<", 13)])
    assert table_read.equals(ours.take([10, 11, 12], ["id"]))


def test_rows_by_position(path: Path) -> None:
    ours, theirs = both(path)
    positions = [ours.count_rows() - 1, 0, 17, 0, 3]
    same(ours.take(positions, ["id", *ALL]), theirs.take(positions, columns=["id", *ALL]))
    table_read = ours.take(positions, ["_row_created_at_version"])
    same(table_read, ours.to_table(["_row_created_at_version"]).take(positions))


@pytest.mark.sample(3)
def test_rows_by_id(path: Path) -> None:
    rng = np.random.default_rng(3)
    for version in versions_of(path):
        ours, theirs = both(path, version)
        ids = rng.permutation(ours.to_table(["_rowid"])["_rowid"].to_numpy())[:60]
        ids = np.concatenate([ids, ids[:5]])
        for columns in (["id", "s"], ["s", *ALL]):
            expected = theirs._take_rows(ids.tolist(), columns=columns)
            same(ours.take_rows(ids, columns), expected)
        same(ours.take_rows(pa.array(ids)), theirs._take_rows(ids.tolist()))
        assert ours.take_rows([]).num_rows == 0
    # Rows that an update moved are no longer at their first address. Deleted rows have no address.
    known = set(ours.to_table(["_rowid"])["_rowid"].to_pylist())
    requested = [*range(200), (40 << 32) + 1, 2**62]
    row_ids = ours.take_rows(requested, ["_rowid"])["_rowid"].to_pylist()
    assert row_ids == [row_id for row_id in requested if row_id in known]
    assert len(row_ids) < 200
    with pytest.raises(InvalidInputError, match="-1"):
        ours.take_rows([-1])


@pytest.mark.parametrize(
    "columns", [["_rowid", "_rowid"], ["_rowaddr", "id", "_rowid", "_rowaddr"], ["id", "id"]]
)
def test_columns_that_are_taken_twice(tmp_path: Path, columns: list[str]) -> None:
    theirs = lance.write_dataset(pa.table({"id": [5, 6, 7]}), str(tmp_path / "t.lance"))
    ours = lance_spark.open_dataset(theirs.uri)
    expected = theirs.take([2, 0, 2], columns=columns)
    table_read = ours.take([2, 0, 2], columns)
    assert table_read.column_names == expected.column_names
    assert [column.to_pylist() for column in table_read.columns] == [
        column.to_pylist() for column in expected.columns
    ]
    assert ours.take_rows([2, 0], columns).column_names == expected.column_names


def test_names_are_refused(path: Path) -> None:
    ours, _ = both(path)
    for columns, message in [
        (["_rowid", "_rowid"], "'_rowid' is selected twice"),
        (["_ROWID"], "no field '_ROWID'"),
        (["_rowid.x"], "no field '_rowid'"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            ours.to_table(columns)
    assert "_rowid" not in ours.to_table().column_names


def test_fragment_ids(path: Path) -> None:
    ours, theirs = both(path)
    fragment_ids = ours.to_table(["_fragid"])["_fragid"]
    assert fragment_ids.type == pa.int32()
    addresses = theirs.to_table(columns=["_rowaddr"])["_rowaddr"].to_numpy()
    assert np.array_equal(fragment_ids.to_numpy(), addresses >> 32)


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_with_blobs(tmp_path: Path, version: str) -> None:
    """Windows with blobs are cut by the size of the blobs. Other columns are cut in the same
    way.
    """
    path = tmp_path / "t.lance"
    values = [None if i % 9 == 4 else bytes([i]) * (i * 900) for i in range(120)]
    rows = table(marked(values) if version == "2.0" else extended(values))
    options = {"data_storage_version": version, "enable_stable_row_ids": True}
    lance.write_dataset(rows, str(path), max_rows_per_file=50, **options)
    dataset = lance.dataset(str(path))
    dataset.update({"i": "i + 1000"}, where="i % 10 = 3")
    dataset.delete("i % 8 = 1")
    ours, theirs = both(path)
    same(ours.to_table(["i", *ALL]), theirs.to_table(columns=["i", *ALL]))
    table_read = ours.to_table(["_rowid", "b", "_rowoffset", "i"], blob_handling="all_binary")
    assert table_read["_rowoffset"].to_pylist() == list(range(table_read.num_rows))
    for row in table_read.to_pylist():
        assert row["b"] == values[row["i"] % 1000]
    same(table_read.select(["_rowid", "i"]), theirs.to_table(columns=["_rowid", "i"]))
    ids = table_read["_rowid"].to_pylist()[::-7]
    files = ours.take_blobs("b", ids=ids)
    expected = {row["_rowid"]: row["b"] for row in table_read.to_pylist()}
    assert [file and file.read() for file in files] == [expected[row_id] for row_id in ids]
    gone = next(row_id for row_id in range(120) if row_id not in expected)
    with pytest.raises(InvalidInputError, match=f"no row has the id {gone}"):
        ours.take_blobs("b", ids=[ids[0], gone])


def test_version_0_1(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    rows = pa.table({"id": range(90)})
    lance.write_dataset(rows, str(path), data_storage_version="0.1", max_rows_per_file=40)
    lance.dataset(str(path)).delete("id % 4 = 1")
    ours, theirs = both(path)
    for columns in (["_rowid", "id", "_rowaddr"], ["_rowaddr"], ["_rowid"]):
        same(ours.to_table(columns), theirs.to_table(columns=columns))
    table_read = ours.to_table(ALL, filters=[("id", ">", 50)])
    addresses = theirs.to_table(columns=["_rowaddr"], filter="id > 50")["_rowaddr"].to_pylist()
    assert table_read["_rowaddr"].to_pylist() == table_read["_rowid"].to_pylist() == addresses
    skipped = theirs.count_rows("id <= 50")
    assert table_read["_rowoffset"].to_pylist() == list(
        range(skipped, skipped + table_read.num_rows)
    )
    assert set(table_read["_row_created_at_version"].to_pylist()) == {1}
    ids = [addresses[3], 2, addresses[0]]
    assert ours.take_rows(ids, ["id"]).equals(theirs._take_rows(ids, columns=["id"]))


def test_a_column_of_the_table_that_has_such_a_name(tmp_path: Path) -> None:
    """pylance adds such columns, but cannot read them."""
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(pa.table({"id": range(5)}), str(path))
    dataset.add_columns({"_rowid": "id * 10"})
    ours = lance_spark.open_dataset(str(path))
    assert ours.to_table(["_rowid", "_rowaddr"]).to_pydict() == {
        "_rowid": [0, 10, 20, 30, 40],
        "_rowaddr": [0, 1, 2, 3, 4],
    }
    with pytest.raises(InvalidInputError, match="a column named '_rowid'"):
        ours.to_table(with_row_id=True)


@pytest.mark.parametrize("name", ALL)
def test_tables_with_such_columns_are_not_made(tmp_path: Path, name: str) -> None:
    rows = pa.table({"id": [1], name: [2]})
    with pytest.raises(InvalidInputError, match=name):
        lance_spark.write_dataset(rows, str(tmp_path / "ours"))
    with pytest.raises(OSError, match=name):
        lance.write_dataset(rows, str(tmp_path / "theirs"))


def test_a_fragment_without_row_ids_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": range(5)}), str(path), enable_stable_row_ids=True)
    with_row_ids(path, None)
    ours = lance_spark.open_dataset(str(path))
    for read in (
        lambda: ours.to_table(["_rowid"]),
        lambda: ours.take([0], ["_rowid"]),
        lambda: ours.take_rows([0]),
    ):
        with pytest.raises(CorruptTableError, match="fragment 0 has no row ids"):
            read()
    assert ours.to_table().num_rows == 5


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    "columns", [["k", "_rowoffset"], ["k", "_rowid", "_rowaddr"], ["_rowaddr", "k", "_rowoffset"]]
)
def test_hidden_columns_with_deleted_rows(tmp_path: Path, stable: bool, columns: list[str]) -> None:
    path = str(tmp_path / "t")
    data = pa.table({"k": range(8)})
    lance.write_dataset(data, path, max_rows_per_file=4, enable_stable_row_ids=stable)
    lance.dataset(path).delete("k in (1, 2, 5)")
    options = {"columns": columns, "include_deleted_rows": True, "with_row_id": True}
    theirs = lance.dataset(path).scanner(**options).to_table()
    mine = lance_spark.open_dataset(path).scanner(**options).to_table()
    assert mine.select(theirs.column_names).to_pydict() == theirs.to_pydict()
