"""What the rule of Spark's optimizer asks of a scan: parsed from the last field of the schema that
`DataSource.reader` gets.

The field `__lance_request` is of the null type; its metadata has the JSON text `request`:

| key | |
| --- | --- |
| `filters` | list of trees; rows are wanted for which all are true (`filter_trees`). Spark does not check them again |
| `limit` | rows wanted at most; Spark counts again, unless `exact` is true: then all partitions together give no more |
| `aggregates` | list of `{"op": "count_star"}`, `{"op": "count", "col": [path]}`, and alike "min" and "max": each partition gives one row |
| `at` | the version that the answer to an earlier scan of the same query named: a query reads one version of a table |
| `parallelism` | tasks that Spark runs at a time |
| `tasks` | true if all rows are for tasks to read |
| `settings` | settings of the session by Spark's names, if the option filter is given, whose text they change |
| `packed` | names of columns that come as the bytes of their items from tasks (`packing`) |

The answer is the first of the partitions, which is none: its pickle holds `lance-plan rows=R
bytes=B at=V fragments=F/T;`, -1 for what is not known, the version, `7`, or `side/way@7` for a tag,
which may be moved while the query is planned, and of how many fragments how many are read. With `
stream=N` before the semicolon, the rows follow behind it, as a stream of Arrow's of so many bytes
(`found`); for aggregates it is one row. Everything that is asked is answered exactly, or refused:
what is not understood is an error, never a wrong result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

from lance_spark.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from lance_spark.scan.predicates.sql import SqlSettings

FIELD = "__lance_request"
#: Key of the field's metadata under which the text stands.
KEY = "request"

Operation = Literal["count_star", "count", "min", "max"]
_OPERATIONS = ("count_star", "count", "min", "max")
_KEYS = {
    "filters",
    "limit",
    "exact",
    "aggregates",
    "at",
    "parallelism",
    "tasks",
    "packed",
    "settings",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over all rows.

    Attributes
    ----------
    op : str
        "count_star", or "count", "min" or "max" of a column's values that are not null.
    path : tuple of str
        Of the column; empty for "count_star".
    """

    op: Operation
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as answers name it.

    Attributes
    ----------
    number : int
    branch : str or None
        "main" for the main one. None for the branch that the options name.
    """

    number: int
    branch: str | None = None

    def __str__(self) -> str:
        # The rule takes the text out of a pickle byte by byte, up to the next space or semicolon.
        return str(self.number) if self.branch is None else f"{quote(self.branch)}@{self.number}"

    @classmethod
    def parse(cls, text: object) -> Version:
        """Parse the text of an answer.

        Raises
        ------
        UnsupportedError
            It is none.
        """
        branch, position, number = text.rpartition("@") if isinstance(text, str) else ("", "", "")
        if not (number.isascii() and number.isdigit()) or bool(branch) != bool(position):
            raise refused("there is no such version", text)
        return cls(int(number), unquote(branch) or None)


@dataclass(frozen=True, slots=True)
class Request:
    """What Spark asks of a scan.

    Attributes
    ----------
    filters : tuple of dict
        Trees as they came: what columns they are about is known once the table is open.
    limit : int or None
    exact : bool
        Whether all partitions together must not give more rows than the limit.
    aggregates : tuple of Aggregate
        Empty if rows are asked for.
    at : Version or None
        The version to read, if the query reads the table already.
    parallelism : int or None
        Tasks that Spark runs at a time.
    tasks : bool
        Whether all rows are for tasks to read.
    packed : tuple of str
        Columns that tasks give as the bytes of their items.
    settings : SqlSettings or None
        By which the option filter is read, if it is given.
    """

    filters: tuple[dict[str, Any], ...] = ()
    limit: int | None = None
    aggregates: tuple[Aggregate, ...] = ()
    at: Version | None = None
    exact: bool = False
    parallelism: int | None = None
    tasks: bool = False
    packed: tuple[str, ...] = ()
    settings: SqlSettings | None = None

    @classmethod
    def parse(cls, text: str) -> Request:
        """Parse the JSON text.

        Raises
        ------
        UnsupportedError
            It is malformed, or asks for what this release does not know.
        """
        try:
            asked = json.loads(text)
        except ValueError as error:
            raise refused(f"it is no JSON ({error})", text) from None
        except RecursionError:
            raise refused("it is nested too deep", text) from None
        if not isinstance(asked, dict):
            raise refused("it is no object", text)
        if unknown := asked.keys() - _KEYS:
            raise refused(f"{min(unknown)!r} is not known", text)
        limit = asked.get("limit")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise refused("the limit is no number of rows", limit)
        exact, tasks = (asked.get(name, False) for name in ("exact", "tasks"))
        if type(exact) is not bool or (exact and limit is None):
            raise refused("only a limit can be exact", exact)
        if type(tasks) is not bool:
            raise refused("tasks is not true or false", tasks)
        parallelism = asked.get("parallelism")
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise refused("the parallelism is no number of tasks", parallelism)
        packed = asked.get("packed", [])
        if not isinstance(packed, list) or not all(isinstance(name, str) for name in packed):
            raise refused("packed is no list of names", packed)
        if packed and "aggregates" in asked:
            raise refused("aggregates have no columns to pack", packed)
        position = asked.get("at")
        return cls(
            tuple(_objects("filters", asked)),
            limit,
            tuple(_aggregate(item) for item in _objects("aggregates", asked)),
            None if position is None else Version.parse(position),
            exact,
            parallelism,
            tasks,
            tuple(packed),
            None if asked.get("settings") is None else parse_settings(asked["settings"]),
        )


def take_request(schema: StructType) -> Request | None:
    """Take the request off a schema, in place, and return it; None if there is none.

    pyspark checks the batches of the read by the same object, so that the field must be gone from
    it.

    Raises
    ------
    UnsupportedError
        The request is malformed.
    """
    if not schema.names or schema.names[-1] != FIELD:
        return None
    text = schema.fields[-1].metadata.get(KEY)
    if not isinstance(text, str):
        return None
    become(schema, schema.fields[:-1])
    return Request.parse(text)


def become(schema: StructType, fields: Sequence[StructField]) -> None:
    """Give a schema other fields, in place: pyspark keeps what it found out about them beside
    them.
    """
    type(schema).__init__(schema, list(fields))


def refused(why: str, what: object) -> UnsupportedError:
    """Return the error about a part of a request."""
    text = str(what)
    shown = text if len(text) < 300 else f"{text[:300]}..."
    return UnsupportedError(
        f"a request of lance_spark's rule in Spark cannot be answered: {why}, in {shown}; set "
        "spark.lance.pushdown.enabled to "
        "false, and see that the driver and the workers have the same release of lance_spark"
    )


def column_path(value: object, where: object) -> tuple[str, ...]:
    """Return a path of a request.

    Raises
    ------
    UnsupportedError
        It is none.
    """
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise refused("a column is no list of names", where)


def parse_settings(given: object) -> SqlSettings:
    """Return settings of a session, which the rule sends as a mapping of Spark's names to texts.

    Raises
    ------
    UnsupportedError
        They are malformed.
    InvalidInputError
        A value is not one that Spark allows.
    """
    from lance_spark.spark.pushdown.sql_settings import settings_of_session

    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise refused("settings do not map names to texts", given)
    return settings_of_session(given)


def _objects(name: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    result = asked.get(name, [])
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return result
    raise refused(f"{name} are no list of objects", result)


def _aggregate(one: dict[str, Any]) -> Aggregate:
    op = one.get("op")
    if op not in _OPERATIONS or one.keys() - {"op", "col"}:
        raise refused("an aggregate is not known", one)
    if op == "count_star":
        if "col" in one:
            raise refused("count_star has no column", one)
        return Aggregate("count_star")
    return Aggregate(op, column_path(one.get("col"), one))
