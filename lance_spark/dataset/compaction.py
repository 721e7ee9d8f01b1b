"""`Compaction`: plans, runs and commits a compaction in steps, for programs that distribute it.

The names are pylance's. `Dataset.compact_files` does all steps, and plans again after conflicts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_spark.dataset.optimizer import given_options
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.commits import at_version
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.run import check_excluded
from lance_spark.mutations.compaction.task import (
    CompactionMetrics,
    CompactionResult,
    commit_compaction,
    plan_compaction,
    task_of,
)
from lance_spark.table.fragments.fragment import Fragment

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.open import OpenTable

#: `Manifest.identity` of a version.
_Identity = tuple[int, str | None]


@dataclass(frozen=True)
class RewriteResult:
    """The new fragments of a task, which no version has yet. Can be pickled.

    Attributes
    ----------
    read_version : int
        The version that was compacted.
    original_fragments, new_fragments : list of Fragment
        The new fragments get their ids from the commit.
    row_addrs : bytes
        The addresses of the rows as a 64-bit Roaring bitmap.
    identity : (int, str or None), optional
        `Manifest.identity` of the version that was compacted: a version of another branch, or of a
        clone, can have the same number and the same fragments. None in results of early releases.
    """

    read_version: int
    original_fragments: list[Fragment]
    new_fragments: list[Fragment]
    row_addrs: bytes = field(repr=False)
    identity: _Identity | None = field(default=None, repr=False)

    @property
    def metrics(self) -> CompactionMetrics:
        """What a commit of the result does."""
        return self._stored().metrics

    def _stored(self) -> CompactionResult:
        return CompactionResult(
            tuple(self.original_fragments), tuple(self.new_fragments), self.row_addrs
        )

    def json(self) -> str:
        """Return the result as JSON, for `from_json` in another process."""
        return json.dumps(
            {
                "read_version": self.read_version,
                "original_fragments": _texts(self.original_fragments),
                "new_fragments": _texts(self.new_fragments),
                "row_addrs": base64.b64encode(self.row_addrs).decode(),
                "identity": self.identity,
            }
        )

    @staticmethod
    def from_json(json: str) -> RewriteResult:
        """Return the result of a text of `json`. Raises InvalidInputError."""
        keys = ("read_version", "original_fragments", "new_fragments", "row_addrs")
        value = _with_keys(_parsed(json), *keys)
        try:
            addresses = base64.b64decode(value["row_addrs"], validate=True)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"row_addrs is not a text of base 64: {error}") from None
        return RewriteResult(
            value["read_version"],
            _fragments(value["original_fragments"]),
            _fragments(value["new_fragments"]),
            addresses,
            _identity(value),
        )


@dataclass(frozen=True)
class CompactionTask:
    """Fragments that become other fragments. Can be pickled.

    Attributes
    ----------
    read_version : int
        The version that was planned.
    fragments : list of Fragment
    options : mapping
        The options of the plan.
    number : int
        The place in the plan.
    identity : (int, str or None), optional
        As in `RewriteResult`.
    """

    read_version: int
    fragments: list[Fragment]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    number: int = 0
    identity: _Identity | None = field(default=None, repr=False)

    def execute(self, dataset: Dataset) -> RewriteResult:
        """Write the new fragments.

        Parameters
        ----------
        dataset : Dataset
            The table or branch that was planned, at any version.

        Raises
        ------
        InvalidInputError
            It is another table or branch.
        VersionNotFoundError, CorruptFileError, CorruptTableError, StorageError
        """
        table = _planned(dataset, self.read_version, self.identity)
        task = task_of(table, self.fragments, CompactionOptions(**self.options), self.number)
        result = task.run()
        return RewriteResult(
            self.read_version,
            list(result.old),
            list(result.new),
            result.addresses,
            table.manifest.identity,
        )

    def json(self) -> str:
        """Return the task as JSON, for `from_json` in another process."""
        return json.dumps(self._to_value())

    def _to_value(self) -> dict[str, Any]:
        return {
            "read_version": self.read_version,
            "fragments": _texts(self.fragments),
            "options": dict(self.options),
            "number": self.number,
            "identity": self.identity,
        }

    @staticmethod
    def from_json(json: str) -> CompactionTask:
        """Return the task of a text of `json`. Raises InvalidInputError."""
        return _task(_parsed(json))


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction.

    Attributes
    ----------
    read_version : int
    tasks : list of CompactionTask
    """

    read_version: int
    tasks: list[CompactionTask]

    def num_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def json(self) -> str:
        """Return the plan as JSON, for `from_json` in another process."""
        tasks = [task._to_value() for task in self.tasks]
        return json.dumps({"read_version": self.read_version, "tasks": tasks})

    @staticmethod
    def from_json(json: str) -> CompactionPlan:
        """Return the plan of a text of `json`. Raises InvalidInputError."""
        value = _with_keys(_parsed(json), "read_version", "tasks")
        return CompactionPlan(value["read_version"], list(map(_task, value["tasks"])))


