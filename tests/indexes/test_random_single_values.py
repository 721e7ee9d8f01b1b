"""Random changes by pylance: a column that is said to have one value in each fragment has it."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.aggregates import single_values
from lance_spark.table.indexes.sections import read_section
from tests.proto.tables import column_file
from tests.support.cells import number_of

HISTORIES = number_of(4, 100)
NOON = dt.datetime(2024, 3, 10, 12)
LONG = "long " * 400
#: Types of columns, and their few values. Bounds must not be cut off, or rounded.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, 0, 127]),
    "num": (pa.int32(), [-(2**31), 3, 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), 2**53, 2**53 + 1, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 2**64 - 2, 2**64 - 1]),
    "ok": (pa.bool_(), [True, False]),
    "word": (pa.string(), ["", "a", "A", LONG + "x", LONG + "y"]),
    "large": (pa.large_string(), ["", "a", LONG + "x", LONG + "y"]),
    "raw": (pa.binary(), [b"", b"\0", LONG.encode() + b"x", LONG.encode() + b"y"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 3, 10)]),
    "at": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.UTC, microsecond=n) for n in (0, 1)]),
    "price": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-3.00")]),
    "x": (pa.float64(), [0.0, float("nan"), 1.5]),
}


class History:
    """A table in which most fragments have one value of each column."""

    def __init__(self, seed: int, path: Path) -> None:
        self._rng = random.Random(seed)
        self._path = path
        self._next_id = 0
        self.log: list[str] = []
        stable = self._rng.random() < 0.4
        rows = self._rows()
        lance.write_dataset(rows, path, enable_stable_row_ids=stable)
        for _ in range(self._rng.randrange(4)):
            self._append()
        for name in COLUMNS:
            if self._rng.random() < 0.8:
                self._dataset().create_scalar_index(name, "ZONEMAP")

    def change(self) -> None:
        """Make a random change."""
        changes: tuple[Callable[[], None], ...] = (
            self._append,
            self._optimize,
            self._optimize,
            self._delete,
            self._update,
            self._update_columns,
            self._overlay,
            self._overlay,
            self._compact,
            self._merge_insert,
            self._restore,
        )
        change = self._rng.choice(changes)
        self.log.append(change.__name__)
        change()

    def _dataset(self) -> Any:
        return lance.dataset(self._path)

    def _rows(self) -> pa.Table:
        count = self._rng.randrange(1, 9)
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        columns = {"id": pa.array(ids, pa.int64())}
        for name, (dtype, values) in COLUMNS.items():
            mixed = self._rng.random() < 0.05
            value = self._rng.choice([*values, None])
            items = [self._rng.choice([*values, None]) if mixed else value for _ in ids]
            columns[name] = pa.array(items, dtype)
        return pa.table(columns)

    def _append(self) -> None:
        lance.write_dataset(self._rows(), self._path, mode="append")

    def _optimize(self) -> None:
        self._dataset().optimize.optimize_indices()

    def _delete(self) -> None:
        self._dataset().delete(self._rng.choice(["id % 3 = 0", "id < 4", "num = 3", "ok"]))

    def _update(self) -> None:
        name = self._rng.choice(["tiny", "num", "big"])
        self._dataset().update({name: "3"}, where=self._rng.choice(["id % 2 = 0", "id < 6"]))

    def _update_columns(self) -> None:
        dataset = self._dataset()
        fragments = dataset.get_fragments()
        if not fragments:
            return
        fragment = self._rng.choice(fragments)
        ids = fragment.to_table(["id"])["id"].to_pylist()
        chosen = self._rng.sample(ids, self._rng.randrange(1, len(ids) + 1))
        name, (dtype, values) = self._rng.choice(list(COLUMNS.items()))
        items = pa.array([self._rng.choice([*values, None])] * len(chosen), dtype)
        rows = pa.table({"id": pa.array(chosen, pa.int64()), name: items})
        updated, fields = fragment.update_columns(rows, left_on="id")
        operation = lance.LanceOperation.Update(
            [], [updated], [], fields, update_mode="rewrite_columns"
        )
        lance.LanceDataset.commit(self._path, operation, read_version=dataset.version)

    def _overlay(self) -> None:
        dataset = self._dataset()
        fragments = dataset.get_fragments()
        if not fragments:
            return
        fragment = self._rng.choice(fragments)
        count = self._rng.randrange(1, fragment.physical_rows + 1)
        offsets = sorted(self._rng.sample(range(fragment.physical_rows), count))
        name, (dtype, values) = self._rng.choice(list(COLUMNS.items()))
        items = pa.array([self._rng.choice(values)] * count, dtype)
        file = column_file(dataset, name, items, dataset.lance_schema.field(name).id())
        overlay = lance.LanceOperation.DataOverlayFile(file, offsets)
        group = lance.LanceOperation.DataOverlayGroup(fragment.fragment_id, [overlay])
        operation = lance.LanceOperation.DataOverlay([group])
        lance.LanceDataset.commit(self._path, operation, read_version=dataset.version)

    def _compact(self) -> None:
        self._dataset().optimize.compact_files(
            target_rows_per_fragment=self._rng.choice([4, 12, 1000]),
            defer_index_remap=self._rng.random() < 0.3,
        )

    def _merge_insert(self) -> None:
        merge = self._dataset().merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(self._rows())

    def _restore(self) -> None:
        versions = [item["version"] for item in self._dataset().versions()]
        lance.dataset(self._path, version=self._rng.choice(versions[-4:])).restore()


def check(path: Path, version: int, label: str) -> int:
    """Compare what is said of each column with its values; return of how many something is."""
    dataset = lance_spark.open_dataset(str(path), version=version)
    table = dataset._table
    section = read_section(table.manifest)
    rows = [part.to_table() for part in lance.dataset(path, version=version).get_fragments()]
    known = 0
    for field in table.schema.fields:
        values = single_values(table, section, dataset.fragments, field)
        if values is None:
            continue
        known += 1
        for value, part in zip(values, rows, strict=True):
            live = part[field.name].to_pylist()
            assert live == [value.as_py()] * len(live), f"{label}: {field.name} at {version}"
    return known


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_histories(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses tables with overlays, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t.lance"
    history = History(seed, path)
    version = lance.dataset(path).version
    known = check(path, version, f"seed {seed}")
    for _ in range(6):
        history.change()
        for number in range(version + 1, lance.dataset(path).version + 1):
            known += check(path, number, f"seed {seed}, {history.log}")
        version = lance.dataset(path).version
    assert known
