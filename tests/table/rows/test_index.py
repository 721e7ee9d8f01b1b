"""Lookup of row addresses by row id, after each operation of pylance that moves rows."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.addresses import RowIndex, first_address, live_addresses
from lance_spark.table.rows.sequences import encode_row_ids
from tests.support.tables.lineage import lived_in, versions_of


def fragment(number: int, ids: range | list[int] | None) -> Fragment:
    message = table_pb2.DataFragment(id=number, physical_rows=len(ids or ()))
    if ids is not None:
        message.inline_row_ids = encode_row_ids(np.array(ids, np.uint64))
    return Fragment.from_proto(message, "m.manifest")


@pytest.mark.parametrize("spill", [False, True], ids=["inline", "hidden columns"])
def test_every_live_row_is_found_and_no_other(tmp_path: Path, spill: bool) -> None:
    path = tmp_path / "t.lance"
    lived_in(path, spill=spill)
    paths = TablePaths.open(str(path))
    for version in versions_of(path):
        rows = lance.dataset(str(path), version=version).to_table(columns=["_rowid", "_rowaddr"])
        expected = dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        index = RowIndex.build(paths, open_dataset(str(path), version).fragments)
        row_ids = np.array([*range(400), 2**63, 2**64 - 1, 3, 3], np.uint64)
        result, addresses = index.addresses(row_ids)
        assert result.tolist() == [item in expected for item in row_ids.tolist()]
        assert addresses[result].tolist() == [expected[item] for item in row_ids[result].tolist()]


def test_row_addresses_without_stable_row_ids(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    expected = lived_in(path, stable=False).to_table(columns=["_rowaddr"])["_rowaddr"].to_pylist()
    fragments = open_dataset(str(path)).fragments
    numbers = range(max(item.id for item in fragments) + 2)
    row_ids = np.array([(n << 32) + i for n in numbers for i in range(220)][::-1], np.uint64)
    result, addresses = live_addresses(TablePaths.open(str(path)), fragments, row_ids)
    assert sorted(addresses[result].tolist()) == sorted(expected)


def test_remote_fragments_are_read_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.lance"
    rows = lived_in(path, spill=True).to_table(columns=["_rowid", "_rowaddr"])
    monkeypatch.setattr(ObjectStore, "is_local", property(lambda _: False))
    dataset = open_dataset(str(path))
    result, addresses = RowIndex.build(TablePaths.open(str(path)), dataset.fragments).addresses(
        rows["_rowid"].to_numpy()
    )
    assert result.all()
    assert addresses.tolist() == rows["_rowaddr"].to_pylist()
    ids = rows["_rowid"].to_pylist()[::-1]
    assert dataset.take_rows(ids, ["_rowid"])["_rowid"].to_pylist() == ids


def test_an_id_of_two_live_rows_is_refused() -> None:
    paths = TablePaths.open("/nowhere")
    first, second = fragment(0, range(10)), fragment(5, [100, 9])
    with pytest.raises(CorruptTableError, match=r"row id 9 belongs to two live rows"):
        RowIndex.build(paths, [first, second])
    assert RowIndex.build(paths, [first, fragment(5, [100, 10])]).addresses(
        np.array([10], np.uint64)
    )[1].tolist() == [(5 << 32) + 1]
    result, _ = RowIndex.build(paths, []).addresses(np.array([0], np.uint64))
    assert not result.any()


def test_corrupt_fragments_are_refused() -> None:
    paths = TablePaths.open("/nowhere")
    with pytest.raises(CorruptTableError, match=r"m.manifest: fragment 3 has no row ids"):
        RowIndex.build(paths, [fragment(3, None)])
    with pytest.raises(CorruptTableError, match="fragment id 1099511627776 is out of range"):
        first_address(fragment(2**40, []))
    short = fragment(3, range(10)).to_proto()
    short.physical_rows = 9
    with pytest.raises(CorruptTableError, match="10 row ids"):
        RowIndex.build(paths, [Fragment.from_proto(short, "m.manifest")])
    hidden = table_pb2.DataFragment(id=3, physical_rows=2)
    hidden.column_row_ids.SetInParent()
    with pytest.raises(CorruptTableError, match=r"column -3 \(row_id_sequence\) not found"):
        RowIndex.build(paths, [Fragment.from_proto(hidden, "m.manifest")])


@pytest.mark.slow
def test_one_hundred_thousand_fragments_are_as_many_runs() -> None:
    fragments, next_id = [], 0
    for number in range(100_000):
        message = table_pb2.DataFragment(id=number, physical_rows=1_000_000)
        next_id = row_ids.assign_lineage(message, next_id, 1)
        fragments.append(Fragment.from_proto(message, "m.manifest"))
    index = RowIndex.build(TablePaths.open("/nowhere"), fragments)
    wanted = np.array([0, 999_999, 1_000_000, 10**11 - 1, 10**11], np.uint64)
    result, addresses = index.addresses(wanted)
    assert result.tolist() == [True] * 4 + [False]
    assert addresses[:4].tolist() == [0, 999_999, 1 << 32, (99_999 << 32) + 999_999]


def test_unreadable_deletion_files_fail_the_lookup(tmp_path: Path) -> None:
    """The fragment that a row was in before an update still has its id."""
    path = tmp_path / "t.lance"
    lived_in(path)
    paths = TablePaths.open(str(path))
    gone = [
        fragment
        for fragment in open_dataset(str(path), 4).fragments
        if fragment.deletion_file is not None
    ]
    assert gone
    lost = gone[0].to_proto()
    lost.deletion_file.CopyFrom(DeletionFile(DeletionFileType.ARROW, 1, 2, 3).to_proto())
    with pytest.raises(Exception, match=r"0-1-2\.arrow"):
        RowIndex.build(paths, [Fragment.from_proto(lost, "m.manifest")])
