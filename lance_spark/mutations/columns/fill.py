"""New columns for rows that there are: planned on the driver, computed by any number of workers,
committed on the driver.

| step | where | what |
| --- | --- | --- |
| `plan_columns` | driver | tasks: fragments whose rows get the columns |
| `ColumnTask.run` | workers | reads what the columns are made of, writes a data file for each fragment; nothing refers to it yet |
| `commit_columns` | driver | one `Merge` of all fragments |

A new file has a row for each physical row of its fragment. Deleted rows get null, or the value of a
row nearby where there must be one; they are not read and not given to functions. One window of rows
is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
from lance_spark.mutations.columns.deleted_row_padding import DeletedRowPadding
from lance_spark.mutations.columns.values_still_valid import values_still_valid
from lance_spark.mutations.commits import check_writable, commit_operation
from lance_spark.mutations.retry import check_once, check_rows_writable
from lance_spark.mutations.runner import Runner, runner_for
from lance_spark.proto import file_pb2
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import FragmentWriter, delete_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import is_live
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.merge import Merge
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import Placement, placement_of

#: Rows that a function gets at once, at most.
DEFAULT_BATCH_SIZE = 65_536
#: One file for a fragment, however large.
_UNLIMITED = 1 << 62


class Transform(Protocol):
    """Makes columns of rows."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return as many rows, with the new columns."""
        ...


@dataclass(frozen=True, slots=True)
class NewFile:
    """The data file of a fragment's new columns. Small, and can be pickled.

    Attributes
    ----------
    fragment_id : int
    file : DataFile
    """

    fragment_id: int
    file: DataFile


