"""The ways in which a predicate comes into this package; each returns the rows that it keeps.

| way | what it is |
| --- | --- |
| `text` | the parser of texts with the settings of the session: the option `filter`, without its Spark job |
| `dataset` | `Dataset.to_table(filter=)`: a text by Spark's defaults, in UTC |
| `dataset delete`, `dataset update` | `Dataset.delete`, `Dataset.update` of a text |
| `native` | the predicate that `LanceTable` makes of a condition, without the job |
| `pushed` | the conditions of Spark's optimised plan as the rule hands them over |

Those below run Spark jobs.

| way | what it is |
| --- | --- |
| `where` | `DataFrame.where` with push-down |
| `option` | the option `filter` |
| `delete`, `update`, `replace_where`, `merge`, `merge by source` | `LanceTable` |
| `merge insert` | conditions of `whenNotMatchedInsert`, which are about the source |
| `replaceWhere option` | an overwrite with the option `replaceWhere` |
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.predicates.sql import parse_predicate
from lance_spark.predicates.tree import And, Predicate
from lance_spark.spark.options.predicate_text import settings_of_session
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.conditions import scan_predicate
from tests.interop.predicates.judge import Analysis, judge
from tests.interop.predicates.sessions import ZONE, Session
from tests.interop.predicates.tables import Table

#: An update adds this number to `row`.
_MARK = 1_000_000


class LeftToSparkError(Exception):
    """A condition that this package leaves to Spark."""


@dataclass
class Bench:
    """A table, a session with its settings, and a folder for copies of the table."""

    spark: Any
    table: Table
    session: Session
    folder: Path
    random: Any

    def __post_init__(self) -> None:
        self.dataset = lance_spark.open_dataset(str(self.table.path))
        self.schema = self.dataset._table.schema
        self.settings = settings_of_session({ZONE: self.session.zone, **self.session.conf})
        self.base = LanceTable.forPath(self.spark, str(self.table.path))
        #: The analyses of texts by Spark, before any job.
        self.analyses: dict[str, Analysis] = {}
        self._kept: dict[bytes, frozenset[int]] = {}
        self._copies = 0

    def keep(self, predicate: Predicate) -> frozenset[int]:
        """Return the rows that a scan with a predicate returns. A repeated predicate is scanned
        once.
        """
        key = pickle.dumps(predicate)
        if key not in self._kept:
            rows = self.dataset.to_table(["row"], filter=predicate)["row"]
            self._kept[key] = frozenset(rows.to_pylist())
        return self._kept[key]

    def rows_of(self, path: Path) -> list[int]:
        rows: list[int] = lance_spark.open_dataset(str(path)).to_table(["row"])["row"].to_pylist()
        return rows

    def copy(self) -> Path:
        """Return a copy of the table with hard links to its files."""
        self._copies += 1
        path = self.folder / f"copy{self._copies}.lance"
        shutil.copytree(self.table.path, path, copy_function=os.link)
        return path


def text(bench: Bench, predicate_text: str) -> frozenset[int]:
    return bench.keep(parse_predicate(predicate_text, bench.schema, bench.settings))


def dataset(bench: Bench, predicate_text: str) -> frozenset[int]:
    return frozenset(bench.dataset.to_table(["row"], filter=predicate_text)["row"].to_pylist())


def dataset_delete(bench: Bench, predicate_text: str) -> frozenset[int]:
    path = bench.copy()
    try:
        lance_spark.open_dataset(str(path)).delete(predicate_text)
        remaining = bench.rows_of(path)
    finally:
        shutil.rmtree(path)
    return bench.table.rows - set(remaining)


def dataset_update(bench: Bench, predicate_text: str) -> frozenset[int]:
    path = bench.copy()
    mode = bench.random.choice(["rows", "columns"])
    try:
        lance_spark.open_dataset(str(path)).update({"row": _MARK}, predicate_text, mode=mode)
        remaining = [number for number in bench.rows_of(path) if number != _MARK]
    finally:
        shutil.rmtree(path)
    return bench.table.rows - set(remaining)


def native_condition(bench: Bench, predicate_text: str) -> frozenset[int]:
    predicate = scan_predicate(bench.base._handle, bench.dataset, predicate_text)
    if predicate is None:
        raise LeftToSparkError
    return bench.keep(predicate)


def pushed(bench: Bench, predicate_text: str) -> tuple[frozenset[int], bool]:
    """Return the rows, and whether conditions are left to Spark."""
    analysis = bench.analyses.get(predicate_text)
    if analysis is None:
        (analysis,) = judge(bench.spark).analyse(
            bench.spark.table(bench.table.view), [predicate_text]
        )
    why = analysis.refusal or analysis.plan_error
    if why:
        raise PySparkException(why)
    if "empty" in analysis.pushed:
        return frozenset(), False
    trees, num_left = analysis.pushed["trees"], analysis.pushed["left"]
    if not trees:
        if num_left:
            raise LeftToSparkError
        return bench.table.rows, False
    predicates = tuple(to_predicate(tree, bench.schema) for tree in trees)
    return bench.keep(And(predicates)), num_left > 0


def where(bench: Bench, predicate_text: str) -> frozenset[int]:
    local = bench.random.choice(["true", "false"])
    bench.spark.conf.set("spark.lance.pushdown.local", local)
    frame = bench.spark.read.format("lance").load(str(bench.table.path)).where(predicate_text)
    return _numbers(frame)


def option(bench: Bench, predicate_text: str) -> frozenset[int]:
    reader = bench.spark.read.format("lance").option("filter", predicate_text)
    return _numbers(reader.load(str(bench.table.path)))


def _numbers(frame: Any) -> frozenset[int]:
    return frozenset(row[0] for row in frame.select("row").collect())


def _changed(bench: Bench, change: Callable[[LanceTable], Any]) -> frozenset[int]:
    path = bench.copy()
    try:
        change(LanceTable.forPath(bench.spark, str(path)))
        remaining = bench.rows_of(path)
    finally:
        shutil.rmtree(path)
    marked = {number - _MARK for number in remaining if number >= _MARK}
    assert not marked or len(remaining) == len(bench.table.rows)
    return bench.table.rows - {number for number in remaining if number < _MARK}


def delete(bench: Bench, predicate_text: str) -> frozenset[int]:
    return _changed(bench, lambda table: table.delete(predicate_text))


def update(bench: Bench, predicate_text: str) -> frozenset[int]:
    mode = bench.random.choice(["rows", "columns", "auto"])
    return _changed(
        bench, lambda table: table.update(predicate_text, {"row": f"row + {_MARK}"}, mode=mode)
    )


def _no_rows(bench: Bench) -> Any:
    return bench.spark.read.format("lance").load(str(bench.table.path)).limit(0)


def replace_where(bench: Bench, predicate_text: str) -> frozenset[int]:
    return _changed(bench, lambda table: table.replace_where(_no_rows(bench), predicate_text))


def replace_option(bench: Bench, predicate_text: str) -> frozenset[int]:
    def change(table: LanceTable) -> None:
        writer = (
            _no_rows(bench)
            .write.format("lance")
            .mode("overwrite")
            .option("replaceWhere", predicate_text)
        )
        writer.save(table.path)

    return _changed(bench, change)


def merge(bench: Bench, predicate_text: str) -> frozenset[int]:
    source = bench.spark.range(1 << 9).withColumnRenamed("id", "source_number")

    def change(table: LanceTable) -> None:
        builder = table.merge(source, "target.row = source_number")
        if bench.random.random() < 0.5:
            builder.whenMatchedDelete(predicate_text).execute()
        else:
            builder.whenMatchedUpdate(predicate_text, {"row": f"row + {_MARK}"}).execute()

    return _changed(bench, change)


def merge_by_source(bench: Bench, predicate_text: str) -> frozenset[int]:
    source = bench.spark.range(0).withColumnRenamed("id", "source_number")

    def change(table: LanceTable) -> None:
        builder = table.merge(source, "target.row = source_number")
        if bench.random.random() < 0.5:
            builder.whenNotMatchedBySourceDelete(predicate_text).execute()
        else:
            builder.whenNotMatchedBySourceUpdate(
                predicate_text, {"row": f"row + {_MARK}"}
            ).execute()

    return _changed(bench, change)


def merge_insert(bench: Bench, predicate_text: str) -> frozenset[int]:
    """Return the rows of the source that the merge inserted."""
    path = bench.copy()
    source = bench.spark.table(bench.table.view)
    try:
        builder = LanceTable.forPath(bench.spark, str(path)).merge(
            source, f"target.row = source.row + {_MARK}"
        )
        builder.whenNotMatchedInsert(predicate_text, {"row": f"source.row + {_MARK}"}).execute()
        numbers = bench.rows_of(path)
    finally:
        shutil.rmtree(path)
    assert {number for number in numbers if number < _MARK} == bench.table.rows
    return frozenset(number - _MARK for number in numbers if number >= _MARK)


#: Ways for every predicate.
CHEAP: dict[str, Callable[[Bench, str], Any]] = {
    "text": text,
    "dataset": dataset,
    "native": native_condition,
    "pushed": pushed,
}
#: Ways for some predicates, without Spark jobs.
COPYING: dict[str, Callable[[Bench, str], Any]] = {
    "dataset delete": dataset_delete,
    "dataset update": dataset_update,
}
#: Ways for some predicates, by Spark jobs.
JOBS: dict[str, Callable[[Bench, str], Any]] = {
    "where": where,
    "option": option,
    "delete": delete,
    "update": update,
    "replace_where": replace_where,
    "replaceWhere option": replace_option,
    "merge": merge,
    "merge by source": merge_by_source,
    "merge insert": merge_insert,
}
#: Ways by Spark's defaults, in any session.
WITHOUT_SESSION = {"dataset", "dataset delete", "dataset update"}
__all__ = ["CHEAP", "COPYING", "JOBS", "WITHOUT_SESSION", "Bench", "LanceError", "LeftToSparkError"]
