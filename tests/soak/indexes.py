"""Several clients change one table and its indexes, while readers compare answers with scans.

python -m tests.soak.indexes [--seconds 60] [--writers 2] [--others 2] [--readers 2] [--seed 0]

Writers of this package and processes of pylance append, delete, update, merge and compact (with the
update of indexes at once or later), restore old versions, and create, extend and drop an index of
each type. A reader opens the newest version, and compares each answer with that of a scan without
indexes. In the end, each index is checked against its column, and answers of both clients are
compared. Prints what happened, at last as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import lance_spark
from lance_spark import query as q
from lance_spark.errors import CommitConflictError, MissingFileError
from tests.soak.old_values import only_old_values
from tests.soak.rows import filters, rows, vector
from tests.soak.vectors import create_vector_index, far_rows
from tests.support.forking import CONTEXT

#: Index types by column.
TYPES = {
    "x": ["BTREE"],
    "g": ["BITMAP", "BTREE"],
    "s": ["NGRAM", "BTREE"],
    "t": ["INVERTED"],
    "l": ["LABEL_LIST"],
    "z": ["ZONEMAP", "BTREE"],
    "k": ["BLOOMFILTER", "BITMAP"],
    "v": ["IVF_FLAT", "IVF_SQ"],
}
ROWS = 400
_MOST_ROWS = 12_000
_NOT_CHECKED = ("Inverted", "FragmentReuse")
#: What errors of pylance say that are no faults.
_CONFLICTS = (
    "conflict",
    "too many concurrent writers",
    "preempted by concurrent transaction",
)


@dataclass
class Account:
    """The results of a process.

    Attributes
    ----------
    counts : Counter
    wrong : list of str
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Writer:
    """Changes a table by one client until a deadline."""

    def __init__(self, path: str, rng: random.Random) -> None:
        self.path, self.rng = path, rng
        self.account = Account()

    def run(self, seconds: float) -> None:
        changes: Sequence[tuple[int, Callable[[], object]]] = [
            (5, self.append),
            (3, self.delete),
            (2, self.update),
            (2, self.update_columns),
            (2, self.merge),
            (3, self.compact),
            (3, self.create_index),
            (3, self.optimize),
            (1, self.drop_index),
            (1, self.restore),
        ]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.account.wrong:
            (change,) = self.rng.choices(
                [change for _, change in changes], [weight for weight, _ in changes]
            )
            name = change.__name__.strip("_")
            try:
                change()
                self.account.counts[name] += 1
            # pylance's panics are no exceptions.
            except BaseException as error:
                if self.is_conflict(error):
                    self.account.counts[f"{name}: conflicts"] += 1
                elif type(error).__name__ == "PanicException":
                    self.account.counts[f"{name}: panics of pylance"] += 1
                else:
                    text = "".join(traceback.format_exception(error))[-3_000:]
                    self.account.wrong.append(f"{type(self).__name__}: {name}: {text}")

    def condition(self) -> str:
        if lance_spark.open_dataset(self.path).count_rows() > _MOST_ROWS:
            return f"id % 3 = {self.rng.randrange(3)}"
        return self.rng.choice(
            [
                f"id % 17 = {self.rng.randrange(17)}",
                f"x BETWEEN {(n := self.number())} AND {n + 90}",
            ]
        )

    def number(self) -> int:
        return self.rng.randrange(5_000)

    def column(self) -> tuple[str, str]:
        column = self.rng.choice(list(TYPES))
        return column, self.rng.choice(TYPES[column])

    def is_conflict(self, error: Exception) -> bool:
        raise NotImplementedError

    def append(self) -> None:
        raise NotImplementedError

    def delete(self) -> None:
        raise NotImplementedError

    def update(self) -> None:
        raise NotImplementedError

    def update_columns(self) -> None:
        raise NotImplementedError

    def merge(self) -> None:
        raise NotImplementedError

    def compact(self) -> None:
        raise NotImplementedError

    def create_index(self) -> None:
        raise NotImplementedError

    def optimize(self) -> None:
        raise NotImplementedError

    def drop_index(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError


class OwnWriter(Writer):
    """Changes the table by this package."""

    def open(self) -> Any:
        return lance_spark.open_dataset(self.path)

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, CommitConflictError) or "not found; the indexes are" in str(error)

    def append(self) -> None:
        lance_spark.write_dataset(
            rows(self.rng, self.rng.randrange(1, ROWS)), self.path, mode="append"
        )

    def delete(self) -> None:
        self.open().delete(self.condition())

    def update(self) -> None:
        self.open().update(
            {
                "x": self.number(),
                "t": f"every changed w{self.number() % 40}",
                "v": vector(self.number()),
            },
            f"id % 23 = {self.rng.randrange(23)}",
        )

    def update_columns(self) -> None:
        self.open().update(
            {
                "g": self.number() % 9,
                "k": f"k{self.number() % 2_000}",
                **({"v": vector(self.number())} if self.rng.random() < 0.3 else {}),
            },
            f"id % 23 = {self.rng.randrange(23)}",
            mode="columns",
        )

    def merge(self) -> None:
        """Delete rows, and append rows with the same ids: there is no merge without Spark."""
        dataset = self.open()
        limit = self.rng.randrange(50)
        table = dataset.to_table(["id"], filter=f"id % 29 = {self.rng.randrange(29)}", limit=limit)
        if not len(table):
            return
        ids = ", ".join(map(str, table["id"].to_pylist()))
        dataset.delete(f"id IN ({ids})")
        lance_spark.write_dataset(rows(self.rng, len(table)), self.path, mode="append")

    def compact(self) -> None:
        self.open().compact_files(
            target_rows_per_fragment=self.rng.choice([1_000, 3_000]),
            defer_index_remap=self.defers(),
        )

    def defers(self) -> bool:
        stable = self.open()._table.manifest.flags.stable_row_ids
        return not stable and self.rng.random() < 0.5

    def create_index(self) -> None:
        column, index_type = self.column()
        if index_type.startswith("IVF"):
            create_vector_index(self.open(), index_type, self.rng)
            return
        options = {"number_of_items": 500} if index_type == "BLOOMFILTER" else {}
        if index_type == "INVERTED":
            options = {"with_position": True, "stem": False}
        self.open().create_scalar_index(
            column, index_type, num_segments=self.rng.choice([1, 2]), **options
        )

    def optimize(self) -> None:
        self.open().optimize_indices(
            num_indices_to_merge=self.rng.choice([0, 1, 5]), retrain=self.rng.random() < 0.1
        )

    def drop_index(self) -> None:
        names = sorted({index["name"] for index in self.open().list_indices()})
        names = [name for name in names if name.endswith("_idx")]
        if len(names) > 3:
            self.open().drop_index(self.rng.choice(names))

    def restore(self) -> None:
        dataset = self.open()
        dataset.checkout_version(max(dataset.version - self.rng.randrange(1, 4), 1)).restore()