class Compaction:
    """The steps of a compaction: plan it, run its tasks anywhere, and commit their results.

    `Dataset.compact_files` documents the options.

    Examples
    --------
    >>> plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1_000_000})
    >>> results = [task.execute(dataset) for task in plan.tasks]
    >>> dataset, metrics = Compaction.commit(dataset, results)
    """

    @staticmethod
    def plan(dataset: Dataset, options: Mapping[str, Any]) -> CompactionPlan:
        """Return the tasks of a compaction.

        Raises
        ------
        InvalidOptionError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        chosen = given_options(options)
        parsed = CompactionOptions(**chosen)
        check_excluded(dataset._table, parsed)
        tasks = plan_compaction(dataset._table, parsed)
        kept = {
            name: list(value) if isinstance(value, set | frozenset) else value
            for name, value in chosen.items()
        }
        identity = dataset._table.manifest.identity
        return CompactionPlan(
            dataset.version,
            [
                CompactionTask(dataset.version, list(task.fragments), kept, number, identity)
                for number, task in enumerate(tasks)
            ],
        )

    @staticmethod
    def commit(
        dataset: Dataset,
        rewrites: Sequence[RewriteResult],
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Dataset, CompactionMetrics]:
        """Replace the fragments of tasks by their results.

        Parameters
        ----------
        dataset : Dataset
            The table or branch that was planned, at any version.
        rewrites : sequence of RewriteResult
            Of one plan; some may be left out.
        options : mapping, optional
            The options of the plan.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, or `dataset` without results; and the counts.

        Raises
        ------
        InvalidInputError
            The results are of several versions, or of another table or branch, or two are of one
            fragment.
        CommitConflictError
            Another client changed the same fragments, or the results are committed already. The new
            files stay, as in pylance, until a cleanup.
        UncertainCommitError, CorruptTableError, StorageError
        """
        if not rewrites:
            return dataset, CompactionMetrics()
        versions = sorted({result.read_version for result in rewrites})
        if len(versions) > 1:
            raise InvalidInputError(
                f"the results are of the versions {versions[0]} and {versions[1]}; commit the "
                "results of one plan"
            )
        for identity in dict.fromkeys(result.identity for result in rewrites):
            table = _planned(dataset, versions[0], identity)
        deferred = CompactionOptions(**given_options(options or {})).values["defer_index_remap"]
        manifest = commit_compaction(
            table, [result._stored() for result in rewrites], defer_index_remap=deferred
        )
        parts = [result.metrics for result in rewrites]
        return dataset._committed(at_version(table, manifest)), CompactionMetrics.sum(parts)

    @staticmethod
    def execute(dataset: Dataset, options: Mapping[str, Any]) -> tuple[Dataset, CompactionMetrics]:
        """Do all steps; the same as `Dataset.compact_files`."""
        return dataset.compact_files(**given_options(options))


def _at(dataset: Dataset, version: int) -> Dataset:
    return dataset if dataset.version == version else dataset.checkout_version(version)


def _planned(dataset: Dataset, version: int, identity: _Identity | None) -> OpenTable:
    """Return the version that was planned. Raises InvalidInputError if it is another one."""
    table = _at(dataset, version)._table
    if identity is not None and identity != table.manifest.identity:
        raise InvalidInputError(
            f"{table.store.display}: the compaction was planned on another version {version}: of "
            "another table or branch, or of a table that was at this path before; give the dataset "
            "that was planned"
        )
    return table


def _texts(fragments: Sequence[Fragment]) -> list[dict[str, Any]]:
    return [fragment.to_json() for fragment in fragments]


def _fragments(values: Sequence[Mapping[str, Any]]) -> list[Fragment]:
    return [Fragment.from_json(value) for value in values]


def _task(value: Any) -> CompactionTask:
    """Return the task of a value of JSON. Raises InvalidInputError."""
    mapping = _with_keys(value, "read_version", "fragments", "options", "number")
    return CompactionTask(
        mapping["read_version"],
        _fragments(mapping["fragments"]),
        mapping["options"],
        mapping["number"],
        _identity(mapping),
    )


def _identity(value: Mapping[str, Any]) -> _Identity | None:
    """Return the identity in a value of JSON. Raises InvalidInputError."""
    match value.get("identity"):
        case None:
            return None
        case [int(time), None | str() as name]:
            return time, name
    raise InvalidInputError("the JSON of a compaction has an identity of another form")


def _parsed(text: str) -> Any:
    """Return the value of a text of JSON. Raises InvalidInputError."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"not JSON: {error}") from None


def _with_keys(value: Any, *keys: str) -> dict[str, Any]:
    """Return a value that must be a mapping with keys. Raises InvalidInputError."""
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise InvalidInputError(f"the JSON of a compaction has no {missing[0]!r}")
    return dict(value)
