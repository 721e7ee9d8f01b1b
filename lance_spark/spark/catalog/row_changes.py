"""DELETE, UPDATE and MERGE: checked when they are planned, committed when their tasks are done.

`DELETE` of rows that a condition of a small table selects needs no job (`can_delete`).
"""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.writer import check_types
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.column_rewriter import changed_columns, overlay_files
from lance_spark.mutations.rewrite.overlay_files import check_overlaid_fields
from lance_spark.mutations.rewrite.readers import check_first_field
from lance_spark.mutations.rewrite.writers import undo, write_held
from lance_spark.mutations.rows.delete import FragmentDeletion, commit_deletes, delete_rows
from lance_spark.mutations.rows.update import (
    Mode,
    UpdateResult,
    can_rewrite_columns,
    columns_are_cheaper,
    commit_moved_rows,
    commit_updates,
)
from lance_spark.runner import (
    delete_orphans,
    delete_orphans_of_failed_job,
    new_tag,
    write_and_delete,
)
from lance_spark.scan.fragment.row_meta import CREATED_AT, ROW_ID, UPDATED_AT
from lance_spark.scan.plan import estimated_bytes, read_bytes
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.read.reader import open_table
from lance_spark.spark.write.row_changes import (
    ColumnChangeMessage,
    RowChangeMessage,
    key_filter,
    open_planned,
    write_deletions,
)
from lance_spark.table.commit.options import DEFAULT_CONFLICT_RETRIES, Backoff, CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.placement import placement_of
from lance_spark.table.primary_key import primary_key

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field
    from lance_spark.table.open import OpenTable

#: The setting of a session for the mode of UPDATE (`RowChangeRule.java`).
MODE = "spark.lance.update.mode"
#: Bytes that a task writes, approximately.
_TASK_BYTES = 128 * 1024 * 1024
_MIN_PARTITION_BYTES = 256 * 1024
#: Bytes of a row of the query without columns of the table.
_ROW_BYTES = 24


def plan_row_changes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check a statement; return the tag of its files, the size of its partitions, and the mode."""
    write = arguments["write"]
    table = open_planned(arguments["options"], write)
    deletes = write["command"] == "DELETE"
    mode = _mode(table, write)
    check_rows_changeable(
        table,
        data_files=not deletes,
        written=_written(table, write) if write["command"] == "UPDATE" else None,
        checked=write["checked"],
    )
    if not deletes:
        check_types(table.schema, table.manifest.data_storage_version)
    return {
        "tag": new_tag().hex(),
        "partition_bytes": _partition_bytes(table, write),
        "mode": mode,
    }


def _written(table: OpenTable, write: Mapping[str, Any]) -> set[int]:
    """Return the ids of the fields to which an UPDATE gives values."""
    assigned = _given_columns(write)
    fields = (field for field in table.schema.fields if field.name in assigned)
    return {node.id for field in fields for node in field.walk()}


def commit_row_changes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Commit the changes of all tasks as one version.

    Returns the version. If another client has changed the same rows, and the statement can be
    planned again, an error of the kind ``planned_again``.
    """
    write = arguments["write"]
    try:
        table = open_planned(arguments["options"], write)
    except VersionNotFoundError:
        _delete_uncommitted(arguments["options"], write)
        raise
    try:
        return _commit(table, write, arguments["messages"])
    except UncertainCommitError:
        # A version may refer to the files.
        raise
    except CommitConflictError as error:
        # The commit has deleted the files.
        if not _can_be_planned_again(table, write):
            raise
        Backoff(write["attempt"]).wait()
        name = type(error).__name__
        return {"error": {"kind": "planned_again", "message": str(error), "class": name}}
    except LanceError:
        _delete_orphans_of(table, write)
        raise


