"""The operations that schedules are made of: what is called, and what it means for the table.

An effect says what the next version holds from what the version before it holds, whichever that is:
which rows an operation changes is said by their ids, and rows that it must not see are those that
were there before it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

from lance_spark import Dataset, write_dataset
from lance_spark.errors import LanceError, UncertainCommitError
from lance_spark.mutations.rows.partial_overwrite import ReplaceRows
from lance_spark.predicates.sql import parse_predicate
from lance_spark.table.commit.write import begin_write, commit_or_clean_up
from tests.faults.model import Effect, State

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
#: The property of a transaction that names its operation.
PROPERTY = "test.operation"


@dataclass(frozen=True)
class Operation:
    """A call, and its effect on the table.

    Attributes
    ----------
    kind : str
    run : callable
        Gets the handle; the properties of the transaction are bound.
    effect : callable, optional
        None of what commits nothing to the branch.
    removes : bool
        Whether it removes old versions.
    name : str
        The tag or branch that it is about.
    value : object
        What becomes of it: None if it goes.
    clone : str
        Root of the table that it makes, below that of the table.
    calls_back : int
        The older version that it restores or gives a name to.
    """

    kind: str
    run: Callable[[Dataset], Any]
    effect: Effect | None = None
    removes: bool = False
    name: str = ""
    value: object = None
    clone: str = ""
    calls_back: int = 0


class Maker:
    """Makes the operations of one writer.

    Parameters
    ----------
    random : Random
    number : int
        Of the writer: its rows have ids of its million.
    repeats : bool
        Whether it repeats writes that may have been made: what knows of them is gone with versions
        that are removed.
    """

    def __init__(self, random: Random, number: int, *, repeats: bool = True) -> None:
        self._random = random
        self._repeats = repeats
        self._next = number * 1_000_000
        self._number = number
        self._names = 0
        self._app = 0

    def make(
        self, operation_name: str, name: str, planned: State, version: int
    ) -> Operation | None:
        """Make an operation on a version that holds `planned`. Return None if the operation has
        nothing to do.
        """
        properties = {PROPERTY: name}
        operation: Operation | None = getattr(self, f"_{operation_name}")(
            properties, planned, version
        )
        return operation

    def _new(self, count: int) -> pa.Table:
        ids = list(range(self._next, self._next + count))
        self._next += count
        return pa.table({"id": ids, "v": [number % 97 for number in ids]}, SCHEMA)

    def _some(self, planned: State) -> list[int]:
        ids = sorted(planned.rows)
        if not ids:
            return []
        if self._random.random() < 0.15:
            return ids
        return sorted(self._random.sample(ids, min(len(ids), self._random.choice([1, 1, 2, 4]))))

    def _value(self) -> int:
        return self._random.randrange(1000, 1_000_000)

    def _name(self) -> str:
        self._names += 1
        return f"c{self._number}_{self._names}"

    def _added(self, planned: State) -> list[str]:
        return sorted(set(planned.columns) - {"id", "v"})

    def create(self, name: str, uri: str) -> Operation:
        """Create the table. Another writer may be first: then append to it."""
        rows = self._new(self._random.randint(1, 3))
        mode: Any = self._random.choice(["create", "append", "append"])

        def run(_: Dataset) -> Any:
            return write_dataset(rows, uri, mode, transaction_properties={PROPERTY: name})

        return Operation(f"create by {mode}", run, _appended(rows))

    def _append(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        rows = self._new(self._random.randint(1, 4))
        size = self._random.choice([None, 1, 2])

        def run(dataset: Dataset) -> Any:
            return write_dataset(
                rows,
                dataset.uri,
                "append",
                max_rows_per_file=size,
                transaction_properties=properties,
            )

        return Operation("append", run, _appended(rows))

    def _append_once(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        """An append that its application repeats up to three times, for any answer."""
        rows = self._new(2)
        self._app += 1
        number = self._app

        def run(dataset: Dataset) -> Dataset:
            done: Dataset | None = None
            errors: list[LanceError] = []
            for _ in range(3 if self._repeats else 1):
                try:
                    done = write_dataset(
                        rows,
                        dataset.uri,
                        "append",
                        transaction_properties=properties,
                        txn_app_id=f"writer {self._number}",
                        txn_version=number,
                    )
                    if self._random.random() < 0.5:
                        return done
                except LanceError as error:
                    errors.append(error)
            if done is not None:
                return done
            # Each try may have been committed.
            raise next((error for error in errors if is_uncertain(error)), errors[-1])

        return Operation("append_once", run, _appended(rows))

    def _overwrite(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        rows = self._new(3)

        def run(dataset: Dataset) -> Any:
            return write_dataset(rows, dataset.uri, "overwrite", transaction_properties=properties)

        def effect(state: State, _: Mapping[int, State]) -> State:
            new_rows = {row["id"]: row for row in rows.to_pylist()}
            return State(new_rows, {"id": "int64", "v": "int64"}, state.config)

        return Operation("overwrite", run, effect)

    def _replace(self, properties: Mapping[str, str], planned: State, _: int) -> Operation | None:
        """Replace the rows that meet a condition by other rows."""
        gone = self._some(planned)
        if not gone:
            return None
        rows = self._new(2)

        def run(dataset: Dataset) -> Any:
            job = begin_write(dataset.uri, SCHEMA, mode="append")
            text = f"id in ({', '.join(map(str, gone))})"
            condition = parse_predicate(text, dataset._table.schema)
            replacing = job.with_strategy(ReplaceRows(condition))
            writer = replacing.writer()
            try:
                for batch in rows.to_batches():
                    writer.write(batch)
                fragments = writer.finish()
            except BaseException:
                writer.abort()
                raise
            commit_or_clean_up(replacing, fragments, dict(properties))

        def effect(state: State, past: Mapping[int, State]) -> State:
            stay = {number: row for number, row in state.rows.items() if number not in gone}
            return _appended(rows)(state.with_rows(stay), past)

        return Operation("replace", run, effect)

    def _delete(self, properties: Mapping[str, str], planned: State, _: int) -> Operation | None:
        gone = self._some(planned)
        if not gone:
            return None

        def run(dataset: Dataset) -> Any:
            return dataset.delete([("id", "in", gone)], transaction_properties=properties)

        def effect(state: State, _: Mapping[int, State]) -> State:
            return state.with_rows(
                {number: row for number, row in state.rows.items() if number not in gone}
            )

        return Operation("delete", run, effect)

    def _update(self, properties: Mapping[str, str], planned: State, _: int) -> Operation | None:
        return self._updated(properties, planned, "rows")

    def _update_columns(
        self, properties: Mapping[str, str], planned: State, _: int
    ) -> Operation | None:
        return self._updated(properties, planned, "columns")

    def _updated(
        self, properties: Mapping[str, str], planned: State, mode: Any
    ) -> Operation | None:
        chosen, value = self._some(planned), self._value()
        if not chosen:
            return None

        def run(dataset: Dataset) -> Any:
            return dataset.update(
                {"v": value}, [("id", "in", chosen)], mode=mode, transaction_properties=properties
            )

        def effect(state: State, _: Mapping[int, State]) -> State:
            rows = {
                number: {**row, "v": value} if number in chosen else row
                for number, row in state.rows.items()
            }
            return state.with_rows(rows)

        return Operation(f"update {mode}", run, effect)

    def _compact(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        size = self._random.choice([3, 6, 100])
        retries = self._random.choice([0, 5])

        def run(dataset: Dataset) -> Any:
            return dataset.compact_files(
                target_rows_per_fragment=size,
                conflict_retries=retries,
                transaction_properties=properties,
            )

        return Operation("compact", run, lambda state, _: state)

    def _add_column(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        name, value = self._name(), self._value()
        value_source = self._random.choice(["constant", "function", "empty"])

        def of_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
            ids = batch.column("id").to_pylist()
            return pa.record_batch({name: pa.array([3 * number for number in ids], pa.int64())})

        transforms: Any = {
            "constant": {name: pa.scalar(value, pa.int64())},
            "function": of_rows,
            "empty": pa.field(name, pa.int64()),
        }[value_source]

        def run(dataset: Dataset) -> Any:
            return dataset.add_columns(transforms, transaction_properties=properties)

        def effect(state: State, _: Mapping[int, State]) -> State:
            def new(number: int) -> int | None:
                return {"constant": value, "function": 3 * number, "empty": None}[value_source]

            rows = {number: {**row, name: new(number)} for number, row in state.rows.items()}
            return State(rows, {**state.columns, name: "int64"}, state.config)

        return Operation(f"add column, {value_source}", run, effect)

    def _drop_column(
        self, properties: Mapping[str, str], planned: State, _: int
    ) -> Operation | None:
        names = self._added(planned)
        if not names:
            return None
        name = self._random.choice(names)

        def run(dataset: Dataset) -> Any:
            return dataset.drop_columns([name], transaction_properties=properties)

        def effect(state: State, _: Mapping[int, State]) -> State:
            rows = {
                number: {key: value for key, value in row.items() if key != name}
                for number, row in state.rows.items()
            }
            columns = {key: value for key, value in state.columns.items() if key != name}
            return State(rows, columns, state.config)

        return Operation("drop column", run, effect)

    def _cast(self, properties: Mapping[str, str], planned: State, _: int) -> Operation | None:
        names = [column for column in self._added(planned) if planned.columns[column] == "int64"]
        if not names:
            return None
        name = self._random.choice(names)

        def run(dataset: Dataset) -> Any:
            return dataset.alter_columns(
                {"path": name, "data_type": pa.int32()}, transaction_properties=properties
            )

        def effect(state: State, _: Mapping[int, State]) -> State:
            return State(state.rows, {**state.columns, name: "int32"}, state.config)

        return Operation("cast", run, effect)

    def _rename(self, properties: Mapping[str, str], planned: State, _: int) -> Operation | None:
        names = self._added(planned)
        if not names:
            return None
        old, new = self._random.choice(names), self._name()

        def run(dataset: Dataset) -> Any:
            return dataset.alter_columns(
                {"path": old, "name": new}, transaction_properties=properties
            )

        def effect(state: State, _: Mapping[int, State]) -> State:
            def named(mapping: Mapping[str, Any]) -> dict[str, Any]:
                return {new if key == old else key: value for key, value in mapping.items()}

            rows = {number: named(row) for number, row in state.rows.items()}
            return State(rows, named(state.columns), state.config)

        return Operation("rename", run, effect)

    def _config(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        key, value = f"test.{self._random.choice('ab')}", str(self._value())

        def run(dataset: Dataset) -> Any:
            return dataset.update_config({key: value}, transaction_properties=properties)

        def effect(state: State, _: Mapping[int, State]) -> State:
            return State(state.rows, state.columns, {**state.config, key: value})

        return Operation("config", run, effect)

    def _restore(self, properties: Mapping[str, str], planned: State, version: int) -> Operation:
        first = self._random.choice([1, max(1, version - 2)])
        wanted = self._random.randint(first, version)

        def run(dataset: Dataset) -> Any:
            return dataset.checkout_version(wanted).restore(transaction_properties=properties)

        return Operation("restore", run, lambda _, past: past[wanted], calls_back=wanted)

    def _cleanup(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        keep = self._random.choice([1, 2, 3])

        def run(dataset: Dataset) -> Any:
            return dataset.cleanup_old_versions(
                timedelta(0), keep, error_if_tagged_old_versions=False
            )

        return Operation("cleanup", run, removes=True)

    def _tag(self, properties: Mapping[str, str], planned: State, version: int) -> Operation:
        """Create, move or delete the tag of the writer."""
        name = f"tag{self._number}"
        action = self._random.choice(["create", "create", "update", "delete"])
        version = self._random.randint(max(1, version - 2), version)

        def run(dataset: Dataset) -> Any:
            if action == "delete":
                dataset.tags.delete(name)
            elif action == "update":
                dataset.tags.update(name, version)
            else:
                dataset.tags.create(name, version)

        value = None if action == "delete" else version
        return Operation(f"{action} tag", run, name=name, value=value, calls_back=version)

    def _shallow_clone(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        root = f"clones/{self._name()}"
        return Operation(
            "shallow clone",
            lambda dataset: dataset.shallow_clone(f"{dataset.uri}/{root}"),
            clone=root,
        )

    def _deep_clone(self, properties: Mapping[str, str], planned: State, _: int) -> Operation:
        root = f"clones/{self._name()}"
        return Operation(
            "deep clone", lambda dataset: dataset.deep_clone(f"{dataset.uri}/{root}"), clone=root
        )

    def _branch(self, properties: Mapping[str, str], planned: State, version: int) -> Operation:
        """Create or delete the branch of the writer."""
        name = f"own{self._number}"
        action = self._random.choice(["create", "create", "delete"])

        def run(dataset: Dataset) -> Any:
            if action == "delete":
                dataset.branches.delete(name)
            else:
                dataset.create_branch(name)

        value = None if action == "delete" else version
        return Operation(f"{action} branch", run, name=name, value=value)


def is_uncertain(error: LanceError) -> bool:
    """Return whether a change may have been committed although it raised an error."""
    return isinstance(error, UncertainCommitError)


def _appended(rows: pa.Table) -> Effect:
    def effect(state: State, _: Mapping[int, State]) -> State:
        # An append creates a table that does not exist.
        columns = state.columns or {"id": "int64", "v": "int64"}
        empty = dict.fromkeys(columns)
        new = {row["id"]: {**empty, **row} for row in rows.to_pylist()}
        return State({**state.rows, **new}, columns, state.config)

    return effect
