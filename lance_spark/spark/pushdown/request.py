"""Requests: what the rule of Spark's optimizer asks a scan for.

A request travels as one more field of the schema that `DataSource.reader` gets. The field
`__lance_request`, the last one, has the null type, and its metadata holds a JSON text under
`request`:

| key | value |
| --- | --- |
| `filters` | list of trees (`filter_trees`); only rows for which all are true are wanted |
| `limit` | maximum number of rows; Spark applies it again, unless `exact` is true |
| `exact` | true if all partitions together must not return more rows than the limit |
| `top` | `{"rows": N, "order": [{"col": [path], "descending": D, "nulls_first": F}]}`: only the |
| | first N rows in this order are wanted; Spark orders them again, and takes the first. A key |
| | with `"function": F, "vector": [numbers]` is a distance of the column (`vector_distances`). |
| | With `"approximate": {"nprobes": text, "refine_factor": text}`, an index may answer it |
| `aggregates` | list of `{"op": "count_star"}` and `{"op": "count", "col": [path]}`, or "min", |
| | "max", "sum" in place of "count"; Spark merges the rows of all partitions |
| `groups` | list of `{"col": [path]}`: aggregate the rows with the same values in these columns, |
| | which come before the aggregates; there may be no aggregates then |
| `computed` | list of `{"name": N, "value": tree, "sql": text, "sources": schema}`: columns that |
| | tasks compute from others (`value_trees`), and that aggregates, groups and the schema can |
| | name. `sources` has the others, as the JSON text of a schema of Spark |
| `at` | version to read, from the reply to an earlier scan of the same query |
| `parallelism` | number of tasks that Spark runs at the same time |
| `tasks` | true if tasks must read all rows |
| `settings` | settings of the session by Spark's names, which the option filter is parsed with |
| `packed` | names of columns that tasks return as bytes (`packed_arrays`) |
| `columnar` | true if tasks return batches of columns, if they can (`columnar`) |
| `shared_memory` | true if such tasks may use shared memory (`shared_memory`) |
| `clustering` | list of lists of column names, for each join, aggregate or window the columns by |
| | which rows meet, the nearest first: only there if the reply may have keys (`partition_keys`) |
| `counts` | true if tasks report what they read (`read_counts`) |
| `spent` | number of bytes of columns that the driver has read for other scans of the query |
| `other_scans` | true if the query has other scans, of this table or of others |
| `broadcast` | number of bytes up to which Spark broadcasts the rows of a scan, in such a query |
| `query` | a random text, the same in all requests of a query that reads several tables |
| `keys` | list of trees: the driver may leave out rows for which one is not true. If it does not |
| | read the rows itself, they count for nothing |
| `locators` | `{"mark": HEX, "source": N, "columns": [names]}`: the query only copies these |
| | columns of blobs, which may be locators with this mark (`lance_spark.scan.blobs`) |

The first request of a query that reads several tables has their options as a JSON text under
`others`, beside the request: messages about a request do not show them.

Spark does not check filters and aggregates again. The reader answers a request exactly or refuses
it: an unknown part is an error, never a wrong result.

A reply (`lance_spark.spark.replies`) takes the place of the first partition:

| key | value |
| --- | --- |
| `rows`, `bytes` | maximum numbers; -1 if unknown |
| `at` | the version, such as `7`; for a tag, which may be moved meanwhile, `BRANCH@7` |
| `fragments` | number of fragments that are read, and number of fragments of the table |
| `table` | where the table is, for EXPLAIN |
| `columnar` | "yes", or the reason why not; null if the request does not ask for it |
| `many_groups` | true if Spark is to ask for rows in place of groups |
| `ordered` | the order of the rows of each partition: list of `{"column": name, "direction": |
| | "ASCENDING", "nulls": "NULLS_FIRST"}`, with Spark's names |
| `indexes` | the indexes that rule out rows, as EXPLAIN shows them; null if there are none |
| `fresh` | numbers of the SSTables and WAL entries that are read; null without a MemWAL |
| `unread` | a warning about rows that are not read, or null |
| `keys` | null, or a list of `{"column": name}`, or of `{"column": name, "buckets": N}` for the |
| | bucket of a column: the rows of each partition have the same value of each key |
| `spent` | number of bytes of columns that the driver has read for this scan |
| `data` | what the data of the reply are, as an Arrow stream: "rows" if the driver has read them |
| | (`driver_read`), one row for aggregates; "keys" for the values of the keys, a row for each |
| | partition; null if there are none |

A stream is only asked for `columnar` and `shared_memory`. It has no partitions yet, so that its
reply is in the pickle of the function that reads them. It has `columnar`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

from lance_spark.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from lance_spark.predicates.sql import SqlSettings
    from lance_spark.scan.vector_distances import Distance

FIELD = "__lance_request"
#: Key of the field's metadata under which the text stands.
KEY = "request"
OTHERS = "others"

Operation = Literal["count_star", "count", "min", "max", "sum"]
_OPERATIONS = ("count_star", "count", "min", "max", "sum")
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
    "counts",
    "columnar",
    "shared_memory",
    "top",
    "groups",
    "computed",
    "clustering",
    "query",
    "locators",
    "keys",
    "spent",
    "broadcast",
    "other_scans",
}
#: Settings of approximate answers, by the keys of `nearest`.
_SETTINGS = {
    "nprobes": "spark.lance.nearest.nprobes",
    "refine_factor": "spark.lance.nearest.refineFactor",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over all rows.

    - `op`: "count_star", or "count", "min", "max" or "sum" of a column's values that are not null.
    - `path`: Of the column; empty for "count_star".
    """

    op: Operation
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that tasks compute from others.

    - `value`: An unparsed tree (`value_trees`).
    - `sources`: The others, with the types that Spark takes them for.
    """

    name: str
    value: dict[str, Any]
    sources: StructType


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A column by which rows are ordered, or its distance from a vector."""

    path: tuple[str, ...]
    descending: bool
    nulls_first: bool
    distance: Distance | None = None

    def in_reply(self) -> dict[str, str]:
        """Return the form of a reply, for a top-level column."""
        (name,) = self.path
        return {
            "column": name,
            "direction": "DESCENDING" if self.descending else "ASCENDING",
            "nulls": "NULLS_FIRST" if self.nulls_first else "NULLS_LAST",
        }


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows in an order.

    - `approximate`: Keys of `nearest`, if an index may answer an order by distance, with other
      rows.
    """

    rows: int
    order: tuple[SortOrder, ...]
    approximate: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as replies name it.

    - `branch`: "main" for the main branch. None for the branch that the options name.
    - `manifest_tag`: By which a process knows the manifest that it has read for another scan of the
      query.
    """

    number: int
    branch: str | None = None
    manifest_tag: str | None = None

    def __str__(self) -> str:
        # Quoted: a name may have the characters that separate the parts.
        branch = "" if self.branch is None else f"{quote(self.branch)}@"
        tag = "" if self.manifest_tag is None else f"~{self.manifest_tag}"
        return f"{branch}{self.number}{tag}"

    @classmethod
    def parse(cls, text: object) -> Version:
        """Parse the text of a reply.

        Raises UnsupportedError: the text does not name a version.
        """
        branch, separator, rest = text.rpartition("@") if isinstance(text, str) else ("", "", "")
        number, _, tag = rest.partition("~")
        if not (number.isascii() and number.isdigit()) or bool(branch) != bool(separator):
            raise refused("the version is malformed", text)
        return cls(int(number), unquote(branch) or None, tag or None)