class PylanceWriter(Writer):
    """Changes the table by pylance."""

    def open(self) -> Any:
        return lance.dataset(self.path)

    def is_conflict(self, error: Exception) -> bool:
        text = str(error).lower()
        return any(word in text for word in _CONFLICTS) or "index name" in text

    def append(self) -> None:
        lance.write_dataset(rows(self.rng, self.rng.randrange(1, ROWS)), self.path, mode="append")

    def delete(self) -> None:
        self.open().delete(self.condition())

    def update(self) -> None:
        self.open().update(
            {
                "x": f"{self.number()}",
                "t": f"'every changed w{self.number() % 40}'",
                "v": f"{vector(self.number())}",
            },
            where=f"id % 23 = {self.rng.randrange(23)}",
        )

    def update_columns(self) -> None:
        """Merge some columns of existing rows."""
        dataset = self.open()
        table = dataset.to_table(["id"], filter=f"id % 31 = {self.rng.randrange(31)}", limit=40)
        if len(table):
            values = pa.table({"id": table["id"], "x": [self.number()] * len(table)})
            dataset.merge_insert("id").when_matched_update_all().execute(values)

    def merge(self) -> None:
        dataset = self.open()
        old = dataset.to_table(["id"], filter=f"id % 29 = {self.rng.randrange(29)}", limit=40)
        new = rows(self.rng, len(old) + 5)
        ids = pa.concat_arrays([old["id"].combine_chunks(), new["id"].combine_chunks()[:5]])
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(new.set_column(0, "id", ids))

    def compact(self) -> None:
        dataset = self.open()
        # After a compaction that left old addresses in indexes, a compaction of pylance that
        # updates indexes loses rows of BTREE, NGRAM and INVERTED indexes.
        is_moved = any(index["type"] == "FragmentReuse" for index in dataset.list_indices())
        dataset.optimize.compact_files(
            target_rows_per_fragment=self.rng.choice([1_000, 3_000]),
            defer_index_remap=is_moved
            or (not dataset.has_stable_row_ids and self.rng.random() < 0.5),
        )

    def create_index(self) -> None:
        column, index_type = self.column()
        if index_type.startswith("IVF"):
            create_vector_index(self.open(), index_type, self.rng)
            return
        options = {"with_position": True, "stem": False} if index_type == "INVERTED" else {}
        self.open().create_scalar_index(column, index_type, replace=True, **options)

    def optimize(self) -> None:
        self.open().optimize.optimize_indices(num_indices_to_merge=self.rng.choice([0, 1, 5]))

    def drop_index(self) -> None:
        names = sorted({index["name"] for index in self.open().list_indices()})
        names = [name for name in names if name.endswith("_idx")]
        if len(names) > 3:
            self.open().drop_index(self.rng.choice(names))

    def restore(self) -> None:
        dataset = self.open()
        dataset.checkout_version(max(dataset.version - self.rng.randrange(1, 4), 1)).restore()


