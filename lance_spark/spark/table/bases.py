"""Base paths of a table, and moves of its fragments between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.run import CompactionRun, check_fragment_ids, with_target
from lance_spark.spark.table.base import option_text
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.spark.table.maintenance import compaction_frame
from lance_spark.table.bases import TargetBases
from lance_spark.table.refs.branches import repair_branches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.spark.job import Job
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest

BASE_COLUMNS = (
    "id long, name string, path string, is_dataset_root boolean, num_fragments long, "
    "num_data_files long, size_bytes long"
)
_BASE_VALUES = (
    *("id", "name", "path", "is_dataset_root", "num_fragments", "num_files", "num_bytes"),
)
REPAIR_COLUMNS = "branch string, version long, bases array<long>, problem string"


def bases_frame(handle: TableHandle) -> DataFrame:
    """Return a row for each folder with data files; see `LanceTable.bases`."""
    from lance_spark.inspect.collect import base_facts

    rows = map(attrgetter(*_BASE_VALUES), base_facts(handle.dataset()._table))
    return handle.data_frame(rows, BASE_COLUMNS)


def repaired_branches(handle: TableHandle) -> DataFrame:
    """Update the paths in branches of a copied table; see `LanceTable.repair_branches`."""
    table = handle.writable("repair_branches")
    rows = [
        (repair.branch, repair.version, list(repair.bases), repair.problem or None)
        for repair in repair_branches(table.main)
    ]
    return handle.data_frame(rows, REPAIR_COLUMNS)


def with_target_bases(
    handle: TableHandle, target_bases: Sequence[str] | None, target_all_bases: bool | None
) -> TableHandle:
    """Return a table with other targets of data files; see `LanceTable.with_target_bases`."""
    TargetBases(target_bases, target_all_bases)  # type: ignore[arg-type]
    names = ("target_bases", "target_all_bases")
    options = {name: text for name, text in handle.options.items() if name.lower() not in names}
    if target_bases:
        options["target_bases"] = option_text(list(target_bases))
    if target_all_bases is not None:
        options["target_all_bases"] = option_text(target_all_bases)
    return handle.with_options(options)


def move_fragments(
    handle: TableHandle,
    base: str,
    where: str | Column | None,
    fragment_ids: Collection[int] | None,
    commit: CommitOptions,
) -> DataFrame:
    """Rewrite fragments to a base path; see `LanceTable.move_fragments`."""
    if where is not None and fragment_ids is not None:
        raise InvalidInputError("move_fragments: set where or fragment_ids, not both")
    table = with_target(handle.writable("move_fragments"), base)
    chosen = None if fragment_ids is None else check_fragment_ids(table, fragment_ids)
    with CompactionRun(CompactionOptions(), commit) as compaction:

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
            ids = {fragment.id for fragment in dataset.fragments}
            if where is not None:
                ids &= set(find_rows(handle, job, dataset, where))
            elif chosen is not None:
                ids &= chosen
            compaction.options = CompactionOptions(moved_fragment_ids=ids)
            runner = job.runner("move fragments")
            manifest = compaction.commit(dataset._table, runner=runner)
            return manifest, compaction.metrics

        target = with_target_bases(handle, [base], None)
        metrics = target.change("move_fragments", plan, commit)
    return compaction_frame(handle, metrics)
