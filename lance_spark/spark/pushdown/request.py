"""The request that the optimizer rule of Spark sends to a scan.

The last field of the schema that `DataSource.reader` receives carries it: the field
`__lance_request` of the null type. Its metadata has the JSON text `request`, an object:

filters
    List of trees (`filter_trees`). The scan returns the rows for which all are true; Spark does not
    check them again.
limit, exact
    Maximum number of rows. Spark applies the limit again, unless `exact` is true: then all
    partitions together return at most this number of rows.
aggregates
    List of `{"op": "count_star"}` or `{"op": "count" | "min" | "max", "col": [path]}`. Each
    partition returns one row.
at
    The version that the reply to an earlier scan of the same query named, because a query reads one
    version of a table.
parallelism
    Number of tasks that Spark runs in parallel.
tasks
    True if tasks must read all rows.
settings
    Session settings, by Spark's names, that change the meaning of the option filter, if it is set.
packed
    Columns that tasks return as the bytes of their items (`packed_arrays`).

The reply is the first item in the list of partitions (`PlanReply`); it is not a partition. Its
pickle has the text `lance-plan rows=R bytes=B at=V fragments=F/T;`. R and B are -1 if unknown. V is
the version, such as `7`. For a tag, which another client can move during planning, V includes the
branch: `side/way@7`. F of T fragments are read. With ` stream=N` before the semicolon, N bytes of
an Arrow stream of the rows follow (`driver_read`); for aggregates it has one row.

The scan answers every part of a request exactly, or refuses the request: an unknown part is an
error, never a wrong result.
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
#: Metadata key of the field whose value is the request.
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
        "count_star", or "count", "min" or "max" of the values of a column that are not null.
    path : tuple of str
        Path of the column; empty for "count_star".
    """

    op: Operation
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as replies name it.

    Attributes
    ----------
    number : int
    branch : str or None
        "main" for the main branch. None for the branch in the options.
    """

    number: int
    branch: str | None = None

    def __str__(self) -> str:
        # The rule reads the text from a pickle, up to the next space or semicolon.
        return str(self.number) if self.branch is None else f"{quote(self.branch)}@{self.number}"

    @classmethod
    def parse(cls, text: object) -> Version:
        """Parse a version in a reply.

        Raises
        ------
        UnsupportedError
            The text is not a version.
        """
        branch, separator, number = text.rpartition("@") if isinstance(text, str) else ("", "", "")
        if not (number.isascii() and number.isdigit()) or bool(branch) != bool(separator):
            raise refused("the version is malformed", text)
        return cls(int(number), unquote(branch) or None)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of Spark to a scan.

    Attributes
    ----------
    filters : tuple of dict
        Unresolved trees: resolving their columns needs the schema of the table.
    limit : int or None
    exact : bool
        Whether all partitions together return at most `limit` rows.
    aggregates : tuple of Aggregate
        Empty if the request is for rows.
    at : Version or None
        The version to read, if another scan of the query reads the table.
    parallelism : int or None
        Number of tasks that Spark runs in parallel.
    tasks : bool
        Whether tasks must read all rows.
    packed : tuple of str
        Columns that tasks return as the bytes of their items.
    settings : SqlSettings or None
        Session settings for the option filter.
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
            The text is malformed, or has a part that this release does not support.
        """
        try:
            asked = json.loads(text)
        except ValueError as error:
            raise refused(f"the text is not JSON ({error})", text) from None
        except RecursionError:
            raise refused("the text is nested too deeply", text) from None
        if not isinstance(asked, dict):
            raise refused("the text is not an object", text)
        if unknown := asked.keys() - _KEYS:
            raise refused(f"the key {min(unknown)!r} is unknown", text)
        limit = asked.get("limit")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise refused("the limit is not a number of rows", limit)
        exact, tasks = (asked.get(name, False) for name in ("exact", "tasks"))
        if type(exact) is not bool or (exact and limit is None):
            raise refused("exact is not a boolean, or needs a limit", exact)
        if type(tasks) is not bool:
            raise refused("tasks is not a boolean", tasks)
        parallelism = asked.get("parallelism")
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise refused("the parallelism is not a number of tasks", parallelism)
        packed = asked.get("packed", [])
        if not isinstance(packed, list) or not all(isinstance(name, str) for name in packed):
            raise refused("packed is not a list of names", packed)
        if packed and "aggregates" in asked:
            raise refused("a request for aggregates cannot pack columns", packed)
        version = asked.get("at")
        return cls(
            tuple(_objects("filters", asked)),
            limit,
            tuple(_aggregate(item) for item in _objects("aggregates", asked)),
            None if version is None else Version.parse(version),
            exact,
            parallelism,
            tasks,
            tuple(packed),
            None if asked.get("settings") is None else parse_settings(asked["settings"]),
        )


def take_request(schema: StructType) -> Request | None:
    """Remove the request from a schema, in place, and return it; None without a request.

    pyspark checks the batches of the read against the same object, so the field must be removed
    from it.

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
    replace_fields(schema, schema.fields[:-1])
    return Request.parse(text)


def replace_fields(schema: StructType, fields: Sequence[StructField]) -> None:
    """Replace the fields of a schema, in place."""
    # The constructor also updates what pyspark derives from the fields.
    type(schema).__init__(schema, list(fields))


def refused(reason: str, part: object) -> UnsupportedError:
    """Return the error for a part of a request."""
    text = str(part)
    shown = text if len(text) < 300 else f"{text[:300]}..."
    return UnsupportedError(
        f"the scan cannot answer a request of lance_spark's optimizer rule: {reason}: {shown}. Set "
        "spark.lance.pushdown.enabled to false, and check that the driver and the workers have the "
        "same release of lance_spark"
    )


def column_path(value: object, where: object) -> tuple[str, ...]:
    """Return the path of a column in a request.

    Raises
    ------
    UnsupportedError
        The value is not a path.
    """
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise refused("a column is not a list of names", where)


def parse_settings(settings: object) -> SqlSettings:
    """Return session settings from a request, which has them by Spark's names, as texts.

    Raises
    ------
    UnsupportedError
        The settings are malformed.
    InvalidInputError
        Spark does not allow a value.
    """
    from lance_spark.spark.pushdown.sql_settings import settings_of_session

    if not isinstance(settings, dict) or not all(
        isinstance(value, str) for value in settings.values()
    ):
        raise refused("the settings do not map names to texts", settings)
    return settings_of_session(settings)


def _objects(name: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    result = asked.get(name, [])
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return result
    raise refused(f"{name} is not a list of objects", result)


def _aggregate(item: dict[str, Any]) -> Aggregate:
    op = item.get("op")
    if op not in _OPERATIONS or item.keys() - {"op", "col"}:
        raise refused("an aggregate is unknown", item)
    if op == "count_star":
        if "col" in item:
            raise refused("count_star takes no column", item)
        return Aggregate("count_star")
    return Aggregate(op, column_path(item.get("col"), item))
