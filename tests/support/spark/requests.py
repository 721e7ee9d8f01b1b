"""Requests as the rule of Spark's optimizer sends them, and a slow model of their meaning."""

from __future__ import annotations

import json
import math
import pickle
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DataType, NullType, StructField, StructType

from lance_spark.spark import replies
from lance_spark.spark.datasource import LanceDataSource

EPOCH = date(1970, 1, 1)


@dataclass
class Answer:
    """The reply to a request."""

    rows: int
    size: int
    at: str
    partitions: list[Any]
    batches: list[pa.RecordBatch]
    fragments: tuple[int, int] = (0, 0)
    local_rows: pa.Table | None = None

    @property
    def num_rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def to_pylist(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.to_pylist()]


def ask(path: str, columns: list[str] | StructType, request: Any, **options: str) -> Answer:
    """Send a request through all steps of pyspark: the reader is pickled, and plans; partitions are
    pickled.
    """
    source = LanceDataSource(CaseInsensitiveDict({"path": path, **options}))
    wanted = columns
    if not isinstance(columns, StructType):
        full_schema = source.schema()
        wanted = StructType([full_schema[name] for name in columns])
    assert isinstance(wanted, StructType)
    text = request if isinstance(request, str) else json.dumps(request)
    schema = StructType(
        [*wanted.fields, StructField("__lance_request", NullType(), True, {"request": text})]
    )
    reader = source.reader(schema)
    assert schema == wanted
    assert schema.names == wanted.names
    copied = pickle.loads(pickle.dumps(reader))
    first, *partitions = reader.partitions()
    header, data = parsed(pickle.dumps(first))
    assert header["kind"] == "plan"
    batches = [
        batch
        for partition in partitions
        for batch in copied.read(pickle.loads(pickle.dumps(partition)))
    ]
    answer = Answer(header["rows"], header["bytes"], header["at"], partitions, batches)
    answer.fragments = (header["fragments"][0], header["fragments"][1])
    if header["data"] == "rows":
        answer.local_rows = pa.ipc.open_stream(data).read_all()
        if not reader.request.aggregates and reader.request.limit is None:
            assert repr(answer.local_rows.to_pylist()) == repr(answer.to_pylist())
    return answer


def parsed(pickled: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data of the reply in a pickle, as `Reply.java` does."""
    _, mark, rest = pickled.partition(replies.MARK)
    assert mark
    size, length = replies.LENGTHS.unpack_from(rest)
    start = replies.LENGTHS.size + size
    return json.loads(rest[replies.LENGTHS.size : start]), rest[start : start + length]


def aggregates(*calls: tuple[str, list[str] | None, DataType]) -> tuple[StructType, dict[str, Any]]:
    """Return the schema and the request of some aggregates."""
    schema = StructType(
        [StructField(f"agg{index}", dtype) for index, (_, _, dtype) in enumerate(calls)]
    )
    listed = [{"op": op} if path is None else {"op": op, "col": path} for op, path, _ in calls]
    return schema, {"aggregates": listed}


def col(*path: str) -> dict[str, Any]:
    return {"col": list(path)}


def op(name: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {"op": name, "args": list(args), **options}


def lit(value: Any, type_name: str) -> dict[str, Any]:
    """Return a literal in the form that Java writes."""
    text = value
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float):
        special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        text = special.get(repr(value), repr(value).replace("e+", "E").replace("e", "E"))
    elif isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, datetime):
        zero = datetime(1970, 1, 1, tzinfo=value.tzinfo and UTC)
        text = str((value - zero) // timedelta(microseconds=1))
    elif isinstance(value, date):
        text = str((value - EPOCH).days)
    elif value is not None:
        text = str(value)
    return {"lit": text, "type": type_name}


def truth(tree: dict[str, Any], row: dict[str, Any], values: dict[int, Any]) -> bool | None:
    """Return whether a filter is true, false or null for a row. `values` has the values of literals
    by their identity.
    """
    if "op" not in tree:
        result: bool | None = _value(tree, row, values)
        return result
    name, args = tree["op"], tree["args"]
    if name in ("and", "or"):
        parts = [truth(argument, row, values) for argument in args]
        decides = name == "or"
        return decides if decides in parts else None if None in parts else not decides
    if name == "not":
        inner = truth(args[0], row, values)
        return None if inner is None else not inner
    found_values = [_value(argument, row, values) for argument in args]
    left, *operands = found_values
    if name == "is_null":
        return left is None
    if name == "is_not_null":
        return left is not None
    if name == "in":
        if left is None:
            return None
        if any(item is not None and _order(left, item) == 0 for item in operands):
            return True
        return None if None in operands else False
    right = operands[0]
    if name == "<=>":
        return left is right if None in (left, right) else _order(left, right) == 0
    if left is None or right is None:
        return None
    if name in ("starts_with", "ends_with", "contains", "like"):
        return {
            "starts_with": lambda: left.startswith(right),
            "ends_with": lambda: left.endswith(right),
            "contains": lambda: right in left,
            "like": lambda: _like(right, tree["escape"], left),
        }[name]()
    order = _order(left, right)
    return {"=": order == 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[
        name
    ]


def _value(tree: dict[str, Any], row: dict[str, Any], values: dict[int, Any]) -> Any:
    if "lit" in tree:
        return values[id(tree)]
    result: Any = row
    for name in tree["col"]:
        result = None if result is None else result[name]
    return result


def _order(left: Any, right: Any) -> int:
    nans = [isinstance(item, float) and math.isnan(item) for item in (left, right)]
    if any(nans):
        return int(nans[0]) - int(nans[1])
    return int(left > right) - int(left < right)


def _like(pattern: str, escape: str, text: str) -> bool:
    result, index = "", 0
    while index < len(pattern):
        if pattern[index] == escape:
            index += 1
            result += re.escape(pattern[index])
        else:
            result += {"%": ".*", "_": "."}.get(pattern[index], re.escape(pattern[index]))
        index += 1
    return re.fullmatch(result, text, re.DOTALL) is not None


__all__ = ["Answer", "Decimal", "aggregates", "ask", "col", "lit", "op", "truth"]
