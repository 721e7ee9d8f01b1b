"""Writers of this package: by `Dataset`, by SQL, and one that maintains the tables.

python -m tests.soak.own_clients --client own|overlays|maintenance|pylance-maintenance ...

has the parameters of `tests.soak.clients`.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lance_spark
from lance_spark.errors import CommitConflictError
from tests.soak.clients import (
    KEPT_SECONDS,
    PylanceWriter,
    Writer,
    differences,
    error_text,
    events,
    run_as_process,
)

CATALOG = "soak"
#: Index types by column.
INDEXES = {
    "id": "BTREE",
    "writer": "BITMAP",
    "n": "ZONEMAP",
    "s": "INVERTED",
    "v": "IVF_FLAT",
}
#: What errors of Spark say that has waited in vain for the start of a Python process: ten seconds,
#: also on a busy machine.
LATE = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
AGE = timedelta(seconds=KEPT_SECONDS)


class OwnWriter(Writer):
    """Changes the tables by `Dataset`."""

    modes: tuple[Any, ...] = ("rows", "columns")

    def open(self) -> Any:
        return lance_spark.open_dataset(self.events)

    def insert(self, ids: list[int]) -> None:
        rows = events(ids, self.account.number, [0] * len(ids))
        lance_spark.write_dataset(rows, self.events, mode="append")

    def append_log(self, rows: pa.Table) -> None:
        lance_spark.write_dataset(rows, self.log, mode="append")

    def update(self, condition: str) -> None:
        new = {"n": lambda batch: pc.add(batch["n"], 1)}
        self.open().update(new, condition, mode=self.random.choice(self.modes))

    def delete(self, condition: str) -> None:
        self.open().delete(condition)

    def merge(self, old: list[int], new: list[int]) -> None:
        values = [self.account.rows[i] + 1 for i in old] + [0] * len(new)
        merge = self.open().merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(events(old + new, self.account.number, values))

    def matching_rows(self, condition: str) -> dict[str, list[Any]]:
        rows: dict[str, list[Any]] = (
            self.open().to_table(["id", "n", "s"], filter=condition).to_pydict()
        )
        return rows

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, CommitConflictError)


class OverlayWriter(OwnWriter):
    """Writes overlays, too, which other clients do not read."""

    modes = ("rows", "columns", "overlay", "overlay")


class SqlWriter(Writer):
    """Runs statements in a session of its own."""

    modes: tuple[str, ...] = ("",)

    def __init__(self, folder: Path, number: int, seed: int, spark: Any) -> None:
        super().__init__(folder, number, seed)
        self._sql = spark.newSession().sql
        self._table = f"{CATALOG}.events"

    def insert(self, ids: list[int]) -> None:
        rows = events(ids, self.account.number, [0] * len(ids))
        self._sql(f"INSERT INTO {self._table} VALUES {self._values(rows)}")

    def append_log(self, rows: pa.Table) -> None:
        self._sql(f"INSERT INTO {CATALOG}.log VALUES {self._values(rows)}")

    def update(self, condition: str) -> None:
        if self.random.choice(self.modes) == "overlay":
            self._sql(
                f"CALL {CATALOG}.system.update('events', condition => '{condition}', "
                "set => map('n', 'n + 1'), mode => 'overlay')"
            )
        else:
            self._sql(f"UPDATE {self._table} SET n = n + 1 WHERE {condition}")

    def delete(self, condition: str) -> None:
        self._sql(f"DELETE FROM {self._table} WHERE {condition}")

    def merge(self, old: list[int], new: list[int]) -> None:
        rows = events(old + new, self.account.number, [0] * len(old + new))
        self._sql(
            f"MERGE INTO {self._table} AS t USING (SELECT * FROM VALUES {self._values(rows)} "
            "AS r(id, writer, n, s, v)) AS r ON t.id = r.id "
            "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT *"
        )

    def matching_rows(self, condition: str) -> dict[str, list[Any]]:
        rows = self._sql(f"SELECT id, n, s FROM {self._table} WHERE {condition}").toArrow()
        result: dict[str, list[Any]] = rows.to_pydict()
        return result

    def is_conflict(self, error: BaseException) -> bool:
        from pyspark.errors import PySparkException

        if any(text in str(error) for text in LATE):
            # The statement has not begun its change.
            return True
        return (
            isinstance(error, PySparkException) and error.getCondition() == "LANCE_COMMIT_CONFLICT"
        )

    def _values(self, rows: pa.Table) -> str:
        return ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in rows.to_pylist())


class SqlOverlayWriter(SqlWriter):
    """Writes overlays, too."""

    modes = ("", "overlay")


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"array({', '.join(f'{item}F' for item in value)})"
    return f"'{value}'" if isinstance(value, str) else f"{value}"


class Maintenance(OwnWriter):
    """Compacts, indexes, cleans up, tags and branches."""

    def run(self, seconds: float) -> None:
        work = [
            *(self.compact, self.compact, self.optimize, self.create_index, self.drop_index),
            *(self.clean_up, self.clean_up, self.tag, self.branch, self.check),
        ]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.account.errors:
            part = self.random.choice(work)
            try:
                part()
                self.account.counts[part.__name__] += 1
            except BaseException as error:
                if self.is_conflict(error) or "not found; the indexes are" in str(error):
                    self.account.counts[f"{part.__name__}: conflicts"] += 1
                else:
                    text = error_text(error)
                    self.account.errors.append(f"maintenance: {part.__name__}: {text}")
            time.sleep(0.2)

    def compact(self) -> None:
        path = self.random.choice([self.events, self.log])
        lance_spark.open_dataset(path).compact_files(
            target_rows_per_fragment=self.random.choice([50, 500, 5_000]),
            max_overlays_per_fragment=self.random.choice([0, 3]),
        )

    def optimize(self) -> None:
        self.open().optimize_indices(num_indices_to_merge=self.random.choice([0, 1, 5]))

    def create_index(self) -> None:
        create_index(self.events, self.random.choice(list(INDEXES)))

    def drop_index(self) -> None:
        names = sorted({index.name for index in self.open().describe_indices()})
        if len(names) > 3:
            self.open().drop_index(self.random.choice(names))

    def clean_up(self) -> None:
        """Remove versions that streams have read."""
        for path in (self.events, self.log):
            dataset = lance_spark.open_dataset(path)
            bound = min([dataset.version, *read_versions(self.folder, Path(path).stem)])
            stats = dataset.cleanup_old_versions(
                AGE, before_version=max(bound - 1, 1), error_if_tagged_old_versions=False
            )
            self.account.counts["versions removed"] += stats.old_versions

    def tag(self) -> None:
        """Compare a version with a tag, and tag another one."""
        dataset = self.open()
        stored = self.folder / "tagged.json"
        if stored.exists():
            name, rows = json.loads(stored.read_text())
            stored.unlink()
            tagged = dataset.checkout_version(name).to_table(["id", "n"]).to_pydict()
            pairs = list(zip(tagged["id"], tagged["n"], strict=True))
            self.account.errors += differences(f"tag {name}", dict(map(tuple, rows)), pairs)
            dataset.tags.delete(name)
            return
        name = f"t{self.random.randrange(10**9)}"
        dataset.tags.create(name, dataset.version)
        rows = dataset.to_table(["id", "n"]).to_pydict()
        stored.write_text(json.dumps([name, list(zip(rows["id"], rows["n"], strict=True))]))

    def branch(self) -> None:
        """Change a branch, which has its own rows, and delete it."""
        dataset = self.open()
        name = f"b{self.random.randrange(10**9)}"
        expected = self._rows_of(dataset)
        branch = dataset.create_branch(name)
        branch = branch.insert(events([-7], -7, [7]))
        branch = branch.delete("id % 2 = 0")
        expected = {i: n for i, n in [*expected.items(), (-7, 7)] if i % 2}
        rows = branch.to_table(["id", "n"]).to_pydict()
        pairs = list(zip(rows["id"], rows["n"], strict=True))
        self.account.errors += differences(f"branch {name}", expected, pairs)
        dataset.branches.delete(name)

    def check(self) -> None:
        """Validate a version, and compare answers by indexes with scans."""
        dataset = self.open()
        dataset.validate()
        self.account.errors += other_answers(dataset)

    def _rows_of(self, dataset: Any) -> dict[int, int]:
        rows = dataset.to_table(["id", "n"]).to_pydict()
        return dict(zip(rows["id"], rows["n"], strict=True))


class PylanceMaintenance(PylanceWriter):
    """Compacts and extends indexes by pylance."""

    def run(self, seconds: float) -> None:
        import lance

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.account.errors:
            path = self.random.choice([self.events, self.log])
            part = self.random.choice(["compact", "optimize"])
            try:
                dataset = lance.dataset(path)
                if part == "compact":
                    target = self.random.choice([50, 500, 5_000])
                    dataset.optimize.compact_files(target_rows_per_fragment=target)
                else:
                    merged = self.random.choice([0, 1, 5])
                    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
                self.account.counts[f"pylance: {part}"] += 1
            except BaseException as error:
                if not self.is_conflict(error):
                    text = error_text(error)
                    self.account.errors.append(f"pylance: {part}: {text}")
                self.account.counts[f"pylance: {part}: conflicts"] += 1
            time.sleep(0.5)


def create_index(path: str, column: str) -> None:
    """Create an index of the type of its column."""
    dataset = lance_spark.open_dataset(path)
    if INDEXES[column].startswith("IVF"):
        dataset.create_index(column, INDEXES[column], num_partitions=2, replace=True)
        return
    options = {"with_position": True, "stem": False} if column == "s" else {}
    dataset.create_scalar_index(column, INDEXES[column], **options)


def other_answers(dataset: Any) -> list[str]:
    """Return the answers by indexes that are not those of a scan."""
    wrong = []
    for text in (
        "id = -1",
        "writer = 0",
        "n > 3",
        "writer = 1 AND id % 2 = 0",
        "n BETWEEN 1 AND 2",
    ):
        result = sorted(dataset.to_table(["id"], filter=text)["id"].to_pylist())
        scanned = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"].to_pylist()
        if result != sorted(scanned):
            wrong.append(f"version {dataset.version}: {text}: other rows by indexes")
    if any("s" in index.field_names for index in dataset.describe_indices()):
        texts = dataset.to_table(["id", "s"]).to_pydict()
        for word in ("w3", "v2", "v7"):
            rows = zip(texts["id"], texts["s"], strict=True)
            expected = sorted(row for row, text in rows if word in text.split())
            result = sorted(dataset.to_table(["id"], full_text_query=word)["id"].to_pylist())
            if result != expected:
                wrong.append(
                    f"version {dataset.version}: {word}: other rows by the full-text index"
                )
    nearest: dict[str, Any] = {"column": "v", "q": [3.0, 3.0, 3.0, 1.0], "k": 9}
    distances = [
        dataset.to_table(["_distance"], nearest={**nearest, **how})["_distance"].to_pylist()
        for how in ({"use_index": False}, {"nprobes": 50})
    ]
    if distances[0] != distances[1]:
        wrong.append(f"version {dataset.version}: nearest rows are at {distances[1]}, {distances}")
    return wrong


def read_versions(folder: Path, source: str) -> list[int]:
    """Return the versions that the streams from a table have read."""
    versions = []
    for checkpoint in folder.glob(f"checkpoints/*-from-{source}"):
        commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
        if not commits:
            versions.append(1)
            continue
        offset = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[-1]
        versions.append(json.loads(offset)["version"])
    return versions


if __name__ == "__main__":
    run_as_process(
        {
            "own": OwnWriter,
            "overlays": OverlayWriter,
            "maintenance": Maintenance,
            "pylance": PylanceWriter,
            "pylance-maintenance": PylanceMaintenance,
        }
    )