@dataclass(frozen=True, slots=True)
class Locators:
    """Columns of blobs that a query only copies.

    - `mark`: What locators begin with (`blob_locators.Mark`).
    """

    mark: bytes
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class PushedScan:
    """The request for a scan. All fields empty, it asks for all rows.

    - `filters`: Unparsed trees: parsing them needs the columns of the opened table.
    - `top`: The only rows that are wanted. A task may return more.
    - `aggregates`: Values over rows; empty if rows, or only groups, are wanted.
    - `groups`: Columns by whose values the rows of aggregates are grouped.
    - `computed`: Columns that the table does not have.
    - `at`: The version to read, if the query reads the table already.
    - `exact`: Whether all partitions together must not return more rows than the limit.
    - `parallelism`: Number of tasks that Spark runs at the same time.
    - `tasks`: Whether tasks must read all rows.
    - `packed`: Columns that tasks return as the bytes of their items.
    - `settings`: Settings that the option filter is parsed with, if it is given.
    - `counts`: Whether tasks report what they read.
    - `columnar`: Whether tasks return batches of columns, if the types of all columns allow it.
    - `shared_memory`: Whether such tasks may share memory with the JVM.
    - `clustering`: The columns by which joins, aggregates and windows make rows meet, the nearest
      first.
    - `locators`: Columns whose blobs may be locators.
    - `query`: By which requests of one query know each other, if the query reads several tables.
    - `others`: The options of tables that the query reads later.
    - `keys`: Trees of conditions of keys for a read on the driver.
    - `spent`: Bytes of columns that the driver has read for other scans of the query.
    - `other_scans`: Whether the query has other scans, of this table or of others.
    - `broadcast`: Bytes up to which Spark broadcasts the rows for a join; 0 if it does not.
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
    counts: bool = False
    columnar: bool = False
    shared_memory: bool = False
    top: Top | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    computed: tuple[ComputedColumn, ...] = ()
    clustering: tuple[tuple[str, ...], ...] = ()
    locators: Locators | None = None
    query: str | None = None
    others: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    keys: tuple[dict[str, Any], ...] = ()
    spent: int = 0
    other_scans: bool = False
    broadcast: int = 0

    @property
    def is_aggregated(self) -> bool:
        """Whether groups or aggregates are wanted in place of rows."""
        return bool(self.aggregates or self.groups)

    @property
    def computed_names(self) -> set[str]:
        """The names of computed columns."""
        return {item.name for item in self.computed}

    @classmethod
    def parse(cls, text: str) -> PushedScan:
        """Parse the JSON text.

        Raises UnsupportedError: it is malformed, or this release does not know a part of it.
        """
        try:
            parts = json.loads(text)
        except ValueError as error:
            raise refused(f"it is not JSON ({error})", text) from None
        except RecursionError:
            raise refused("it is nested too deep", text) from None
        if not isinstance(parts, dict):
            raise refused("it is not an object", text)
        if unknown := parts.keys() - _KEYS:
            raise refused(f"{min(unknown)!r} is not known", text)
        limit = parts.get("limit")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise refused("the limit is not a number of rows", limit)
        exact, tasks = (parts.get(name, False) for name in ("exact", "tasks"))
        if type(exact) is not bool or (exact and limit is None):
            raise refused("only a limit can be exact", exact)
        if exact and "aggregates" in parts:
            raise refused("aggregates are returned whole", exact)
        if type(tasks) is not bool:
            raise refused("tasks is not true or false", tasks)
        parallelism = parts.get("parallelism")
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise refused("the parallelism is not a number of tasks", parallelism)
        packed = parts.get("packed", [])
        if not isinstance(packed, list) or not all(isinstance(name, str) for name in packed):
            raise refused("packed is not a list of names", packed)
        if packed and "aggregates" in parts:
            raise refused("aggregates have no columns to pack", packed)
        for name in ("spent", "broadcast"):
            if type(parts.get(name, 0)) is not int or parts.get(name, 0) < 0:
                raise refused(f"{name} is not a number of bytes", parts[name])
        version = parts.get("at")
        settings = parts.get("settings")
        return cls(
            filters=tuple(_objects("filters", parts)),
            limit=limit,
            aggregates=tuple(_aggregate(item) for item in _objects("aggregates", parts)),
            at=None if version is None else Version.parse(version),
            exact=exact,
            parallelism=parallelism,
            tasks=tasks,
            packed=tuple(packed),
            settings=None if settings is None else parse_settings(settings),
            counts=parts.get("counts") is True,
            columnar=parts.get("columnar") is True,
            shared_memory=parts.get("shared_memory") is True,
            top=_top(parts["top"]) if "top" in parts else None,
            groups=_groups(parts),
            computed=tuple(_computed(item) for item in _objects("computed", parts)),
            clustering=_clustering(parts),
            locators=_locators(parts["locators"]) if "locators" in parts else None,
            query=parts["query"] if isinstance(parts.get("query"), str) else None,
            keys=tuple(_objects("keys", parts)),
            spent=parts.get("spent", 0),
            other_scans=parts.get("other_scans") is True,
            broadcast=parts.get("broadcast", 0),
        )


def take_request(schema: StructType) -> PushedScan | None:
    """Remove the request from a schema, in place, and return it; None if the schema has none.

    In place, because pyspark checks the batches of the read by the same object.

    Raises UnsupportedError: the request is malformed.
    """
    if not schema.names or schema.names[-1] != FIELD:
        return None
    text = schema.fields[-1].metadata.get(KEY)
    if not isinstance(text, str):
        return None
    others = schema.fields[-1].metadata.get(OTHERS)
    set_fields(schema, schema.fields[:-1])
    request = PushedScan.parse(text)
    return request if others is None else replace(request, others=tuple(json.loads(others)))


def set_fields(schema: StructType, fields: Sequence[StructField]) -> None:
    """Replace the fields of a schema in place, and all that pyspark derived from them."""
    type(schema).__init__(schema, list(fields))


def refused(reason: str, part: object) -> UnsupportedError:
    """Return the error about a part of a request."""
    text = str(part)
    shown = text if len(text) < 300 else f"{text[:300]}..."
    return UnsupportedError(
        f"a request of lance_spark's rule in Spark cannot be answered: {reason}, in {shown}; set "
        "spark.lance.pushdown.enabled to false, and check that the driver and the workers have the "
        "same release of lance_spark"
    )


def column_path(value: object, part: object) -> tuple[str, ...]:
    """Return the path of a column in a part of a request.

    Raises UnsupportedError: the value is not a list of names.
    """
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise refused("a column is not a list of names", part)


def parse_settings(value: object) -> SqlSettings:
    """Return the settings of a session, which the rule sends as texts by Spark's names.

    Raises UnsupportedError: they are malformed. Raises InvalidInputError: Spark does not allow a
    value.
    """
    from lance_spark.spark.options.predicate_text import settings_of_session

    if not isinstance(value, dict) or not all(isinstance(value, str) for value in value.values()):
        raise refused("settings do not map names to texts", value)
    return settings_of_session(value)


def _objects(name: str, parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = parts.get(name, [])
    if isinstance(items, list) and all(isinstance(item, dict) for item in items):
        return items
    raise refused(f"{name} is not a list of objects", items)


def _clustering(parts: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    lists = parts.get("clustering", [])
    if not isinstance(lists, list):
        raise refused("clustering is not a list", lists)
    if lists and ("aggregates" in parts or "limit" in parts or "top" in parts):
        raise refused("only all rows have partition keys", lists)
    return tuple(column_path(names, lists) for names in lists)


def _groups(parts: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    groups = _objects("groups", parts)
    if groups and "aggregates" not in parts:
        raise refused("groups have no aggregates", groups)
    return tuple(column_path(item.get("col"), item) for item in groups)


def _locators(item: object) -> Locators:
    from lance_spark.scan.blobs import MARK_BYTES, Mark

    if not isinstance(item, dict) or item.keys() != {"mark", "source", "columns"}:
        raise refused("locators are malformed", item)
    mark, source = bytes.fromhex(item["mark"]), item["source"]
    if len(mark) != MARK_BYTES or type(source) is not int:
        raise refused("the mark of locators is malformed", item)
    columns = column_path(item["columns"], item)
    return Locators(bytes(Mark(mark, source)), frozenset(columns))


def _top(item: object) -> Top:
    if not isinstance(item, dict) or item.keys() - {"approximate"} != {"rows", "order"}:
        raise refused("the first rows are malformed", item)
    rows = item["rows"]
    if type(rows) is not int or rows < 0:
        raise refused("the number of the first rows is malformed", item)
    order = tuple(_sort_order(part) for part in _objects("order", item))
    if not order:
        raise refused("the first rows have no order", item)
    return Top(rows, order, approximate_settings(item.get("approximate")))


def approximate_settings(settings: object) -> dict[str, int] | None:
    """Return the settings of approximate answers, which are texts by the keys of `nearest`."""
    from lance_spark.errors import InvalidInputError

    if settings is None:
        return None
    if not isinstance(settings, dict) or settings.keys() - _SETTINGS.keys():
        raise refused("the settings of approximate answers are malformed", settings)
    for name, text in settings.items():
        if not (isinstance(text, str) and text.isascii() and text.isdigit() and int(text)):
            raise InvalidInputError(
                f"{_SETTINGS[name]} must be a whole number from 1, not {text!r}"
            )
    return {name: int(text) for name, text in settings.items()}


def _sort_order(item: dict[str, Any]) -> SortOrder:
    flags = (item.get("descending"), item.get("nulls_first"))
    is_distance = "function" in item
    if len(item) != 3 + 2 * is_distance or not all(type(flag) is bool for flag in flags):
        raise refused("an order is malformed", item)
    path = column_path(item.get("col"), item)
    distance = _distance(item) if is_distance else None
    return SortOrder(path, flags[0] is True, flags[1] is True, distance)


def _distance(item: dict[str, Any]) -> Distance:
    from lance_spark.scan.vector_distances import FUNCTIONS, Distance

    function, vector = item["function"], item.get("vector")
    if function not in FUNCTIONS:
        raise refused("the function is not known", item)
    if not isinstance(vector, list) or not all(type(value) is float for value in vector):
        raise refused("a vector is not a list of numbers", item)
    return Distance(function, tuple(vector))


def _computed(item: dict[str, Any]) -> ComputedColumn:
    from pyspark.sql.types import StructType

    name, value, sources = (item.get(key) for key in ("name", "value", "sources"))
    is_known = item.keys() == {"name", "value", "sql", "sources"}
    if not is_known or not isinstance(name, str) or not isinstance(value, dict):
        raise refused("a computed column is malformed", item)
    try:
        return ComputedColumn(name, value, StructType.fromJson(json.loads(str(sources))))
    except (ValueError, KeyError, TypeError) as error:
        raise refused(f"the columns of a computed column are malformed ({error})", item) from None


def _aggregate(item: dict[str, Any]) -> Aggregate:
    op = item.get("op")
    if op not in _OPERATIONS or item.keys() - {"op", "col"}:
        raise refused("an aggregate is not known", item)
    if op == "count_star":
        if "col" in item:
            raise refused("count_star has no column", item)
        return Aggregate("count_star")
    return Aggregate(op, column_path(item.get("col"), item))