def _mode(table: OpenTable, write: Mapping[str, Any]) -> Mode:
    """Return how the statement writes; see `lance_spark.mutations.rows.update`.

    A statement without a condition changes all rows of each fragment, so the assigned columns can
    be written alone. For other statements, the number of changed rows is not known yet.

    Raises InvalidOptionError: the mode that the session requests does not exist. Raises
    UnsupportedError: the statement cannot have this mode.
    """
    if write["command"] != "UPDATE":
        return "rows"
    requested, name = write["requested_mode"], table.store.display
    modes = ("auto", *get_args(Mode))
    if requested not in modes:
        raise InvalidOptionError(f"{MODE} must be one of {', '.join(modes)}, not {requested!r}")
    is_known = len(write["given"]) == 1
    assigned = _given_columns(write)
    fields = [field for field in table.schema.fields if field.name in assigned]
    if requested in ("columns", "overlay") and not is_known:
        raise UnsupportedError(
            f"{name}: {MODE} = {requested} cannot be used: Spark's plan of this statement does not "
            "show which columns it assigns; set it to auto or rows"
        )
    if requested == "rows" or not is_known or not fields:
        return "rows"
    if requested == "overlay":
        check_overlaid_fields(table, fields)
        return "overlay"
    if requested == "columns":
        blobs = next((field.name for field in fields if has_blobs(field)), None)
        if blobs is not None:
            raise UnsupportedError(
                f"{name}: blobs of column {blobs!r} cannot be set with {MODE} = columns; set it to "
                "auto or rows"
            )
        check_first_field(table, {node.id for field in fields for node in field.walk()})
        return "columns"
    fragments = counted_fragments(table.paths, table.manifest)
    if not write["all_rows"] or not fragments or not can_rewrite_columns(table, fields):
        return "rows"
    num_rows = sum(fragment.num_rows for fragment in fragments)
    ids = {fragment.id for fragment in fragments}
    return "columns" if columns_are_cheaper(table, fields, ids, num_rows) else "rows"


def _can_be_planned_again(table: OpenTable, write: Mapping[str, Any]) -> bool:
    """Return whether the statement can be planned on a newer version.

    It selects the same rows there, and has attempts left.
    """
    fixed = {CREATED_AT.name, UPDATED_AT.name}
    if table.manifest.flags.stable_row_ids:
        fixed.add(ROW_ID.name)
    return write["attempt"] < DEFAULT_CONFLICT_RETRIES and fixed.issuperset(write["row_columns"])


def _commit(table: OpenTable, write: Mapping[str, Any], pickles: Sequence[str]) -> dict[str, Any]:
    if write["mode"] != "rows":
        return _commit_columns(table, write, pickles)
    messages = _messages(pickles)
    if not messages:
        return {"version": table.version}
    changed = [message.changed for message in messages]
    tag = bytes.fromhex(write["tag"])
    rewritten, deletions = write_and_delete(
        lambda: write_held(table, [rows.rewritten for rows in changed], tag),
        lambda: _deletions(table, messages, tag),
        partial(undo, table.paths),
    )
    if write["command"] == "DELETE":
        return {"version": commit_deletes(table, deletions).version}
    keys = key_filter(table.schema)
    for rows in changed:
        if keys is not None and rows.keys is not None:
            keys.merge(rows.keys)
    has_keys = keys is not None and keys.num_keys
    path_ids = [path[-1].id for path in primary_key(table.schema)]
    manifest = commit_moved_rows(
        table,
        rewritten,
        deletions,
        sum(rows.rewritten.num_rows + rows.num_deleted for rows in changed),
        _given_columns(write),
        CommitOptions(checked_constraints=write["checked"]).with_operation(write["command"]),
        keys.inserted(path_ids) if keys is not None and has_keys else None,
    )
    return {"version": manifest.version}


def _commit_columns(
    table: OpenTable, write: Mapping[str, Any], pickles: Sequence[str]
) -> dict[str, Any]:
    mode = write["mode"]
    files = [
        file
        for message in map(_unpickled, pickles)
        if isinstance(message, ColumnChangeMessage)
        for file in message.files
    ]
    if not files:
        return {"version": table.version}
    if mode == "overlay":
        result = UpdateResult(overlays=tuple(overlay_files(files)))
    else:
        result = UpdateResult(columns=tuple(changed_columns(table, files)))
    options = CommitOptions(checked_constraints=write["checked"])
    return {"version": commit_updates(table, [result], (), mode=mode, options=options).version}