@dataclass(frozen=True, slots=True)
class ColumnTask:
    """Fragments that one worker computes columns for. Can be pickled, if the transform can; holds
    no manifest.

    Attributes
    ----------
    uri : str
        Root of the table.
    fragments : tuple of Fragment
    read : Schema
        The columns that the transform gets.
    schema : Schema
        The new columns, with their ids.
    transform : Transform
    file_version : tuple of int
        Version of the data files.
    batch_size : int
        Rows that the transform gets at once, at most.
    base_paths : mapping of int to BasePath
        Other roots that data files may stand in, by id.
    storage_options : mapping, not shown by `repr`
    tag : bytes
        Which the new files carry.
    placement : Placement
        Where they go.
    """

    uri: str = field(repr=False)
    fragments: tuple[Fragment, ...]
    read: Schema
    schema: Schema
    transform: Transform
    file_version: tuple[int, int]
    batch_size: int = DEFAULT_BATCH_SIZE
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = b""
    placement: Placement = field(default_factory=Placement)

    def run(self) -> list[NewFile]:
        """Compute the columns, and write their files.

        Returns
        -------
        list of NewFile
            One for each fragment that has live rows.

        Raises
        ------
        InvalidInputError, SchemaMismatchError
            What the transform returns are not the columns.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        written: list[NewFile] = []
        try:
            for fragment in self.fragments:
                file = self._write(paths, fragment)
                if file is not None:
                    written.append(NewFile(fragment.id, file))
        except BaseException:
            delete_files(paths, written)
            raise
        return written

    def _write(self, paths: TablePaths, fragment: Fragment) -> DataFile | None:
        writer = FragmentWriter(
            paths,
            self.schema,
            self.file_version,
            max_rows_per_file=_UNLIMITED,
            max_bytes_per_file=_UNLIMITED,
            tag=self.tag,
            targets=self.placement.of_one_file(fragment),
        )
        reader = FragmentReader(paths, fragment, self.read)
        try:
            for batch in self._physical(reader, fragment.physical_rows):
                writer.write(batch)
            fragments = writer.finish()
        except BaseException:
            writer.abort()
            raise
        finally:
            reader.close()
        return fragments[0].files[0] if fragments else None

    def _physical(self, reader: FragmentReader, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the new columns of all physical rows, in order."""
        # Structs are never null in files of version 2.0.
        nullable = self.file_version > (2, 0) and all(item.nullable for item in self.schema.fields)
        filler = DeletedRowPadding(nullable)
        deleted = reader.deleted()
        window = max(reader.window_rows(), 1)
        for start in range(0, num_rows, window):
            rows = range(start, min(start + window, num_rows))
            first, last = np.searchsorted(deleted, [rows.start, rows.stop])
            live = [self.transform(item) for item in reader.scan(rows, self.batch_size)]
            yield from filler.fill(live, deleted[first:last] - start, len(rows))


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

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on.
    read : Schema
        The columns that the transform gets.
    schema : Schema
        The new columns, with their ids.
    transform : Transform
    batch_size : int
        Rows that the transform gets at once, at most.
    fragments_per_task : int
    done : collection of int
        Ids of fragments that have the columns already.
    tag : bytes
        Which the new files carry.

    Raises
    ------
    UnsupportedFeatureError, UnsupportedError, UnsupportedTypeError
        The table needs more than this release does, or its files cannot have such columns.
    """
    check_writable(table)
    check_rows_writable(table, data_files=True)
    version = table.manifest.data_storage_version
    check_types(schema, version)
    _check_dictionaries(schema, version)
    there = counted_fragments(table.paths, table.manifest)
    fragments = tuple(item for item in there if item.id not in done)
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
    """Refuse dictionary columns that a table of version 0.1 does not have yet: its manifest holds
    their values.
    """
    for node in schema.walk():
        is_new = node.logical_type.startswith("dict:") and not node.dictionary_pages
        if version == (0, 1) and is_new:
            raise UnsupportedTypeError(
                f"column {node.name!r}: tables of version 0.1 get no new columns of type "
                f"{node.arrow_field.type}; give its "
                "values, or overwrite the table with data storage version 2.2"
            )


def commit_columns(
    table: OpenTable,
    files: Iterable[NewFile],
    schema: Iterable[file_pb2.Field],
    *,
    preserves_nullability: bool,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> Manifest:
    """Make the columns of all tasks part of the table.

    Parameters
    ----------
    table : OpenTable
        At the version that they were planned on.
    files : iterable of NewFile
        None at all, if the new columns are null everywhere.
    schema : iterable of file_pb2.Field
        All columns of the table afterwards.
    preserves_nullability : bool
        Whether rows that are written without the new columns stay valid.
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.

    Raises
    ------
    CommitConflictError
        Others changed rows or columns. The files stay: they can do for what is planned anew.
    InvalidInputError
        Two files are of one fragment, or one has none.
    LanceError
        What `commit` raises.
    """
    files = list(files)
    check_once(table, (item.fragment_id for item in files))
    new = {item.fragment_id: item.file for item in files}
    fragments = counted_fragments(table.paths, table.manifest)
    missing = [item.id for item in fragments if item.num_rows and item.id not in new]
    if new and missing:
        raise InvalidInputError(
            f"{table.store.display}: no result is about fragment {missing[0]}, whose rows would "
            "lose their values; give the "
            "results of all tasks"
        )
    fields = tuple(schema)
    kept = {item.id for item in fields}
    operation = Merge(
        fragments=tuple(_with_file(item, new.get(item.id), kept) for item in fragments),
        schema=fields,
        preserves_nullability=preserves_nullability,
    )
    return commit_operation(table, operation, properties=properties, max_retries=max_retries)


class Computation:
    """Columns that are computed and committed here; what was computed is used again if the commit
    has to be planned anew.

    Use as a context: files that were not committed are deleted at its end.

    Parameters
    ----------
    runner : Runner, optional
        Runs the tasks; this machine by default.
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
        unused = [item for number, (_, item) in self._done.items() if number not in self._committed]
        if unused and self._paths is not None and not self._uncertain:
            with suppress(StorageError):
                delete_files(self._paths, unused)

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
        properties: Mapping[str, str] | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
    ) -> Manifest:
        """Compute what is missing, and commit; see `plan_columns` and `commit_columns`."""
        self.start(table, read, schema)
        runner = runner_for(table, self._runner)
        tasks = plan_columns(
            table,
            read,
            schema,
            transform,
            batch_size=batch_size,
            done=self._done,
            tag=runner.tag,
        )
        undo = partial(delete_files, table.paths)
        parts = runner.run(tasks, ColumnTask.run, undo)
        self.add(table, [item for part in parts for item in part])
        return self.finish(
            table,
            fields,
            preserves_nullability=preserves_nullability,
            properties=properties,
            max_retries=max_retries,
        )

    @property
    def done(self) -> Collection[int]:
        """Ids of the fragments that have their values."""
        return self._done.keys()

    def start(self, table: OpenTable, read: Schema, schema: Schema) -> None:
        """Begin to compute columns for a version; what was computed for another one is kept, as far
        as it is right.

        Parameters
        ----------
        table : OpenTable
        read : Schema
            The columns that they are made of. Under the same names there can be others than before.
        schema : Schema
            The new columns.
        """
        self._paths = table.paths
        now = {fragment.id: fragment for fragment in table.manifest.fragments}
        same = self._schemas == (read, schema)
        gone = [
            number
            for number, (of, _) in self._done.items()
            if not (same and number in now and values_still_valid(table.paths, of, now[number]))
        ]
        files = [self._done.pop(number)[1] for number in gone]
        self._schemas = (read, schema)
        if files:
            with suppress(StorageError):
                delete_files(self._paths, files)

    def add(self, table: OpenTable, files: Iterable[NewFile]) -> None:
        """Note files that were computed from a version's rows.

        Raises
        ------
        InvalidInputError
            Two are of one fragment.
        """
        files = list(files)
        check_once(table, (item.fragment_id for item in files))
        fragments = {item.id: item for item in table.manifest.fragments}
        self._done.update({item.fragment_id: (fragments[item.fragment_id], item) for item in files})

    def finish(
        self,
        table: OpenTable,
        fields: Iterable[file_pb2.Field],
        *,
        preserves_nullability: bool,
        properties: Mapping[str, str] | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
    ) -> Manifest:
        """Commit what was computed; see `commit_columns`."""
        files = [item for _, item in self._done.values()]
        # Whatever else ends a commit, an interrupt for example, the version may be there.
        self._uncertain = True
        try:
            manifest = commit_columns(
                table,
                files,
                fields,
                preserves_nullability=preserves_nullability,
                properties=properties,
                max_retries=max_retries,
            )
        except UncertainCommitError:
            raise
        except LanceError:
            self._uncertain = False
            raise
        self._uncertain = False
        self._committed = frozenset(self._done)
        return manifest


def delete_files(paths: TablePaths, files: Iterable[NewFile]) -> None:
    """Delete the files of columns that are not committed.

    Raises
    ------
    StorageError
    """
    delete_fragments(paths, [Fragment(0, [file.file for file in files], 0)])


def _with_file(fragment: Fragment, file: DataFile | None, kept: set[int]) -> Fragment:
    """Return a fragment with a new file, without those that no column of the schema is left of."""
    proto = fragment.to_proto()
    if file is None:
        return fragment
    files = [item for item in proto.files if is_live(item, kept)]
    files.append(file.to_proto())
    del proto.files[:]
    proto.files.extend(files)
    return Fragment.from_proto(proto, fragment.name)
