"""The outcome of a change if another change was committed since it was planned, for every pair of
changes.

`python -m tests.interop.conflicts` writes `docs/reference/conflicts.md`; the test of the same name
holds the page to what is so. Each pair is tried in three ways, on copies of one table:

1. pylance commits both (what we are measured by),
2. pylance commits the second change, then we the first,
3. we commit the second change, then pylance the first.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import lance

import lance_spark
from lance_spark.errors import CommitConflictError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import MATRIX, OPERATION_NAMES, Conflict
from tests.interop.conflict_changes import (
    CHANGES,
    Change,
    Made,
    link_files,
    make,
    new_table,
    overlays_allowed,
)

#: Answers of the conflict matrix, as the page shows them.
_OUTCOMES = {
    Conflict.COMPATIBLE: "ok",
    Conflict.REBASE: "ok (rebase)",
    Conflict.RETRYABLE: "retry",
    Conflict.INCOMPATIBLE: "refused",
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conflicts.md"
COMPATIBLE, RETRYABLE, INCOMPATIBLE = "ok", "retry", "refused"

#: Pairs (first change, change committed before it) with another outcome than in pylance, with the
#: reason. There are none.
DIFFERENCES: dict[tuple[str, str], str] = {}
#: Pairs with the same outcome as in pylance, but another table, with the reason.
_LOST = "pylance loses the metadata that was set meanwhile"
OTHER_TABLES = {
    ("drop column number", "set schema metadata"): _LOST,
    ("project that may break rows", "set schema metadata"): _LOST,
}


@dataclass(frozen=True)
class Tables:
    """The table before any change, and the table after each change.

    Attributes
    ----------
    committed : dict
        By client and change, a table after it was the first of two.
    """

    folder: Path
    base: Manifest
    made: dict[str, Made]
    committed: dict[tuple[str, str], Path] = field(default_factory=dict)

    @classmethod
    def new(cls, folder: Path) -> Tables:
        base = new_table(folder / "base")
        changed_tables = {
            change.name: make(change, folder / "base", base, folder / f"made{number}")
            for number, change in enumerate(CHANGES)
        }
        return cls(folder, base, changed_tables)

    def copy(self, table: Path) -> Path:
        path = Path(tempfile.mkdtemp(dir=self.folder))
        link_files(table, path)
        return path

    def after(self, client: str, change: Change) -> Path:
        """Return a new table to which a client committed a change."""
        key = client, change.name
        if key not in self.committed:
            path = self.copy(self.folder / "base")
            commit_by = self.by_pylance if client == "pylance" else self.by_us
            assert commit_by(path, change) == COMPATIBLE
            self.committed[key] = path
        return self.copy(self.committed[key])

    def by_pylance(self, path: Path, change: Change) -> str:
        """Let pylance make a change that was planned on the first version."""
        try:
            with overlays_allowed():
                change.make(lance.dataset(str(path), version=self.base.version))
        except (OSError, RuntimeError) as error:
            text = str(error)
            if "Incompatible transaction" in text:
                return INCOMPATIBLE
            assert "Retryable commit conflict" in text or "Too many concurrent" in text, text
            return RETRYABLE
        return COMPATIBLE

    def by_us(self, path: Path, change: Change) -> str:
        """Commit pylance's transaction of the change, planned on the first version."""
        changed = self.made[change.name]
        changed.copy_files(path)
        store = ObjectStore.from_uri(path)
        try:
            commit(store, Transaction.new(self.base.version, changed.operation), self.base)
        except CommitConflictError as error:
            return RETRYABLE if error.retryable else INCOMPATIBLE
        return COMPATIBLE


@dataclass(frozen=True)
class Outcome:
    """The outcomes of a pair in the three ways."""

    pylance: str
    ours: str
    pylance_on_ours: str


def content(path: Path) -> tuple[object, ...]:
    """Return what both clients read of the newest version."""
    with overlays_allowed():
        theirs = lance.dataset(str(path))
        theirs.validate()
        rows = sorted(map(repr, theirs.to_table().to_pylist()))
        by_index = theirs.to_table(filter="id = 9").to_pylist()
        indexes = sorted(
            (index["name"], tuple(sorted(index["fragment_ids"]))) for index in theirs.list_indices()
        )
        ours = lance_spark.open_dataset(str(path))
        assert ours.version == theirs.version
        assert sorted(map(repr, ours.to_table().to_pylist())) == rows
        assert by_index == theirs.to_table(filter="id = 9", use_scalar_index=False).to_pylist()
        return (
            rows,
            theirs.schema.names,
            theirs.schema.metadata,
            theirs.config(),
            theirs.metadata,
            indexes,
        )


def manifests(path: Path) -> set[str]:
    """Return the names of the versions of a table."""
    return {file.name for file in (path / "_versions").iterdir()}


