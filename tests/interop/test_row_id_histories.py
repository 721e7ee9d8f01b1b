"""Random histories of tables with stable row ids that this package alone writes, read by pylance.

After each change: each row id is that of one live row, and below `next_row_id`; sequences cover the
rows of their fragments, and only the first of their segments has holes. In the end, pylance reads
by row id, by filters, by words and by vectors.

In `make test-long` older releases of pylance read them, too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.proto import rowids_pb2
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.ids import created_versions_of, row_ids_of, updated_versions_of
from lance_spark.table.rows.sequences import without_deleted
from tests.interop.row_id_reads import GROUPS, Rows, wrong_answers
from tests.soak.clients import SCHEMA, events
from tests.soak.own_clients import create_index
from tests.soak.releases import python_of
from tests.support.cells import ALL_CELLS, number_of

HISTORIES = number_of(3, 60)
RELEASES = ("1.0.4", "4.0.1", "8.0.1") if ALL_CELLS else ()
STEPS = 10
_ROOT = Path(__file__).parents[2]
_KEY = pa.field(
    "id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
_INDEXED = ("id", "writer", "s", "v")


class History:
    """A table, and the rows that each of its versions must have."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random = str(path), random.Random(seed)
        self.schema = SCHEMA.set(0, _KEY)
        self.used = self.random.choice([60, 300, 1_500])
        self.rows = dict.fromkeys(range(self.used), 0)
        lance_spark.write_dataset(
            self.table(self.rows),
            path,
            enable_stable_row_ids=True,
            data_storage_version=self.random.choice(["2.0", "2.1"]),
            max_rows_per_file=self.random.choice([40, 500, 10_000]),
        )
        for column in _INDEXED:
            create_index(self.path, column)
        #: Whether pylance of older releases can open the table.
        self.is_old = True
        self.versions = {self.open().version: dict(self.rows)}

    def open(self) -> Any:
        return lance_spark.open_dataset(self.path)

    def table(self, rows: dict[int, int]) -> pa.Table:
        groups = pa.array([key % GROUPS for key in rows], pa.int32())
        table = events(rows, 0, rows.values())
        return table.set_column(1, "writer", groups).cast(self.schema)

    def new(self, count: int) -> dict[int, int]:
        self.used += count
        return dict.fromkeys(range(self.used - count, self.used), 0)

    def some(self) -> tuple[str, set[int]]:
        """Return a condition, and the ids of the rows of which it is true."""
        divisor = self.random.choice([2, 3, 7])
        remainder = self.random.randrange(divisor)
        low = self.random.randrange(self.used)
        high = low + self.random.choice([20, 200, self.used])
        chosen = {key for key in self.rows if key % divisor == remainder and low <= key < high}
        return f"id % {divisor} = {remainder} AND id >= {low} AND id < {high}", chosen

    def append(self) -> None:
        new = self.new(self.random.choice([3, 50, 400]))
        lance_spark.write_dataset(self.table(new), self.path, mode="append")
        self.rows.update(new)

    def update(self, mode: str = "rows") -> None:
        condition, chosen = self.some()
        change = {"n": lambda batch: pc.add(batch["n"], 1)}
        self.open().update(change, condition, mode=mode)
        self.rows = {key: n + (key in chosen) for key, n in self.rows.items()}

    def update_columns(self) -> None:
        self.update("columns")

    def overlay(self) -> None:
        self.update("overlay")
        self.open().compact_files(max_overlays_per_fragment=0)

    def delete(self) -> None:
        condition, chosen = self.some()
        if len(chosen) + 40 < len(self.rows):
            self.open().delete(condition)
            self.rows = {key: n for key, n in self.rows.items() if key not in chosen}

    def merge(self) -> None:
        old = self.random.sample(sorted(self.rows), 30)
        written = {key: self.rows[key] + 1 for key in old} | self.new(4)
        merge = self.open().merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self.table(written))
        self.rows.update(written)

    def upsert(self) -> None:
        """Put rows into a MemWAL, and compact it."""
        dataset = self.open()
        if self.is_old:
            self.is_old = False
            dataset = dataset.initialize_mem_wal(unsharded=True)
        old = self.random.sample(sorted(self.rows), 20)
        written = {key: self.rows[key] + 1 for key in old} | self.new(3)
        with dataset.mem_wal_writer() as writer:
            writer.put(self.table(written))
        self.open().compact_mem_wal(flush=True)
        self.rows.update(written)

    def compact(self) -> None:
        target = self.random.choice([30, 200, 1_000_000])
        self.open().compact_files(target_rows_per_fragment=target)

    def optimize(self) -> None:
        self.open().optimize_indices(num_indices_to_merge=self.random.choice([0, 1, 5]))

    def restore(self) -> None:
        version = self.random.choice(sorted(self.versions))
        self.open().checkout_version(version).restore()
        self.rows = dict(self.versions[version])

    def clone(self) -> None:
        """Go on with a clone."""
        self.is_old = False
        target = f"{self.path}_clone"
        self.open().shallow_clone(target)
        self.path, self.versions = target, {}

    def run(self, with_mem_wal: bool, with_clone: bool) -> None:
        steps = [self.append, self.update, self.update, self.update_columns, self.overlay]
        steps += [self.delete, self.merge, self.compact, self.compact, self.optimize]
        # A version is not restored while shards exist.
        steps.append(self.upsert if with_mem_wal else self.restore)
        for number in range(STEPS):
            step = self.clone if with_clone and number == STEPS // 2 else self.random.choice(steps)
            step()
            dataset = self.open()
            self.versions[dataset.version] = dict(self.rows)
            assert not (wrong := faults(dataset)), (step.__name__, wrong)

    def found(self) -> Rows:
        """Return the rows that this package reads, which must be those of the history."""
        found = self.open().to_table(["id", "n", "_rowid"]).to_pydict()
        rows = list(zip(found["id"], found["n"], found["_rowid"], strict=True))
        assert sorted((key, n) for key, n, _ in rows) == sorted(self.rows.items())
        return rows


