"""Writes record batches to new fragments of one data file each.

Names of files contain a random UUID, so any number of writers can write at once. No version refers
to the files until a commit. A writer that fails deletes its files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from lance_spark.errors import StorageError, naming
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.blobs.writer import BlobOptions, BlobWriter
from lance_spark.file.create import DataFileWriter, create_file, version_in_manifests
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.store import ObjectStore, OutputFile
from lance_spark.storage.uri import join
from lance_spark.table.align import align
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import DATA, TablePaths, sidecar_path

#: Limits of a data file in pylance and the Java connector.
DEFAULT_MAX_ROWS_PER_FILE = 1024 * 1024
DEFAULT_MAX_BYTES_PER_FILE = 90 * 1024**3


#: Bytes at the end of the UUID of a file that identify its write.
TAG_BYTES = 6


def new_data_file_name(tag: bytes = b"") -> str:
    """Return a new file name: a UUID with its first three bytes in binary, to spread the prefixes.

    Parameters
    ----------
    tag : bytes
        Replaces the last bytes of the UUID, which are random otherwise. See `written_by`.
    """
    raw = uuid.uuid4().bytes
    raw = raw[: len(raw) - len(tag)] + tag
    return "".join(f"{byte:08b}" for byte in raw[:3]) + raw[3:].hex() + ".lance"


def written_by(names: Iterable[str], tag: bytes) -> list[str]:
    """Return the names of files and of folders of blobs that have the tag of a write."""
    return [name for name in names if name.removesuffix(".lance").endswith(tag.hex())]


class FragmentWriter:
    """Writes batches into new data files of one table.

    Parameters
    ----------
    paths : TablePaths
        Paths of the table.
    schema : Schema
        Columns of the table with field ids; batches have these columns.
    version : tuple of int
        File version, for example ``(2, 2)``.
    max_rows_per_file, max_bytes_per_file : int
        A file is closed at exactly that many rows, or at least that many bytes.
    tag : bytes
        End of the names of the files; see `new_data_file_name`.
    blobs : BlobOptions
        Options for values of blob columns.
    targets : sequence of int or None
        Targets of files, used in turn: ids of base paths, None for the root of the table.
    first : int
        Index of the first target, modulo their number: so writers of single files spread.
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
    ) -> None:
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
        """Add the rows of a batch, aligned with the schema of the table.

        Raises
        ------
        SchemaMismatchError
            A column is missing, unknown, or of another type.
        InvalidInputError
            A non-nullable column has nulls.
        """
        with naming(self._paths.store.display):
            batch = align(batch, self._arrow_schema)
            position = 0
            while position < batch.num_rows:
                writer = self._writer or self._start()
                piece = batch
                if position or batch.num_rows > self._max_rows - self._rows:
                    piece = batch.slice(position, self._max_rows - self._rows)
                writer.write(piece)
                position += piece.num_rows
                self._rows += piece.num_rows
                if self._rows >= self._max_rows or writer.tell() >= self._max_bytes:
                    self._finish_file()

    def finish(self) -> list[Fragment]:
        """Close the last file and return the fragments in the order of rows, without ids."""
        if self._writer is not None:
            with naming(self._paths.store.display):
                self._finish_file()
        return self._fragments

    def abort(self) -> None:
        """Delete all files of this writer. Errors are ignored: cleanup removes the rest."""
        output, self._output, self._writer = self._output, None, None
        blobs, self._blob_writer = self._blob_writer, None
        if blobs is not None:
            blobs.abort()
        fragments, self._fragments = self._fragments, []
        names = [(file.base_id, file.path) for fragment in fragments for file in fragment.files]
        if output is not None:
            output.abort()
            names.append((self._target, self._path))
        with suppress(StorageError):
            _delete_files(self._paths, names)

    def _start(self) -> DataFileWriter:
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
        self._fragments.append(Fragment(id=0, files=(file,), physical_rows=written.num_rows))


def delete_fragments(paths: TablePaths, fragments: Iterable[Fragment]) -> None:
    """Delete the data files and blobs of fragments that no manifest refers to.

    Raises
    ------
    StorageError
    """
    names = [(file.base_id, file.path) for fragment in fragments for file in fragment.files]
    _delete_files(paths, names)


def delete_written(paths: TablePaths, target: int | None, tag: bytes) -> None:
    """Delete all data files and blobs with the tag of a write. Lists the data files.

    Parameters
    ----------
    paths : TablePaths
    target : int, optional
        Id of the base path; None for the root of the table.
    tag : bytes
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
    for target, result in by_store.items():
        store, folder = _folder(paths, target)
        try:
            store.delete([join(folder, name) for name in result])
        finally:
            for name in result:
                _delete_folder(store, join(folder, name.removesuffix(".lance")))


def _delete_folder(store: ObjectStore, folder: str) -> None:
    """Delete the folder of blobs of a data file."""
    store.delete([f"{folder}/{blob}" for blob in store.list_names(folder)])
    store.remove_folder(folder)


def _folder(paths: TablePaths, target: int | None) -> tuple[ObjectStore, str]:
    """Return the store of data files and their folder."""
    store, path = paths.locate(target, DATA, "x")
    return store, path.rpartition("/")[0]