def read(path: str, rng: random.Random, seconds: float) -> Account:
    """Compare answers by indexes with those of scans."""
    account = Account()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not account.wrong:
        dataset = lance_spark.open_dataset(path)
        try:
            account.wrong += different(dataset, rng, account.counts)
        except MissingFileError as error:
            account.wrong.append(f"version {dataset.version}: {error}")
        except Exception as error:
            text = "".join(traceback.format_exception(error))[-3_000:]
            account.wrong.append(f"version {dataset.version}: {text}")
    return account


def different(dataset: Any, rng: random.Random, counts: Counter[str]) -> list[str]:
    """Return the answers of a version that are not those of a scan."""
    wrong = []
    for text in filters(rng):
        scanned = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"]
        ids = dataset.to_table(["id"], filter=text)["id"]
        counts["answers"] += 1
        counts["answers by indexes"] += "  index: " in dataset.explain(filter=text)
        if not ids.equals(scanned):
            wrong.append(
                f"version {dataset.version}: {text}: {len(ids)} rows, a scan has {len(scanned)}"
            )
    wrong += [f"version {dataset.version}: {text}" for text in far_rows(dataset, rng)]
    counts["nearest rows"] += 1
    if any(index["type"] == "Inverted" for index in dataset.list_indices()):
        word = f"w{rng.randrange(40)}"
        query = rng.choice([q.MatchQuery(word, "t"), q.PhraseQuery(f"every {word}", "t")])
        ids = dataset.to_table(["id"], full_text_query=query)["id"].to_pylist()
        texts = dataset.to_table(["id", "t"]).to_pydict()
        counts["full-text answers"] += 1
        scanned = {
            number
            for number, text in zip(texts["id"], texts["t"], strict=True)
            if text is not None
            and (
                word in text.split(" ")
                if "Match" in type(query).__name__
                else f"every {word} " in f"{text} "
            )
        }
        if len(set(ids)) < len(ids) or set(ids) != scanned:
            wrong.append(
                f"version {dataset.version}: {query}: {len(ids)} rows, a scan has {len(scanned)}"
            )
    return wrong