def abort_row_changes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the files of a statement whose tasks failed.

    Spark also calls this after a commit that failed. If the process of the commit was killed, or
    the answer of the store was lost, a version may refer to the files: they stay. After all other
    failures, the commit itself has deleted the files.
    """
    write = arguments["write"]
    if not arguments["commit_attempted"]:
        try:
            table = open_planned(arguments["options"], write)
        except VersionNotFoundError:
            _delete_uncommitted(arguments["options"], write)
        else:
            _delete_orphans_of(table, write)
    return {}


def _delete_orphans_of(table: OpenTable, write: Mapping[str, Any]) -> None:
    # The error of the statement matters more than an error here.
    with suppress(LanceError):
        delete_orphans_of_failed_job(table, bytes.fromhex(write["tag"]), placement_of(table).all)


def _delete_uncommitted(options: Mapping[str, str], write: Mapping[str, Any]) -> None:
    """Delete the files of a statement whose version is gone, and which no version can refer to."""
    with suppress(LanceError):
        newest = open_table(ReadOptions.parse(options))._table
        tag, targets = bytes.fromhex(write["tag"]), placement_of(newest).all
        delete_orphans(newest, tag, newest.manifest, targets=targets)


def can_delete(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the rows that a condition selects are deleted without a job.

    True if the columns of the condition have at most the bytes of a query that is answered on the
    driver.
    """
    options = ReadOptions.parse(arguments["options"])
    table = open_table(options)._table
    forms = arguments["forms"]
    if not forms:
        return {"can": True}
    try:
        predicate = to_predicate({"op": "and", "args": forms}, table.schema)
    except (InvalidInputError, UnsupportedError):
        return {"can": False}
    fields = list({column.path[0].id: column.path[0] for column in predicate.columns()}.values())
    _, stored, needed = _sizes(table, fields)
    return {"can": bool(stored) and needed <= options.driver_read_bytes}


def delete_where(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the rows that a condition selects; all rows without one."""
    options = ReadOptions.parse(arguments["options"])
    if options.version is not None or options.tag is not None or options.timestamp is not None:
        raise InvalidInputError(
            f"{options.path}: rows of an older version cannot be deleted; name the table alone"
        )
    table = open_table(options)._table
    forms = arguments["forms"]
    filters = [to_predicate({"op": "and", "args": forms}, table.schema)] if forms else []
    return {"version": delete_rows(table, filters, None, CommitOptions()).version}


def _messages(texts: Sequence[str]) -> list[RowChangeMessage]:
    """Return the messages of the tasks that changed rows."""
    messages = [text for text in map(_unpickled, texts) if isinstance(text, RowChangeMessage)]
    return [
        message
        for message in messages
        if message.changed.rewritten.rows or message.changed.rewritten.num_inserted
    ]


def _unpickled(text: str) -> object:
    # The tasks of this statement made the pickles: no user can send others.
    return pickle.loads(base64.b64decode(text))  # noqa: S301


def _deletions(
    table: OpenTable, messages: Sequence[RowChangeMessage], tag: bytes
) -> list[FragmentDeletion]:
    """Return the deletions of all tasks; write the files that tasks have left to the commit.

    If two tasks changed a fragment, its files are merged.
    """
    written = [deletion for message in messages for deletion in message.deletions or ()]
    left = [message for message in messages if message.deletions is None]
    counts = Counter(deletion.fragment_id for deletion in written)
    for message in left:
        counts.update(message.changed.rewritten.rows.keys() & counts.keys())
    if all(count == 1 for count in counts.values()):
        rest = write_deletions(table, [message.changed.rewritten.rows for message in left], tag)
        return [*written, *rest]
    merged = write_deletions(table, [message.changed.rewritten.rows for message in messages], tag)
    with suppress(StorageError):
        undo(table.paths, written)
    return merged


def _partition_bytes(table: OpenTable, write: Mapping[str, Any]) -> int:
    """Return the bytes of the query's rows for which one task writes a file of a good size."""
    if write["command"] == "DELETE":
        return _TASK_BYTES
    assigned = _given_columns(write)
    fields = [field for field in table.schema.fields if field.name in assigned]
    num_rows, stored, sent = _sizes(table, fields)
    if not num_rows or not stored:
        return _TASK_BYTES
    share = min(1.0, (_ROW_BYTES + sent / num_rows) / (_ROW_BYTES + stored / num_rows))
    return max(_MIN_PARTITION_BYTES, int(_TASK_BYTES * share))


def _given_columns(write: Mapping[str, Any]) -> set[str]:
    """Return the columns that the statement gives values."""
    return {name for names in write["given"] or [write["columns"]] for name in names}


def _sizes(table: OpenTable, fields: Sequence[Field]) -> tuple[int, int, float]:
    """Return the rows of the data files, and the bytes of all columns and of `fields`."""
    fragments = table.manifest.fragments
    num_rows = sum(fragment.physical_rows for fragment in fragments)
    stored = estimated_bytes(fragments, num_rows)
    return num_rows, stored, read_bytes(stored, num_rows, fields, table.schema.fields)
