"""Procedures: the functions behind `CALL lance.system.NAME(...)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from pyspark.errors import PySparkException

from lance_spark.arguments import keywords_of
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedError
from lance_spark.keywords import declared_by, signature_of
from lance_spark.spark.catalog.names import Catalog, is_path, options_of
from lance_spark.spark.catalog.procedures import methods
from lance_spark.spark.catalog.procedures.attached_session import attached_session
from lance_spark.spark.catalog.times import from_microseconds, to_microseconds
from lance_spark.spark.jvm.classes import SESSION_CATALOG
from lance_spark.spark.jvm.shims.pyspark_names import java_error
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.base import ChangeResult, TableHandle
from lance_spark.spark.table.bases import BASE_COLUMNS, REPAIR_COLUMNS
from lance_spark.spark.table.history import (
    BRANCH_COLUMNS,
    DETAIL_COLUMNS,
    HISTORY_COLUMNS,
    TAG_COLUMNS,
)
from lance_spark.spark.table.indexes import CHECK_COLUMNS, INDEX_COLUMNS
from lance_spark.spark.table.maintenance import (
    CLEANUP_COLUMNS,
    COMPACTION_COLUMNS,
    VACUUM_COLUMNS,
    OptimizeBuilder,
    compaction_frame,
)
from lance_spark.spark.table.mem_wal import MEM_WAL_CLEANUP_COLUMNS, SHARD_COLUMNS
from lance_spark.table.commit.options import RetryKeywords

# --------------------------------------------------------------------------------------------------
# The procedures of a catalog, and the columns of their results.
#
# Most procedures are methods of `LanceTable` under names in snake case. The others are functions of
# `methods`. A procedure has the parameters of its function, whose types in SQL follow from the
# annotations.

#: A changed table: the number of the new version, or of the newest if nothing changed.
VERSION = "version long"
_ROWS = f"{VERSION}, num_inserted_rows long, num_updated_rows long, num_deleted_rows long"
_NAME = "name string"
_COVERAGE = "fragments_indexed long, index_name string"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes
    ----------
    result : str
        Columns of the result.
    has_jobs : bool
        Whether it runs Spark jobs, or reads views of the session.
    opens : bool
        Whether it works on a table that exists.
    required : tuple of str
        Parameters that a call must have, although the function has a default.
    condition : str or None
        The optional parameter that chooses rows. A call without it chooses all rows. A call that
        gives null is refused, as null may be the result of an expression, such as a concatenation.
    aliases : tuple of str
        Names of the same procedure in other formats.
    """

    result: str = VERSION
    has_jobs: bool = False
    opens: bool = True
    required: tuple[str, ...] = ()
    condition: str | None = None
    aliases: tuple[str, ...] = ()


#: Default of the parameter that chooses rows: a condition that all rows meet.
ALL_ROWS = "true"

#: Comments of parameters that mean the same in all procedures.
COMMENTS: Mapping[str, str] = {
    "table": "Name of a table in the catalog, or a path.",
    "branch": "Branch of the table; by default the main branch.",
    "table_options": "Options of the table's store, or a version.",
    "source": "Name of a table or view of the session.",
    "key": "Columns of both; `_rowaddr`, or the primary key, if it is left out.",
    "missing": "`null`: rows whose key the source does not have get nulls. `error`: an error.",
    "version": "Number of a version of the branch. Where it can be left out, the newest.",
    "tag": "Name of a tag. It can stand for a version.",
    "bases": "Paths by the names of base paths.",
    "is_dataset_root": "Whether the folders have the layout of a table: files are in data/.",
    "names": "Names of columns, or dotted paths of children of structs.",
    "location": "Path of the table.",
    "if_not_exists": "Whether to change nothing, instead of failing, if the name exists already.",
    "or_replace": "Whether a tag of the name moves, if it exists already.",
    "index_names": "Names of indexes; by default all that this release can extend.",
    "if_exists": "Whether to change nothing, instead of failing, if the name does not exist.",
}