def _work(role: str, number: int, path: str, seconds: float, seed: int, log: str) -> None:
    rng = random.Random(f"{seed} {role} {number}")
    if role == "reader":
        account = read(path, rng, seconds)
    else:
        writer = {"own": OwnWriter, "pylance": PylanceWriter}[role](path, rng)
        writer.run(seconds)
        account = writer.account
    Path(log).write_text(json.dumps(vars(account)))


def run_indexes(
    folder: Path, seconds: float, writers: int, others: int, readers: int, seed: int
) -> tuple[Counter[str], list[str]]:
    """Change a table by several clients, and check its indexes.

    Returns
    -------
    Counter, list of str
        How many changes and answers there were, and what is wrong.
    """
    path, rng = str(folder / "t.lance"), random.Random(seed)
    data = rows(rng, 3_000)
    lance.write_dataset(data, path, max_rows_per_file=500, enable_stable_row_ids=bool(seed % 2))
    for column, (index_type, *_) in TYPES.items():
        if index_type.startswith("IVF"):
            create_vector_index(lance_spark.open_dataset(path), index_type, rng)
            continue
        options = {"with_position": True, "stem": False} if index_type == "INVERTED" else {}
        lance_spark.open_dataset(path).create_scalar_index(column, index_type, **options)
    work = [("own", n) for n in range(writers)] + [("pylance", n) for n in range(others)]
    work += [("reader", n) for n in range(readers)]
    logs = [folder / f"{role}{number}" for role, number in work]
    processes = [
        CONTEXT.Process(target=_work, args=(role, number, path, seconds, seed, str(log)))
        for (role, number), log in zip(work, logs, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    counts: Counter[str] = Counter()
    wrong = []
    for log in logs:
        if not log.exists():
            wrong.append(f"{log.name} left no account")
            continue
        account = json.loads(log.read_text())
        counts.update(account["counts"])
        wrong += account["wrong"]
    return counts, wrong + checked(path, rng, counts)


def checked(path: str, rng: random.Random, counts: Counter[str]) -> list[str]:
    """Return what is wrong with the newest version: indexes, and answers of both clients."""
    dataset, theirs = lance_spark.open_dataset(path), lance.dataset(path)
    theirs.validate()
    wrong = different(dataset, rng, counts)
    for index in dataset.describe_indices():
        if index.index_type not in _NOT_CHECKED:
            check = dataset.check_index(index.name)
            counts["indexes checked"] += 1
            if not check.is_valid:
                wrong.append(f"{check}")
    wrong += [f"pylance: version {dataset.version}: {text}" for text in far_rows(theirs, rng)]
    for text in filters(rng):
        ours = sorted(dataset.to_table(["id"], filter=text)["id"].to_pylist())
        if ours != sorted(theirs.to_table(["id"], filter=text)["id"].to_pylist()):
            if only_old_values(dataset, theirs, text):
                counts["pylance finds rows by old values"] += 1
            else:
                wrong.append(f"version {dataset.version}: {text}: pylance has other rows")
    return wrong


def main() -> int:
    """Run a load; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.indexes")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--others", type=int, default=2)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keeps the table there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexes") as temporary:
        folder = options.folder or Path(temporary)
        counts, wrong = run_indexes(
            folder, options.seconds, options.writers, options.others, options.readers, options.seed
        )
    for text in wrong:
        print(text)
    print(json.dumps({**counts, "lost or wrong": len(wrong)}))
    return min(len(wrong), 1)


if __name__ == "__main__":
    raise SystemExit(main())