def faults(dataset: Any) -> list[str]:
    """Return what is wrong with the row ids and row versions of a table."""
    paths = dataset._table.paths
    wrong, live = [], []
    for fragment in dataset.fragments:
        name = f"fragment {fragment.id}"
        ids = row_ids_of(fragment, paths)
        created, updated = (
            created_versions_of(fragment, paths),
            updated_versions_of(fragment, paths),
        )
        assert ids is not None
        assert created is not None
        assert updated is not None
        if not len(ids) == len(created) == len(updated) == fragment.physical_rows:
            wrong.append(f"{name}: {len(ids)} row ids for {fragment.physical_rows} rows")
        if (created > updated).any() or (updated > dataset.version).any():
            wrong.append(f"{name}: a row was created after its update, or in a later version")
        sequence = rowids_pb2.RowIdSequence.FromString(fragment.to_proto().inline_row_ids)
        encodings = [segment.WhichOneof("segment") for segment in sequence.segments]
        if {"range_with_holes", "range_with_bitmap"} & set(encodings[1:]):
            wrong.append(f"{name}: {encodings}")
        live.append(without_deleted(ids, read_deletions(paths, fragment)))
    row_ids = np.concatenate(live)
    if len(np.unique(row_ids)) != len(row_ids):
        wrong.append("a row id occurs twice")
    return wrong


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_pylance_reads_rows_by_row_id_and_by_index(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t.lance", seed)
    history.run(with_mem_wal=seed % 3 == 1, with_clone=seed % 3 == 2)
    rows = history.found()
    plan = lance.dataset(history.path).scanner(filter="id = 3").explain_plan()
    assert "ScalarIndexQuery" in plan
    assert not wrong_answers(history.path, rows)
    stored = tmp_path / "rows.json"
    stored.write_text(json.dumps(rows))
    for release in RELEASES if history.is_old else ():
        command: list[str | Path] = [
            python_of(release),
            "-m",
            "tests.interop.row_id_reads",
            history.path,
            stored,
        ]
        answer = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr[-2_000:]
        assert json.loads(answer.stdout.splitlines()[-1]) == [], release
