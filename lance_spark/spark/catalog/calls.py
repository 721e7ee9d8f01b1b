"""Calls: how the catalog in the JVM runs functions of this package.

A call travels as the only field of a schema that `DataSource.reader` gets. The field `__lance_call`
has the null type, and its metadata holds a JSON text under `call`: the name of a function of
`FUNCTIONS`, and its arguments. `CallReader` runs the function when Spark asks for partitions. A
reply (`lance_spark.spark.replies`) takes the place of the first partition: `result` is what the
function returns. An error of this package becomes the result
`{"error": {"kind": ..., "message": ..., "class": ...}}`. The JVM raises it as Spark's own exception
of that kind (`Errors.java`), without a traceback.

Spark runs this in the Python process in which it plans data sources, and uses the process again:
a function must leave no state behind that another statement could meet.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_spark import errors
from lance_spark.spark.replies import reply_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FIELD = "__lance_call"
#: Key of the field's metadata under which the text stands.
KEY = "call"
#: The module of each function, in this package.
FUNCTIONS = {
    "list_tables": "tables",
    "load_table": "query_options",
    "check_query_options": "query_options",
    "load_changes": "changes",
    "load_search": "search",
    "join_nearest": "nearest_join",
    "drop_table": "tables",
    "rename_table": "tables",
    "can_delete": "row_changes",
    "delete_where": "row_changes",
    "plan_row_changes": "row_changes",
    "commit_row_changes": "row_changes",
    "abort_row_changes": "row_changes",
    "create_table": "create",
    "like_properties": "create",
    "stage_table": "create",
    "commit_staged": "create",
    "abort_staged": "create",
    "path_exists": "tables",
    "columns_left_out": "tables",
    "path_constraints": "tables",
    "alter_table": "alter",
    "list_namespaces": "tables",
    "namespace_exists": "tables",
    "load_namespace": "tables",
    "create_namespace": "tables",
    "alter_namespace": "tables",
    "drop_namespace": "tables",
    "list_procedures": "procedures.call",
    "call_procedure": "procedures.call",
    "rewrite_statement": "procedures.statements",
}
#: Kinds of errors that have an exception of their own in Spark.
KINDS: Mapping[type[errors.LanceError], str] = {
    errors.TableNotFoundError: "table_not_found",
    errors.TableExistsError: "table_exists",
    errors.NamespaceNotFoundError: "namespace_not_found",
    errors.NamespaceExistsError: "namespace_exists",
    errors.NamespaceNotEmptyError: "namespace_not_empty",
}


def take_call(schema: StructType) -> str | None:
    """Return the text of a call; None for a schema of rows."""
    if len(schema.fields) != 1 or schema.fields[0].name != FIELD:
        return None
    text = schema.fields[0].metadata.get(KEY)
    return text if isinstance(text, str) else None


class CallReader(DataSourceReader):
    """Runs a call, and returns the result in the place of partitions."""

    def __init__(self, text: str) -> None:
        self._text = text

    def partitions(self) -> list[InputPartition]:
        """Return the reply."""
        return [InputPartition(reply_of("call", result=run(self._text)))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return no rows: Spark never reads the reply as a partition."""
        return iter(())


def run(text: str) -> dict[str, Any]:
    """Run a call, and return its result or its error."""
    try:
        call = json.loads(text)
        name = call["function"]
        module = import_module(f"{__package__}.{FUNCTIONS[name]}")
        result: dict[str, Any] = getattr(module, name)(call["arguments"])
    except errors.LanceError as error:
        name = type(error).__name__
        return {"error": {"kind": kind_of(error), "message": str(error), "class": name}}
    except Exception as error:
        # A defect of this package: the log of the process has the traceback, users see a message.
        traceback.print_exc(file=sys.stderr)
        return {"error": {"kind": "internal", "message": f"{type(error).__name__}: {error}"}}
    return result


def kind_of(error: errors.LanceError) -> str:
    """Return the kind of an error, by its class or a base class."""
    for cls, error_kind in KINDS.items():
        if isinstance(error, cls):
            return error_kind
    return "other"