PROCEDURES: Mapping[str, Procedure] = {
    # Maintenance
    "optimize": Procedure(COMPACTION_COLUMNS, has_jobs=True, condition="where"),
    "vacuum": Procedure(VACUUM_COLUMNS),
    "cleanup": Procedure(CLEANUP_COLUMNS),
    "validate": Procedure(),
    # History
    "history": Procedure(HISTORY_COLUMNS),
    "detail": Procedure(DETAIL_COLUMNS),
    "restore_to_version": Procedure(aliases=("rollback_to_version", "rollback_to_snapshot")),
    "restore_to_timestamp": Procedure(aliases=("rollback_to_timestamp",)),
    "restore_to_tag": Procedure(aliases=("rollback_to_tag",)),
    "tags": Procedure(TAG_COLUMNS),
    "create_tag": Procedure(_NAME),
    "update_tag": Procedure(_NAME),
    "delete_tag": Procedure(_NAME),
    "branches": Procedure(BRANCH_COLUMNS),
    "create_branch": Procedure(_NAME),
    "delete_branch": Procedure(_NAME),
    "clone": Procedure("target string"),
    # Columns
    "add_columns": Procedure(has_jobs=True),
    "add_columns_from": Procedure(has_jobs=True),
    "update_columns_from": Procedure(_ROWS, has_jobs=True),
    "drop_columns": Procedure(),
    "rename_column": Procedure(),
    "alter_column": Procedure(has_jobs=True),
    "reorder_columns": Procedure(),
    "set_unenforced_primary_key": Procedure("status string, primary_key_columns string"),
    # Rows
    "delete": Procedure(_ROWS, has_jobs=True, condition="condition"),
    "update": Procedure(_ROWS, has_jobs=True, required=("set",), condition="condition"),
    "update_columns": Procedure(_ROWS, has_jobs=True),
    "replace_where": Procedure(_ROWS, has_jobs=True),
    "upsert": Procedure(_ROWS, has_jobs=True),
    # Base paths
    "bases": Procedure(BASE_COLUMNS),
    "add_bases": Procedure(),
    "repoint_base": Procedure(),
    "repair_branches": Procedure(REPAIR_COLUMNS),
    "move_fragments": Procedure(COMPACTION_COLUMNS, has_jobs=True, condition="where"),
    # Indexes
    "describe_indices": Procedure(INDEX_COLUMNS),
    "check_index": Procedure(CHECK_COLUMNS, has_jobs=True),
    "drop_index": Procedure("index_name string, status string"),
    "create_index": Procedure(_COVERAGE, has_jobs=True),
    "optimize_index": Procedure(_COVERAGE, has_jobs=True),
    "refresh_index": Procedure(_COVERAGE, has_jobs=True),
    "optimize_indices": Procedure(has_jobs=True),
    # MemWAL
    "initialize_mem_wal": Procedure(),
    "mem_wal_shards": Procedure(SHARD_COLUMNS),
    "compact_mem_wal": Procedure(_ROWS, has_jobs=True),
    "clean_mem_wal": Procedure(MEM_WAL_CLEANUP_COLUMNS),
    "disable_mem_wal": Procedure(has_jobs=True),
    # Names
    "register_table": Procedure("location string", opens=False),
    "deregister_table": Procedure("location string", opens=False),
}


# --------------------------------------------------------------------------------------------------
# Procedures: the functions behind `CALL lance.system.NAME(...)`.

