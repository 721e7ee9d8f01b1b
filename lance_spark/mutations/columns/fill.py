"""Compute new columns of existing rows: plan on the driver, compute in tasks, commit on the driver.

| step | where | what |
| --- | --- | --- |
| `plan_columns` | driver | cuts the fragments into tasks |
| `ColumnTask.run` | task | computes the columns, writes a data file for each fragment |
| `commit_columns` | driver | commits one `Merge` of all fragments |

A new file has a row for each physical row of its fragment. Deleted rows are not read and not passed
to functions. They get null, or the value of a row nearby if the column must not be null. One window
of rows is in memory at a time.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from lance_spark.errors import (
    InvalidInputError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedTypeError,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import check_rows_writable, commit_operation
from lance_spark.mutations.rewrite.writers import UNLIMITED, DeletedRowPadding, NewFile, undo
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.runner import FragmentTask, Runner, check_once, runner_for
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import is_live
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.columns import Merge
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import Placement, placement_of
from lance_spark.table.rows.deletions import read_deletions

# --------------------------------------------------------------------------------------------------
# The results of functions that compute columns, as record batches.


def as_batch(columns: Any, num_rows: int) -> pa.RecordBatch:
    """Return the result of a function as a batch.

    Raises InvalidInputError: it is not a batch of columns, or has another number of rows.
    """
    if isinstance(columns, Mapping):
        try:
            columns = pa.RecordBatch.from_pydict(dict(columns))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(f"the function must return columns: {error}") from None
    elif _is_frame(columns):
        columns = pa.RecordBatch.from_pandas(columns, preserve_index=False)
    elif isinstance(columns, pa.Table):
        columns = columns.combine_chunks()
        columns = columns.to_batches()[0] if columns.num_rows else no_rows(columns.schema)
    if not isinstance(columns, pa.RecordBatch):
        raise InvalidInputError(
            f"the function returns {type(columns).__name__}, not a RecordBatch with the new columns"
        )
    if columns.num_rows != num_rows:
        raise InvalidInputError(f"the function returns {columns.num_rows} rows for {num_rows}")
    return columns


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_frame(columns: Any) -> bool:
    """Return whether columns are a DataFrame of pandas, which is not imported for this."""
    return type(columns).__module__.partition(".")[0] == "pandas" and hasattr(columns, "columns")


# --------------------------------------------------------------------------------------------------
# `batch_udf`: functions of batches whose results outlive an interruption.
#
# A checkpoint is an SQLite database with one table:
#
# | column | content |
# | --- | --- |
# | `input` | BLAKE2b digest, of 32 bytes, of the batch that the function got, in Arrow's IPC format
#     |
# | `output` | the batch that it returned, in the same format |
#
# Results belong to the values of a batch, not to its place, so that a checkpoint stays valid if the
# table changes. Equal batches of one run have a result each, because a function can make new
# values, such as random numbers: from the second one on, `input` ends with the number of the batch,
# in 8 bytes. A file that is not a checkpoint of this form is refused.

_TABLE = "CREATE TABLE IF NOT EXISTS results (input BLOB PRIMARY KEY, output BLOB NOT NULL)"


class BatchUDF:
    """A function of batches for `Dataset.add_columns`; `batch_udf` returns it.

    A call runs the function itself, without the checkpoint.
    """

    def __init__(
        self,
        function: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.function = function
        self.output_schema = output_schema
        self.checkpoint_file = checkpoint_file
        self._checkpoint: _Checkpoint | None = None
        #: How often each batch was computed since the checkpoint was opened, by its digest.
        self._computed: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def __call__(self, batch: pa.RecordBatch) -> Any:
        return self.function(batch)

    def sample(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch, which is computed again later; see `compute`."""
        return self._result(batch, is_counted=False)

    def compute(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch, from the checkpoint if it has them.

        Raises InvalidInputError: the function does not return columns, or the checkpoint cannot be
        used.
        """
        return self._result(batch, is_counted=True)

    def _result(self, batch: pa.RecordBatch, *, is_counted: bool) -> pa.RecordBatch:
        if self.checkpoint_file is None:
            return as_batch(self.function(batch), batch.num_rows)
        with self._lock:
            if self._checkpoint is None:
                self._checkpoint = _Checkpoint(os.fspath(self.checkpoint_file))
        digest = _digest(batch)
        with self._lock:
            number = self._computed[digest]
            self._computed[digest] += is_counted
        key = digest + number.to_bytes(8, "little") if number else digest
        result = self._checkpoint.get(key)
        if result is None or result.num_rows != batch.num_rows:
            result = as_batch(self.function(batch), batch.num_rows)
            self._checkpoint.put(key, result)
        return result

    def close(self, *, delete: bool) -> None:
        """Close the checkpoint; delete it if its results are in the table."""
        checkpoint, self._checkpoint = self._checkpoint, None
        self._computed.clear()
        if checkpoint is not None:
            checkpoint.close()
            if delete:
                with suppress(FileNotFoundError):
                    os.unlink(checkpoint.path)


def batch_udf(
    output_schema: pa.Schema | None = None,
    checkpoint_file: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Make a function of batches that `Dataset.add_columns` takes, by decoration.

    Parameters
    ----------
    output_schema : pa.Schema, optional
        Types of the new columns; those of the values for the first rows by default.
    checkpoint_file : str or path, optional
        A file that keeps the results until the columns are committed. If a run is interrupted, the
        next run with the same file calls the function only for batches that have no result. The
        file does not notice that the function changed.

    Returns
    -------
    callable
        Takes a function, which gets a record batch and returns the new columns of its rows: a
        record batch, a Table, a mapping, or a DataFrame of pandas. Returns a `BatchUDF`.

    Examples
    --------
    >>> @lance_spark.batch_udf(checkpoint_file="lengths.sqlite")
    ... def lengths(batch):
    ...     return {"length": pc.utf8_length(batch["name"])}
    >>> dataset = dataset.add_columns(lengths, read_columns=["name"])
    """

    def decorate(function: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(function, output_schema, checkpoint_file)

    return decorate


class _Checkpoint:
    """Results by the digests of the batches; for several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False)
            self._connection.execute(_TABLE)
            self._connection.execute("SELECT input, output FROM results LIMIT 0")
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"checkpoint_file {path} cannot be used: {error}; name another file"
            ) from None

    def get(self, key: bytes) -> pa.RecordBatch | None:
        with self._lock:
            rows = self._connection.execute("SELECT output FROM results WHERE input = ?", (key,))
            row = rows.fetchone()
        if row is None:
            return None
        try:
            return pa.ipc.open_stream(row[0]).read_next_batch()
        except (pa.ArrowException, StopIteration):
            return None

    def put(self, key: bytes, result: pa.RecordBatch) -> None:
        values = (key, _serialized(result))
        with self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", values)

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _digest(batch: pa.RecordBatch) -> bytes:
    return blake2b(_serialized(batch), digest_size=32).digest()


def _serialized(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


# --------------------------------------------------------------------------------------------------
# Compute new columns of existing rows: plan on the driver, compute in tasks, commit on the driver.

#: Maximum number of rows that a function gets at once.
DEFAULT_BATCH_SIZE = 65_536


class Transform(Protocol):
    """A function that computes columns of rows."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the new columns of the rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTask(FragmentTask):
    """Fragments whose columns one task computes. Can be pickled if its transform can.

    - `read`: The columns that the transform gets.
    - `schema`: The new columns, with their ids.
    - `batch_size`: Rows that the transform gets at once, at most.
    """

    read: Schema
    schema: Schema
    transform: Transform
    file_version: tuple[int, int]
    batch_size: int = DEFAULT_BATCH_SIZE
    placement: Placement = field(default_factory=Placement)

    def run(self) -> list[NewFile]:
        """Compute the columns, and write their files.

        Returns one file for each fragment that has live rows. Raises CorruptFileError,
        CorruptTableError, UnsupportedEncodingError, StorageError. Raises InvalidInputError,
        SchemaMismatchError: the transform does not return the columns.
        """
        paths = self.open_paths()
        written: list[NewFile] = []
        try:
            for fragment in self.fragments:
                file = self._write(paths, fragment)
                if file is not None:
                    written.append(NewFile(fragment.id, file))
        except BaseException:
            undo(paths, written)
            raise
        return written

    def _write(self, paths: TablePaths, fragment: Fragment) -> DataFile | None:
        writer = FragmentWriter(
            paths,
            self.schema,
            self.file_version,
            max_rows_per_file=UNLIMITED,
            max_bytes_per_file=UNLIMITED,
            tag=self.tag,
            targets=self.placement.of_one_file(fragment),
        )
        reader = FragmentReader(paths, fragment, self.read)
        try:
            fragments = writer.write_all(self._physical(reader, fragment.physical_rows))
        finally:
            reader.close()
        return fragments[0].files[0] if fragments else None

    def _physical(self, reader: FragmentReader, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the new columns of all physical rows, in order."""
        padding = DeletedRowPadding(self.schema, self.file_version)
        deleted = reader.deleted()
        window = max(reader.window_rows(), 1)
        for start in range(0, num_rows, window):
            rows = range(start, min(start + window, num_rows))
            first, last = np.searchsorted(deleted, [rows.start, rows.stop])
            live = [self.transform(batch) for batch in reader.scan(rows, self.batch_size)]
            yield from padding.fill(live, deleted[first:last] - start, len(rows))


def plan_columns(
    table: OpenTable,
    read: Schema,
    schema: Schema,
    transform: Transform,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    fragments_per_task: int = 1,
    done: Collection[int] = (),
    tag: bytes = b"",
) -> list[ColumnTask]:
    """Cut the computation of columns into tasks.

    - `read`, `schema`, `transform`, `batch_size`: As in `ColumnTask`.
    - `done`: Ids of fragments whose columns are computed already.

    Raises UnsupportedFeatureError, UnsupportedError, UnsupportedTypeError: the table needs a newer
    release, or its files cannot have such columns.
    """
    check_rows_writable(table, data_files=True)
    version = table.manifest.data_storage_version
    check_types(schema, version)
    _check_dictionaries(schema, version)
    fragments = tuple(
        fragment
        for fragment in counted_fragments(table.paths, table.manifest)
        if fragment.id not in done
    )
    placement = placement_of(table)
    return [
        ColumnTask(
            uri=table.store.uri,
            fragments=fragments[position : position + fragments_per_task],
            read=read,
            schema=schema,
            transform=transform,
            file_version=version,
            batch_size=batch_size,
            base_paths=table.manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
            placement=placement,
        )
        for position in range(0, len(fragments), fragments_per_task)
    ]


def _check_dictionaries(schema: Schema, version: tuple[int, int]) -> None:
    """Raise an error for a new dictionary column in a table of version 0.1.

    The manifest of such a table would have to store the values of the dictionary.
    """
    for node in schema.walk():
        is_new = node.logical_type.startswith("dict:") and not node.dictionary_pages
        if version == (0, 1) and is_new:
            raise UnsupportedTypeError(
                f"column {node.name!r}: tables of version 0.1 cannot get new columns of type "
                f"{node.arrow_field.type}; give its values, or overwrite the table with data "
                "storage version 2.2"
            )


def commit_columns(
    table: OpenTable,
    files: Iterable[NewFile],
    schema: Iterable[file_pb2.Field],
    *,
    preserves_nullability: bool,
    options: CommitOptions | None = None,
) -> Manifest:
    """Make the columns of all tasks part of the table.

    - `files`: Empty if the new columns are null in all rows.
    - `schema`: All columns of the table afterwards.
    - `preserves_nullability`: Whether rows that are written without the new columns stay valid.

    Raises CommitConflictError: another client changed rows or columns. The files stay, for the next
    plan. Raises InvalidInputError: two files are of one fragment, or a fragment has none. Raises
    LanceError: Errors of `commit`.
    """
    files = list(files)
    check_once(table, (file.fragment_id for file in files))
    new = {file.fragment_id: file.file for file in files}
    fragments = counted_fragments(table.paths, table.manifest)
    missing = [
        fragment.id for fragment in fragments if fragment.num_rows and fragment.id not in new
    ]
    if new and missing:
        raise InvalidInputError(
            f"{table.store.display}: the result of fragment {missing[0]} is missing; give the "
            "results "
            "of all tasks"
        )
    fields = tuple(schema)
    field_ids = {field.id for field in fields}
    operation = Merge(
        fragments=tuple(
            _with_file(fragment, new.get(fragment.id), field_ids) for fragment in fragments
        ),
        schema=fields,
        preserves_nullability=preserves_nullability,
    )
    return commit_operation(table, operation, options or CommitOptions())


class Computation:
    """A computation of columns that reuses its files if it is planned again.

    Use as a context: its end deletes files that were not committed.
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self._runner = runner
        self._schemas: tuple[Schema, Schema] | None = None
        self._done: dict[int, tuple[Fragment, NewFile]] = {}
        self._paths: TablePaths | None = None
        self._committed: frozenset[int] = frozenset()
        self._uncertain = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        unused = [file for number, (_, file) in self._done.items() if number not in self._committed]
        if unused and self._paths is not None and not self._uncertain:
            with suppress(StorageError):
                undo(self._paths, unused)

    def commit(
        self,
        table: OpenTable,
        read: Schema,
        schema: Schema,
        transform: Transform,
        fields: Iterable[file_pb2.Field],
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        preserves_nullability: bool = True,
        options: CommitOptions | None = None,
    ) -> Manifest:
        """Compute the missing files, and commit; see `plan_columns` and `commit_columns`."""
        self.start(table, read, schema)
        runner = runner_for(table, self._runner)
        tasks = plan_columns(
            table, read, schema, transform, batch_size=batch_size, done=self._done, tag=runner.tag
        )
        total = sum(fragment.physical_rows for task in tasks for fragment in task.fragments)
        undo_all = partial(undo, table.paths)
        parts = runner.run_counted(tasks, ColumnTask.run, undo_all, "compute", total, "rows")
        self.add(table, [file for part in parts for file in part])
        return self.finish(
            table, fields, preserves_nullability=preserves_nullability, options=options
        )

    @property
    def done(self) -> Collection[int]:
        """Ids of the fragments whose files are written."""
        return self._done.keys()

    def start(self, table: OpenTable, read: Schema, schema: Schema, *, by_row: bool = True) -> None:
        """Start the computation for a version, and keep files that are still valid for it.

        - `read`: The columns that the values are computed from. A column of the same name can be
          another one than before.
        - `schema`: The new columns.
        - `by_row`: Whether the values of a row depend on this row alone. Otherwise no file is valid
          for another version.
        """
        old_paths, self._paths = self._paths or table.paths, table.paths
        current = {fragment.id: fragment for fragment in table.manifest.fragments}
        same_schemas = by_row and self._schemas == (read, schema)
        invalid = [
            number
            for number, (source, new) in self._done.items()
            if not (
                same_schemas
                and number in current
                # The id can have another path now, where the new file does not exist.
                and _base_of(old_paths, new) == _base_of(table.paths, new)
                and _still_valid(table.paths, source, current[number])
            )
        ]
        files = [self._done.pop(number)[1] for number in invalid]
        self._schemas = (read, schema)
        if files:
            with suppress(StorageError):
                undo(old_paths, files)

    def add(self, table: OpenTable, files: Iterable[NewFile]) -> None:
        """Add files that were computed from the rows of a version.

        Raises InvalidInputError: two files are of one fragment.
        """
        files = list(files)
        check_once(table, (file.fragment_id for file in files))
        fragments = {fragment.id: fragment for fragment in table.manifest.fragments}
        self._done.update({file.fragment_id: (fragments[file.fragment_id], file) for file in files})

    def finish(
        self,
        table: OpenTable,
        fields: Iterable[file_pb2.Field],
        *,
        preserves_nullability: bool,
        options: CommitOptions | None = None,
    ) -> Manifest:
        """Commit the files; see `commit_columns`."""
        files = [file for _, file in self._done.values()]
        # An interrupt, for example, can end the commit after it created the version.
        self._uncertain = True
        try:
            manifest = commit_columns(
                table, files, fields, preserves_nullability=preserves_nullability, options=options
            )
        except UncertainCommitError:
            raise
        except LanceError:
            self._uncertain = False
            raise
        self._uncertain = False
        self._committed = frozenset(self._done)
        return manifest


def _with_file(fragment: Fragment, file: DataFile | None, field_ids: set[int]) -> Fragment:
    """Return a fragment with a new file, without files that hold no field of the schema."""
    proto = fragment.to_proto()
    if file is None:
        return fragment
    files = [old for old in proto.files if is_live(old, field_ids)]
    files.append(file.to_proto())
    del proto.files[:]
    proto.files.extend(files)
    return Fragment.from_proto(proto, fragment.name)


def _base_of(paths: TablePaths, new: NewFile) -> BasePath | None:
    """Return the base path that a new file is in; None for the table itself."""
    base_id = new.file.base_id
    return None if base_id is None else paths.base_paths.get(base_id)


def _still_valid(paths: TablePaths, old: Fragment, new: Fragment) -> bool:
    """Return whether values that were computed for a fragment are valid for a later version of it.

    | the later version has | the computed values |
    | --- | --- |
    | other data files, or overlays | are not valid |
    | more deleted rows | are valid: values of deleted rows are never read |
    | fewer deleted rows, after a restore | are missing for the restored rows |

    Raises CorruptFileError: a deletion file is corrupt.
    """
    if _content_of(old) != _content_of(new):
        return False
    if old.deletion_file is None or old.deletion_file == new.deletion_file:
        return True
    try:
        return bool(np.isin(read_deletions(paths, old), read_deletions(paths, new)).all())
    except StorageError:
        # Cleanup may have deleted the older file.
        return False


def _content_of(fragment: Fragment) -> bytes:
    """Return what determines the values of a fragment's rows, deleted or not."""
    proto = fragment.to_proto()
    content = table_pb2.DataFragment(files=proto.files, overlays=proto.overlays)
    data: bytes = content.SerializeToString(deterministic=True)
    return data