def try_pair(tables: Tables, first: Change, before: Change, *, contents: bool = True) -> Outcome:
    """Commit `before`, then `first`, which was planned before.

    A change that is not committed must not make a version. If both clients commit it, their tables
    must be the same, which is compared with `contents`.
    """
    paths = [tables.after(client, before) for client in ("pylance", "pylance", "ours")]
    versions = [manifests(path) for path in paths]
    outcome = Outcome(
        tables.by_pylance(paths[0], first),
        tables.by_us(paths[1], first),
        tables.by_pylance(paths[2], first),
    )
    results = (outcome.pylance, outcome.ours, outcome.pylance_on_ours)
    for path, result, existing in zip(paths, results, versions, strict=True):
        assert (manifests(path) > existing) == (result == COMPATIBLE), (first.name, before.name)
    if contents and outcome.pylance == COMPATIBLE:
        expected = content(paths[0])
        if outcome.ours == COMPATIBLE:
            equal = content(paths[1]) == expected
            assert equal == ((first.name, before.name) not in OTHER_TABLES), (
                first.name,
                before.name,
            )
        if outcome.pylance_on_ours == COMPATIBLE:
            assert content(paths[2]) == expected, (first.name, before.name)
    for path in paths:
        shutil.rmtree(path)
    return outcome


def by_kind() -> list[str]:
    """Return the section of the page with the conflict matrix."""
    numbers = range(1, len(OPERATION_NAMES) + 1)
    lines = [
        "## Operations by kind",
        "",
        "The matrix of `lance_spark/table/operations/base.py`, by the kinds of the "
        "operations. A row",
        "is the operation to be committed, a column the operation that was committed before it, by "
        "number.",
        "Where an operation looks closer, at fragments, fields or keys, its answer can differ from "
        "the",
        "matrix.",
        "",
        "| | " + " | ".join(map(str, numbers)) + " |",
        "| --- |" + " --- |" * len(OPERATION_NAMES),
    ]
    for number, name in enumerate(OPERATION_NAMES, 1):
        cells = [_OUTCOMES[MATRIX[name][before]] for before in OPERATION_NAMES]
        lines.append(f"| `{name}` ({number}) | " + " | ".join(cells) + " |")
    return [*lines, ""]


def page(ours: dict[tuple[str, str], str]) -> str:
    """Return the page from the outcomes of all pairs in this package."""
    numbers = {change.name: number for number, change in enumerate(CHANGES, 1)}
    lines = [
        "# Conflicts",
        "",
        "What happens to a change when another client committed a change since it was planned.",
        "",
        "| outcome | what happens | what to do |",
        "| --- | --- | --- |",
        "| ok, ok (rebase) | the change is committed on top of the other one; both are kept. A "
        "rebase "
        "also merges the deletions of both | nothing |",
        "| retry | the change is planned and run again on the newest version. If the attempts are "
        "used "
        "up, `CommitConflictError` with `retryable=True` | run the job again, or raise "
        "`conflict_retries` |",
        "| refused | `CommitConflictError` with `retryable=False`; nothing is written | look at "
        "the "
        "table's `history()` and decide which change is right |",
        "",
        "Appends fit nearly everything. Two deletes or updates of different rows of one fragment "
        "are",
        "merged. An overwrite or a restore refuses most of what was planned before it. "
        "`LanceTable` plans its",
        "changes again after these too: [delete and update rows]"
        "(../howto/change-rows.md#concurrent-commits).",
        "",
        "Every pair is tried against pylance, in both orders (`tests/interop/conflicts.py`, which "
        "writes",
        "this page). The outcome and the resulting table are the same, except for the pairs that "
        "are",
        "listed at the end.",
        "",
        "Compactions of a MemWAL are not among the pairs. They decide stricter than pylance: a "
        "compaction",
        "of a table with a primary key is planned again after an append, and after a merge that "
        "inserted",
        "rows. Any compaction is planned again if the table lost its MemWAL or got one; an",
        "`update_mem_wal_state` is refused then.",
        "",
        *by_kind(),
        "## Every pair",
        "",
        "A row is the change to be committed. A column is the change that was committed before it, "
        "by",
        "its number.",
        "",
        "| | " + " | ".join(str(number) for number in numbers.values()) + " |",
        "| --- |" + " --- |" * len(numbers),
    ]
    for name, number in numbers.items():
        cells = [
            ours[name, before] + ("*" if (name, before) in DIFFERENCES else "")
            for before in numbers
        ]
        lines.append(f"| {number} {name} | " + " | ".join(cells) + " |")
    if DIFFERENCES:
        lines += ["", "## Where pylance decides otherwise (*)", ""]
        lines += [f"- {a}, after: {b}. {why}." for (a, b), why in DIFFERENCES.items()]
    if OTHER_TABLES:
        lines += ["", "## Where the resulting table differs", ""]
        lines += [f"- {a}, after: {b}. {why}." for (a, b), why in OTHER_TABLES.items()]
    return "\n".join([*lines, ""])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables.new(Path(folder))
        outcomes = {(a.name, b.name): try_pair(tables, a, b) for a in CHANGES for b in CHANGES}
    for (first, before), outcome in outcomes.items():
        if not outcome.pylance == outcome.ours == outcome.pylance_on_ours:
            print(f"{first!r} after {before!r}: {outcome}", file=sys.stderr)
    PAGE.write_text(page({pair: outcome.ours for pair, outcome in outcomes.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