_PART = r"(?:`(?:[^`]|``)+`|[^`.]+)"
_NAME_PATTERN = re.compile(rf"{_PART}(?:\.{_PART})*")
#: The type of a column, in DDL.
_TIMESTAMP = re.compile(r"\btimestamp\b(?=,|$)")
#: The class and the message of an error in a stack trace of Java.
_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)", re.MULTILINE)
#: Types in SQL, by annotations of the functions of procedures.
_SQL_TYPES = {
    "bool": "boolean",
    "int": "long",
    "float": "double",
    "str": "string",
    "int | str": "string",
    "str | Column": "string",
    "str | DataType | pa.DataType": "string",
    "str | datetime": "timestamp_ltz",
    "timedelta": "interval day to second",
    "Literal['null', 'error']": "string",
    "UpdateMode": "string",
    "Collection[int]": "array<long>",
    "Sequence[str]": "array<string>",
    "str | Column | Sequence[str | Column]": "array<string>",
    "Mapping[str, str]": "map<string, string>",
    "Mapping[str, Any]": "map<string, string>",
    "Mapping[str, str | Column]": "map<string, string>",
}
#: The name of a method or a parameter in a comment.
_CAMEL_CASE = re.compile(r"`[a-z]+(?:[A-Z][a-z]*)+`")
#: A parameter in a numpydoc docstring, and its text.
_DOCUMENTED = re.compile(r"^([\w, ]+) : [^\n]*\n((?: {4}[^\n]*\n?)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """Rows that a procedure returns, with their columns as DDL."""

    rows: Sequence[tuple[Any, ...]]
    schema: str


class ResultHandle(TableHandle):
    """A handle that returns rows without a Spark job."""

    #: Whether names in another case are other names; of the session of the statement.
    exact_names = False

    def is_case_sensitive(self) -> bool:
        """Return what the session of the statement says."""
        return self.exact_names

    def data_frame(self, rows: Iterable[tuple[Any, ...]], schema: str) -> Any:
        """Return rows as the result of a procedure."""
        return Result([*rows], schema)

    def change_frame(self, result: ChangeResult, row: tuple[Any, ...], schema: str) -> Any:
        """Return the result of a change: a procedure shows its own columns of it."""
        return result


class ResultTable(LanceTable):
    """A table whose methods return their rows without a Spark job."""

    _handle_class = ResultHandle
    _handle: ResultHandle


def list_procedures(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the descriptions of all procedures."""
    return {
        "procedures": [
            {
                "name": name,
                "comment": _in_sql((inspect.getdoc(_function(name)) or name).split("\n\n")[0]),
                "aliases": procedure.aliases,
                "has_jobs": procedure.has_jobs,
                "opens": procedure.opens,
                "parameters": [
                    {
                        "name": parameter,
                        "type": text,
                        "required": required,
                        "default": f"'{ALL_ROWS}'" if parameter == procedure.condition else "NULL",
                        "comment": _comments(name).get(parameter),
                    }
                    for parameter, (text, required) in _parameters(name).items()
                ],
            }
            for name, procedure in PROCEDURES.items()
        ]
    }


def call_procedure(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run a procedure, and return its rows.

    Parameters
    ----------
    arguments : mapping
        Of the catalog: ``catalog``, ``warehouse``, ``catalog_name``, ``current_namespace``. Of the
        call: ``procedure``, ``values`` of the parameters (null if not given), and ``driver`` if
        the procedure runs jobs.
    """
    name = arguments["procedure"]
    procedure = PROCEDURES[name]
    parameters = _parameters(name)
    values = {
        parameter: _python_value(value, parameters[parameter][0])
        for parameter, value in arguments["values"].items()
        if value is not None
    }
    for parameter, (_, required) in parameters.items():
        if (required or parameter == procedure.condition) and parameter not in values:
            raise InvalidInputError(f"procedure {name}: parameter {parameter} must not be null")
    if procedure.condition is not None and values[procedure.condition] == ALL_ROWS:
        del values[procedure.condition]
    catalog = Catalog.of(arguments)
    table = {**arguments, **table_name(values.pop("table"), arguments)}
    if not procedure.opens and arguments["catalog_name"] == SESSION_CATALOG:
        raise UnsupportedError(
            f"procedure {name}: the metastore has the names of {SESSION_CATALOG}; use CREATE TABLE "
            "t USING lance LOCATION, or DROP TABLE, which keeps the files of a table with LOCATION"
        )
    if not procedure.opens:
        result = Result([_function(name)(catalog, table, **values)], procedure.result)
    elif procedure.has_jobs:
        with attached_session(arguments["driver"]) as spark:
            try:
                opened = _opened(catalog, table, spark, values)
                result = _run(name, procedure, opened, values)
            except PySparkException as error:
                raise LanceError(f"procedure {name}: {_first_line(error)}") from error
            except java_error() as error:
                raise LanceError(f"procedure {name}: {_first_cause(error)}") from error
    else:
        result = _run(name, procedure, _opened(catalog, table, None, values), values)
    return {
        # The setting spark.sql.timestampType must not change the type.
        "schema": _TIMESTAMP.sub("timestamp_ltz", result.schema),
        "rows": [[_json_value(value) for value in row] for row in result.rows],
        # The session may have cached the table, and must read it again.
        "table": [*table["namespace"], table["name"]] if procedure.opens else None,
    }


def table_name(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return namespace and name of the table that a text means.

    The text is the name of a table in the catalog, with or without the name of the catalog before
    it, or a path. A name without a namespace is in the current namespace if the catalog is the
    current catalog.

    Raises
    ------
    InvalidInputError
        The text is not a name.
    """
    if "/" in text and "`" not in text:
        return {"namespace": [], "name": text}
    if not _NAME_PATTERN.fullmatch(text):
        raise InvalidInputError(
            f"table => {text!r} must be the name of a table, such as 'db.t', or a path; enclose "
            "parts with other characters in backticks"
        )
    parts = [
        part[1:-1].replace("``", "`") if part.startswith("`") else part.strip()
        for part in re.findall(_PART, text)
    ]
    if len(parts) > 1 and parts[0] == arguments["catalog_name"]:
        return {"namespace": parts[1:-1], "name": parts[-1]}
    if len(parts) == 1 and "/" not in parts[0]:
        return {"namespace": arguments["current_namespace"], "name": parts[0]}
    return {"namespace": parts[:-1], "name": parts[-1]}


def _opened(
    catalog: Catalog, table: Mapping[str, Any], spark: Any, values: dict[str, Any]
) -> ResultTable:
    """Open the table of a call; remove the parameters of its branch and options from `values`."""
    given = values.pop("table_options", {})
    if any(name.lower() == "path" for name in given):
        raise InvalidInputError(
            "table_options has a path, and the table has one already: give the path as table =>"
        )
    options = {**options_of(catalog.describe(table)), **given}
    if "branch" in values:
        options["branch"] = values.pop("branch")
    opened = ResultTable.forPath(spark, options.pop("path"), **options)
    opened._handle.exact_names = bool(table.get("case_sensitive"))
    if table.get("session_name") is not None:
        opened._handle.name = f"{table['catalog_name']}.{table['session_name']}"
    elif not is_path(table):
        opened._handle.name = ".".join((table["catalog_name"], *table["namespace"], table["name"]))
    return opened


def _run(name: str, procedure: Procedure, table: ResultTable, values: Mapping[str, Any]) -> Result:
    function = _function(name)
    arguments = {_snake_names(function).get(key, key): value for key, value in values.items()}
    result = function(table, *arguments.pop("names", ()), **arguments)
    if isinstance(result, OptimizeBuilder):
        result = compaction_frame(table._handle, result.compacted())
    if isinstance(result, Result):
        return result
    if isinstance(result, tuple):
        return Result([result], procedure.result)
    columns = [column.split()[0] for column in procedure.result.split(", ")]
    source = vars_of(result) if isinstance(result, ChangeResult) else values
    return Result([tuple(source[column] for column in columns)], procedure.result)


def vars_of(result: ChangeResult) -> dict[str, int]:
    """Return the attributes of the result of a change."""
    return {name: getattr(result, name) for name in ChangeResult.__dataclass_fields__}


def _function(name: str) -> Any:
    """Return the function of a procedure: of `methods`, or a method of `LanceTable`."""
    return getattr(methods, name, None) or _method(name)


def _method(name: str) -> Any:
    """Return the method of `LanceTable` that has a name in snake case, or None."""
    return getattr(ResultTable, _method_names().get(name, name), None)


@cache
def _method_names() -> dict[str, str]:
    return {_snake_case(name): name for name in dir(ResultTable)}


@cache
def _parameters(name: str) -> Mapping[str, tuple[str, bool]]:
    """Return the type of each parameter of a procedure, and whether a call must have it.

    Those that it must have come first.
    """
    procedure = PROCEDURES[name]
    found = {"table": ("string", True)}
    # The first parameter is the table; without an open table, the catalog and the name.
    own = list(signature_of(_function(name)).parameters.values())
    for parameter in own[1 if procedure.opens else 2 :]:
        snake = _snake_case(parameter.name)
        is_required = snake in procedure.required or (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        )
        found[snake] = _sql_type(parameter), is_required
    # They choose how other clients work; all are numbers.
    found |= dict.fromkeys(keywords_of(_function(name)).unused, ("long", False))
    if procedure.opens:
        found |= {"branch": ("string", False), "table_options": ("map<string, string>", False)}
    return dict(sorted(found.items(), key=lambda item: not item[1][1]))


def _sql_type(parameter: inspect.Parameter) -> str:
    """Return the type in SQL of a parameter of a function."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"array<{_SQL_TYPES[parameter.annotation]}>"
    return _SQL_TYPES[parameter.annotation.removesuffix(" | None")]


@cache
def _snake_names(function: Any) -> dict[str, str]:
    names = signature_of(function).parameters
    return {_snake_case(text): text for text in names}


@cache
def _comments(procedure: str) -> dict[str, str]:
    """Return the comments of parameters, from the docstrings and from `COMMENTS`."""
    owners = [_method(procedure), _function(procedure)]
    comments = {name: item.keyword.text for name, item in declared_by(RetryKeywords).items()}
    comments |= dict.fromkeys(keywords_of(_function(procedure)).unused, "No effect.")
    for owner in filter(None, owners):
        documented = _documented(owner.__doc__ or "")
        names = _snake_names(owner).items()
        comments.update({snake: documented[name] for snake, name in names if name in documented})
    return {parameter: _in_sql(text) for parameter, text in {**comments, **COMMENTS}.items()}


def _in_sql(comment: str) -> str:
    """Return a comment with the names of methods in snake case, as procedures have them."""
    return _CAMEL_CASE.sub(lambda match: _snake_case(match[0]), comment)


def _documented(docstring: str) -> dict[str, str]:
    """Return the comments of the parameters or attributes of a docstring."""
    return {
        parameter: " ".join(comment.split())
        for names, comment in _DOCUMENTED.findall(inspect.cleandoc(docstring))
        for parameter in names.split(", ")
    }


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _python_value(value: Any, type_text: str) -> Any:
    if value is not None and type_text == "timestamp_ltz":
        return from_microseconds(value)
    if value is not None and type_text.startswith("interval"):
        return timedelta(microseconds=value)
    return value


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_microseconds(value)
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_value(item) for item in value]
    return value


def _first_cause(error: Exception) -> str:
    """Return the message of the last cause in Java's stack trace: for example a cancelled job."""
    causes = _CAUSE.findall(str(error))
    return str(causes[-1]) if causes else _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
