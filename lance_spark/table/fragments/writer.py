"""Writer of record batches to new fragments, each with one data file.

The name of a data file contains a random UUID, so that several writers can write at once. Files are
not part of the table until a manifest refers to them. A writer that fails deletes its files.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lance_spark import progress
from lance_spark.errors import InvalidInputError, StorageError, error_context
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.blobs.writer import BlobOptions, BlobWriter
from lance_spark.file.open import DataFileWriter, create_file, version_in_manifests
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.output import OutputFile
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import join
from lance_spark.table.align import align
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.paths import DATA, TablePaths, sidecar_path

# --------------------------------------------------------------------------------------------------
# `FragmentWriteProgress`: what a caller wants to know of each fragment that is written.


class FragmentWriteProgress(ABC):
    """Told of each fragment that a write makes, in the thread of the call.

    An error of a method ends the write before its commit, and its files are deleted. Objects of
    pylance's class of this name can be given, too.

    Examples
    --------
    >>> class Printed(FragmentWriteProgress):
    ...     def begin(self, fragment, **kwargs):
    ...         print("begin")
    ...
    ...     def complete(self, fragment, **kwargs):
    ...         print(fragment.physical_rows, "rows")
    """

    @abstractmethod
    def begin(self, fragment: Fragment, **kwargs: Any) -> None:
        """Receive a fragment before its file is written: without an id, files and rows."""

    @abstractmethod
    def complete(self, fragment: Fragment, **kwargs: Any) -> None:
        """Receive a fragment whose file is written. The commit gives it its id."""


def check_observer(progress: object) -> None:
    """Raise InvalidInputError for an object without the methods of `FragmentWriteProgress`."""
    for name in ("begin", "complete"):
        if progress is not None and not callable(getattr(progress, name, None)):
            raise InvalidInputError(
                "progress must be a FragmentWriteProgress, with methods begin and complete, not "
                f"{type(progress).__name__}"
            )


# --------------------------------------------------------------------------------------------------
# Writer of record batches to new fragments, each with one data file.

#: The number of bytes at the end of a file's UUID that identify the job of the file.
TAG_BYTES = 6


def new_data_file_name(tag: bytes = b"") -> str:
    """Return a new file name: a UUID, with its first three bytes as binary digits.

    The binary digits spread the names over the partitions of an object store.

    - `tag`: Replaces the last bytes of the UUID. See `written_by`.
    """
    raw = uuid.uuid4().bytes
    raw = raw[: len(raw) - len(tag)] + tag
    return "".join(f"{byte:08b}" for byte in raw[:3]) + raw[3:].hex() + ".lance"


def written_by(names: Iterable[str], tag: bytes) -> list[str]:
    """Select the names of data files, or of folders of blob files, that have a tag."""
    return [name for name in names if name.removesuffix(".lance").endswith(tag.hex())]


class FragmentWriter:
    """Writes batches to new data files of a table.

    - `schema`: The columns of the batches, with their field ids.
    - `version`: The file version, for example ``(2, 2)``.
    - `max_rows_per_file`, `max_bytes_per_file`: A file is closed when it has exactly this number of
      rows, or at least this number of bytes.
    - `tag`: The end of the UUIDs in the names of files; see `new_data_file_name`.
    - `blobs`: How values of blob columns are stored.
    - `targets`: The targets of files, taken in turns: ids of base paths, or None for the table
      itself.
    - `first`: The index of the first target, modulo their number. Writers of a job that write a
      single file each should have different values.
    - `observer`: Called before and after each fragment is written.
    """

    def __init__(
        self,
        paths: TablePaths,
        schema: Schema,
        version: tuple[int, int],
        *,
        max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
        max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
        tag: bytes = b"",
        blobs: BlobOptions | None = None,
        targets: Sequence[int | None] = (None,),
        first: int = 0,
        observer: FragmentWriteProgress | None = None,
    ) -> None:
        self._observer = observer
        self._schema = schema
        self._arrow_schema = input_schema(schema)
        self._has_blobs = any(has_blobs(field) for field in schema.fields)
        self._blobs = blobs or BlobOptions()
        self._paths = paths
        self._targets = tuple(targets)
        self._target: int | None = None
        self._started = first
        self._blob_writer: BlobWriter | None = None
        self._version = version
        self._max_rows = max_rows_per_file
        self._max_bytes = max_bytes_per_file
        self._tag = tag
        self._fragments: list[Fragment] = []
        self._output: OutputFile | None = None
        self._writer: DataFileWriter | None = None
        self._path = ""
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, after `align` has converted it to the schema of the table.

        Raises SchemaMismatchError: a column is missing, unknown, or of another type. Raises
        InvalidInputError: a column that must not be null has nulls.
        """
        with error_context(self._paths.store.display):
            batch = align(batch, self._arrow_schema)
            start = 0
            while start < batch.num_rows:
                writer = self._writer or self._start_file()
                piece = batch
                if start or batch.num_rows > self._max_rows - self._rows:
                    piece = batch.slice(start, self._max_rows - self._rows)
                writer.write(piece)
                start += piece.num_rows
                self._rows += piece.num_rows
                progress.advance(piece.num_rows, "rows")
                if self._rows >= self._max_rows or writer.tell() >= self._max_bytes:
                    self._finish_file()

    def finish(self) -> list[Fragment]:
        """Close the last file. Return the fragments in the order of the rows, without ids."""
        if self._writer is not None:
            with error_context(self._paths.store.display):
                self._finish_file()
        return self._fragments

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> list[Fragment]:
        """Write batches and finish; after an error, delete the files of this writer."""
        try:
            for batch in batches:
                self.write(batch)
            return self.finish()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Delete the files of this writer. Does not raise: the error that led here must be seen."""
        output, self._output, self._writer = self._output, None, None
        blobs, self._blob_writer = self._blob_writer, None
        if blobs is not None:
            blobs.abort()
        fragments, self._fragments = self._fragments, []
        names = [(file.base_id, file.path) for fragment in fragments for file in fragment.files]
        if output is not None:
            output.abort()
            names.append((self._target, self._path))
        # Cleanup removes the files that cannot be deleted now.
        with suppress(StorageError):
            _delete_files(self._paths, names)

    def _start_file(self) -> DataFileWriter:
        if self._observer is not None:
            self._observer.begin(Fragment(id=0, files=(), physical_rows=0))
        self._path = new_data_file_name(self._tag)
        self._target = self._targets[self._started % len(self._targets)]
        self._started += 1
        self._output = self._create(self._path)
        if self._has_blobs:
            self._blob_writer = BlobWriter(
                self._output,
                self._version,
                self._open_sidecar,
                self._paths.open_uri,
                self._blobs,
            )
        self._writer = create_file(self._output, self._schema, self._version, self._blob_writer)
        self._rows = 0
        return self._writer

    def _open_sidecar(self, blob_id: int) -> OutputFile:
        return self._create(sidecar_path(self._path, blob_id))

    def _create(self, name: str) -> OutputFile:
        store, path = self._paths.locate(self._target, DATA, name)
        return store.open_output(path)

    def _finish_file(self) -> None:
        assert self._writer is not None
        assert self._output is not None
        written = self._writer.finish()
        self._output.close()
        self._writer = self._output = self._blob_writer = None
        major, minor = version_in_manifests(self._version)
        file = DataFile(
            path=self._path,
            fields=tuple(written.field_ids),
            column_indices=tuple(written.column_indices),
            file_major_version=major,
            file_minor_version=minor,
            file_size_bytes=written.size_bytes,
            base_id=self._target,
        )
        fragment = Fragment(id=0, files=(file,), physical_rows=written.num_rows)
        self._fragments.append(fragment)
        if self._observer is not None:
            self._observer.complete(fragment)


def delete_fragments(paths: TablePaths, fragments: Iterable[Fragment]) -> None:
    """Delete the data files of fragments that are not part of a version, and their blob files.

    Raises StorageError.
    """
    names = [(file.base_id, file.path) for fragment in fragments for file in fragment.files]
    _delete_files(paths, names)


def delete_written(paths: TablePaths, target: int | None, tag: bytes) -> None:
    """Delete all data files with a tag, and their blob files. Lists the folder of data files.

    - `target`: The base path whose files are listed; None for the table itself.
    """
    store, folder = _folder(paths, target)
    names = written_by(store.list_names(folder), tag)
    store.delete([join(folder, name) for name in names])
    for name in written_by(store.list_folders(folder), tag):
        _delete_folder(store, join(folder, name))


def _delete_files(paths: TablePaths, names: Iterable[tuple[int | None, str]]) -> None:
    by_store: dict[int | None, list[str]] = {}
    for target, name in names:
        by_store.setdefault(target, []).append(name)
    for target, target_names in by_store.items():
        store, folder = _folder(paths, target)
        try:
            store.delete([join(folder, name) for name in target_names])
        finally:
            for name in target_names:
                _delete_folder(store, join(folder, name.removesuffix(".lance")))


def _delete_folder(store: ObjectStore, folder: str) -> None:
    """Delete the folder with the blob files of a data file."""
    store.delete([f"{folder}/{blob}" for blob in store.list_names(folder)])
    store.remove_folder(folder)


def _folder(paths: TablePaths, target: int | None) -> tuple[ObjectStore, str]:
    """Return the store of the data files of a target, and their folder in it."""
    store, path = paths.locate(target, DATA, "x")
    return store, path.rpartition("/")[0]


def common_dictionaries(
    paths: TablePaths, fragments: Iterable[Fragment], schema: Schema
) -> dict[int, pa.Array]:
    """Read the dictionaries of new data files. All files must have the same dictionaries.

    - `fragments`: Each has one data file of version 0.1.

    Returns the dictionary values, by field id. Raises InvalidInputError: no files are given, or
    their dictionaries differ.
    """
    # Imported here because only files of version 0.1 need it.
    from lance_spark.file.v0_1.reader import LegacyFileReader

    nodes = [node for node in schema.walk() if node.logical_type.startswith("dict:")]
    values: dict[int, pa.Array] = {}
    for fragment in fragments:
        for file in fragment.files:
            reader = LegacyFileReader.open(paths.open_data_file(file), file.fields)
            try:
                for node in nodes:
                    dictionary = reader.dictionary(node)
                    if not values.setdefault(node.id, dictionary).equals(dictionary):
                        raise InvalidInputError(
                            f"column {node.name!r} has different dictionaries in two data files, "
                            "but files of version 0.1 share one dictionary; give all rows the same "
                            "dictionary, or use data storage version 2.2"
                        )
            finally:
                reader.close()
    if not values:
        raise InvalidInputError(
            f"column {nodes[0].name!r}: a table of version 0.1 takes its dictionary from the first "
            "rows, but no rows are written; use data storage version 2.2"
        )
    return values
