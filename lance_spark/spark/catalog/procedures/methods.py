"""The functions of procedures that are not methods of `LanceTable`.

A function has the parameters of its procedure. Its first argument is the table, which has a session
if the procedure runs Spark jobs. `register_table` and `deregister_table` get the catalog, and the
namespace and name of a table, because the table may not exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa
from pyspark.errors import AnalysisException

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.field import PRIMARY_KEY
from lance_spark.mutations.constraints import add_primary_key
from lance_spark.namespace import TableEntry
from lance_spark.scan.fragment.row_meta import FRAGMENT_ID, ROW_ADDRESS
from lance_spark.spark.catalog.names import Catalog
from lance_spark.spark.quoting import quoted
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryKeywords
from lance_spark.table.paths import BasePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.spark.table import ChangeResult, LanceTable

#: Options of the extension of an index.
_OF_OPTIMIZE = frozenset({"num_indices_to_merge", "retrain", "num_segments"})


def validate(table: LanceTable) -> tuple[int]:
    """Check the table, and return the version that was checked."""
    table.validate()
    return (table.dataset().version,)


def create_tag(
    table: LanceTable,
    name: str,
    version: int | None = None,
    tag: str | None = None,
    if_not_exists: bool = False,
    or_replace: bool = False,
) -> None:
    """Create a tag: a name for a version, which vacuum then does not remove."""
    if or_replace and if_not_exists:
        raise InvalidInputError("or_replace and if_not_exists exclude each other: set one of them")
    exists = name in table.dataset().tags.list()
    if exists and or_replace:
        update_tag(table, name, version, tag)
    elif not (exists and if_not_exists):
        table.create_tag(name, _reference(version, tag))


def update_tag(
    table: LanceTable, name: str, version: int | None = None, tag: str | None = None
) -> None:
    """Move a tag to another version."""
    table.update_tag(name, _reference(version, tag))


def delete_tag(table: LanceTable, name: str, if_exists: bool = False) -> None:
    """Delete a tag."""
    _delete(table.dataset().tags, table.delete_tag, name, if_exists)


def create_branch(
    table: LanceTable,
    name: str,
    version: int | None = None,
    tag: str | None = None,
    if_not_exists: bool = False,
) -> None:
    """Create a branch from a version."""
    if not (if_not_exists and name in table.dataset().branches.list()):
        table.create_branch(name, _reference(version, tag))


def delete_branch(table: LanceTable, name: str, if_exists: bool = False) -> None:
    """Delete a branch with all its versions."""
    _delete(table.dataset().branches, table.delete_branch, name, if_exists)


def clone(
    table: LanceTable,
    target: str,
    is_shallow: bool = False,
    replace: bool = False,
    properties: Mapping[str, str] | None = None,
    version: int | None = None,
    tag: str | None = None,
) -> None:
    """Create a table at a path with the rows of a version."""
    reference = _reference(version, tag)
    table.clone(target, is_shallow, replace, properties, version=reference)


def mem_wal_shards(table: LanceTable) -> DataFrame:
    """Return the shards of the MemWAL, with the rows that are not compacted."""
    return table.shards()


def add_columns_from(
    table: LanceTable,
    source: str,
    key: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    missing: Literal["null", "error"] = "null",
    options: Mapping[str, str] | None = None,
    **keywords: Unpack[RetryKeywords],
) -> ChangeResult:
    """Add the columns of a table or view, joined by a key."""
    frame, names = _keyed_frame(table, source, key, columns)
    return table.add_columns_from(frame, names, missing=missing, options=options, **keywords)


def update_columns_from(
    table: LanceTable,
    source: str,
    key: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    **keywords: Unpack[RetryKeywords],
) -> ChangeResult:
    """Update columns by the values that a table or view has for the same key."""
    return table.update_columns_from(*_keyed_frame(table, source, key, columns), **keywords)


def replace_where(
    table: LanceTable, source: str, condition: str, **keywords: Unpack[RetryKeywords]
) -> ChangeResult:
    """Replace the rows that meet a condition by the rows of a table or view."""
    return table.replace_where(_frame(table, source), condition, **keywords)


def upsert(table: LanceTable, source: str, **keywords: Unpack[RetryKeywords]) -> ChangeResult:
    """Update the rows whose primary key a table or view has, and insert its other rows."""
    return table.upsert(_frame(table, source), **keywords)


def add_bases(
    table: LanceTable,
    bases: Mapping[str, str],
    is_dataset_root: bool = False,
    **keywords: Unpack[CommitKeywords],
) -> ChangeResult:
    """Add base paths, by their names: other folders that may hold files of the table."""
    paths = [BasePath(0, path, is_dataset_root, name) for name, path in bases.items()]
    return table.add_bases(paths, **keywords)


def set_unenforced_primary_key(
    table: LanceTable, columns: Sequence[str], **keywords: Unpack[CommitKeywords]
) -> tuple[str, str]:
    """Declare the columns of the primary key. No write checks that keys are unique."""
    dataset = table.dataset()
    columns = table._handle.spelled_paths(dataset, *columns)
    add_primary_key(dataset._table, None, columns, CommitOptions.of(**keywords))
    return "OK", ",".join(columns)


def describe_indices(table: LanceTable) -> Any:
    """List the indexes, and how many fragments and rows they cover."""
    return table.indexes()


def check_index(table: LanceTable, name: str) -> Any:
    """Compare an index with its column, and return a row for each segment of the index."""
    return table.check_index(name)


def drop_index(
    table: LanceTable, name: str, if_exists: bool = False, **keywords: Unpack[CommitKeywords]
) -> tuple[str, str]:
    """Drop an index. Vacuum removes its files."""
    if if_exists and not _has_index(table, name):
        return name, "not found"
    table.drop_index(name, **keywords)
    return name, "dropped"


def create_index(
    table: LanceTable,
    name: str,
    method: str,
    columns: Sequence[str],
    options: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    **keywords: Unpack[RetryKeywords],
) -> tuple[int, str]:
    """Create an index of a column, in place of an index of the same name."""
    if if_not_exists and _has_index(table, name):
        return _coverage(table, name)
    if len(columns) != 1:
        raise InvalidInputError(
            f"table {table.path}: an index has one column, not {len(columns)}: {list(columns)}"
        )
    values = _index_options(table, options)
    table.create_index(columns[0], method, name, **values, **keywords)
    return _coverage(table, name)


def optimize_index(
    table: LanceTable,
    name: str,
    options: Mapping[str, str] | None = None,
    **keywords: Unpack[RetryKeywords],
) -> tuple[int, str]:
    """Extend an index to the rows that it does not cover, and merge its newest segments."""
    values = _index_options(table, options, _OF_OPTIMIZE)
    table.optimize_indices([name], **values, **keywords)
    return _coverage(table, name)


def refresh_index(
    table: LanceTable,
    name: str,
    options: Mapping[str, str] | None = None,
    **keywords: Unpack[RetryKeywords],
) -> tuple[int, str]:
    """Extend an index to the rows that it does not cover, by new segments."""
    values = _index_options(table, options, {"num_segments"})
    table.optimize_indices([name], num_indices_to_merge=0, **values, **keywords)
    return _coverage(table, name)


def optimize_indices(
    table: LanceTable,
    index_names: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    **keywords: Unpack[RetryKeywords],
) -> ChangeResult:
    """Extend indexes to the rows that they do not cover, and merge their newest segments."""
    values = _index_options(table, options, _OF_OPTIMIZE)
    return table.optimize_indices(index_names, **values, **keywords)


def register_table(catalog: Catalog, table: Mapping[str, Any], location: str) -> Any:
    """Give an existing table a name in the catalog."""
    identifier = catalog.table_identifier(table)
    entry = TableEntry(location, {}, catalog.path_entry(location).storage_options)
    open_dataset(location, storage_options=dict(entry.storage_options) or None)
    catalog.namespace.register_table(identifier, entry)
    return (location,)


def deregister_table(catalog: Catalog, table: Mapping[str, Any]) -> Any:
    """Remove the name of a table, keep its files, and return where they are."""
    return (catalog.namespace.deregister_table(catalog.table_identifier(table)).location,)


def _reference(version: int | None, tag: str | None) -> int | str | None:
    if version is not None and tag is not None:
        raise InvalidInputError(f"version => {version} and tag => {tag!r}: set one of them")
    return tag if version is None else version


def _delete(references: Any, delete: Callable[[str], None], name: str, if_exists: bool) -> None:
    """Delete a tag or a branch."""
    if not (if_exists and name not in references.list()):
        delete(name)


def _frame(table: LanceTable, source: str, names: Mapping[str, str] | None = None) -> Any:
    """Return the rows of a table or view of the session.

    Parameters
    ----------
    names : mapping of str to str, optional
        The columns, and the names that they get.
    """
    try:
        frame = table.spark.table(source)
        if names is None:
            return frame
        return frame.select(*(frame[quoted(old)].alias(new) for old, new in names.items()))
    except AnalysisException as error:
        message = str(error).partition("\n")[0]
        raise InvalidInputError(f"source => {source!r}: {message}") from error


def _keyed_frame(
    table: LanceTable, source: str, key: Sequence[str] | None, columns: Sequence[str] | None
) -> tuple[Any, list[str]]:
    """Return the rows of a table or view, with the columns of the statement, and the key.

    Without a key in the statement, the key is the row address if the source has it, otherwise the
    primary key of the table.
    """
    is_case_sensitive = table.spark.conf.get("spark.sql.caseSensitive") == "true"

    def spelled(name: str) -> str:
        return name if is_case_sensitive else name.lower()

    schema = table.dataset().schema
    of_source = {spelled(name): name for name in _frame(table, source).columns}
    if key is None:
        primary = [field.name for field in schema if _is_key(field)]
        key = [ROW_ADDRESS.name] if ROW_ADDRESS.name in of_source else primary
        if not key or not all(spelled(name) in of_source for name in key):
            raise InvalidInputError(
                f"source => {source!r} has no key of table {table.path}: it needs the column "
                f"{ROW_ADDRESS.name}, or all columns of the primary key "
                f"({', '.join(primary) or 'the table has none'}); other keys are given by "
                "key => array(...) of the procedure"
            )
    if columns is None:
        left_out = {spelled(name) for name in (*key, FRAGMENT_ID.name)}
        columns = [name for text, name in of_source.items() if text not in left_out]
    of_table = {spelled(name): name for name in schema.names}
    names = {name: of_table.get(spelled(name), name) for name in (*key, *columns)}
    return _frame(table, source, names), [names[name] for name in key]


def _is_key(field: pa.Field) -> bool:
    metadata = field.metadata or {}
    return PRIMARY_KEY.encode() in metadata or f"{PRIMARY_KEY}:position".encode() in metadata


def _index_options(
    table: LanceTable, options: Mapping[str, str] | None, known: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the options of a statement as arguments: numbers, true and false, and texts."""
    values: dict[str, Any] = {}
    for name, text in (options or {}).items():
        if known is not None and name not in known:
            raise InvalidOptionError(
                f"table {table.path}: option {name!r} of the index is unknown; the options are "
                f"{', '.join(sorted(known))}"
            )
        try:
            value = json.loads(text.lower())
        except ValueError:
            value = text
        values[name] = value if isinstance(value, int | float) else text
    return values


def _has_index(table: LanceTable, name: str) -> bool:
    return any(index["name"] == name for index in table.dataset().list_indices())


def _coverage(table: LanceTable, name: str) -> tuple[int, str]:
    """Return how many fragments an index covers, and its name."""
    dataset = table.dataset()
    (index,) = [index for index in dataset.describe_indices() if index.name == name]
    covered = {number for part in index.segments for number in part.fragment_ids or ()}
    return len(covered & {fragment.id for fragment in dataset.fragments}), name
