"""Locations of the files of a table: below its root, or below one of its base paths.

| file | no `base_id` | base path is a table's root | base path is a folder |
| --- | --- | --- | --- |
| data file | `{root}/data/{path}` | `{base}/data/{path}` | `{base}/{path}` |
| its blob files | the same, in a folder named like the file without `.lance` | | |
| deletion file | `{root}/_deletions/{name}` | `{base}/_deletions/{name}` | `{base}/{name}` |
| index file | `{root}/_indices/{uuid}/{name}` | the same below `{base}` | `{base}/{uuid}/{name}` |
| row ids or versions outside of the manifest | `{root}/{path}` | | |

Paths never lead out of their root: the reader of the manifest checks them, and the store does so
again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lance_spark.errors import CorruptTableError, InvalidInputError, StorageError
from lance_spark.file.footer import expect_tail
from lance_spark.proto import table_pb2
from lance_spark.storage.kept_ranges import Keep
from lance_spark.storage.options import options_of_base
from lance_spark.storage.remote import RemoteSource
from lance_spark.storage.source import ByteRange, ByteSource
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import Location, check_relative, escaped, parse_uri
from lance_spark.table.fragments.files import DataFile, DeletionCache, DeletionFile, ExternalRange

DATA = "data"
DELETIONS = "_deletions"
INDICES = "_indices"
#: The greatest version number in files of version 0.1, which are marked 0.0, 0.1 or 0.2.
LAST_LEGACY = (0, 2)
#: A file of an index on a store is read whole, by one request, if it has at most so many bytes.
_SMALL_INDEX_FILE = 256 * 1024
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
#: Schemes whose file systems expect URIs with percent escapes.
_ESCAPED_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class BasePath:
    """A folder outside the root of a table that contains files of the table.

    Attributes
    ----------
    id : int
        0 if the table assigns it.
    path : str
        Absolute path or URI. Needed.
    is_dataset_root : bool
        Whether the folder has the layout of a table: files are in its folders data/ and
        _deletions/. Otherwise the files are directly in it.
    name : str, optional
    """

    id: int = 0
    path: str = ""
    is_dataset_root: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        # pylance's class has the path first, and then the name.
        for name, dtype in (("id", int), ("path", str), ("name", str | None)):
            value = getattr(self, name)
            if not isinstance(value, dtype):
                raise InvalidInputError(
                    f"{name} of a base path must not be of type {type(value).__name__}; give "
                    "path, name, is_dataset_root and id by their names"
                )
        if not self.path:
            raise InvalidInputError("a base path needs a path")

    @classmethod
    def from_proto(cls, proto: table_pb2.BasePath) -> BasePath:
        """Parse the message.

        A relative path becomes absolute: pylance writes one if the source of a clone has one.
        """
        return cls(
            proto.id,
            parse_uri(proto.path).uri,
            proto.is_dataset_root,
            proto.name if proto.HasField("name") else None,
        )

    def to_proto(self) -> table_pb2.BasePath:
        """Return the message."""
        return table_pb2.BasePath(
            id=self.id, path=self.path, is_dataset_root=self.is_dataset_root, name=self.name
        )


class TablePaths:
    """Opens the files of a table, below its root and its base paths. Can be pickled.

    - `storage_options`: Settings of the store. A base path gets them only if it has the scheme of
      the table, and the same server if the URI names one. Settings of single base paths are among
      them; see `lance_spark.storage.options`.
    - `deletions`: The deletion vectors that were read.
    - `foreign_roots`: Cache of `lance_spark.table.placement`: base path id to whether it is the
      root of another table.
    """

    def __init__(
        self,
        store: ObjectStore,
        base_paths: Mapping[int, BasePath] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self._bases = dict(base_paths or {})
        self._options = dict(storage_options or {})
        self._stores: dict[int, ObjectStore] = {}
        self.deletions = DeletionCache()
        self.foreign_roots: dict[int, bool] = {}

    @classmethod
    def open(
        cls,
        uri: str,
        storage_options: Mapping[str, Any] | None = None,
        base_paths: Mapping[int, BasePath] | None = None,
    ) -> TablePaths:
        """Open the root at `uri`. A base path is opened with its first file.

        Raises InvalidInputError, StorageError.
        """
        return cls(ObjectStore.from_uri(uri, storage_options), base_paths, storage_options)

    @property
    def base_paths(self) -> Mapping[int, BasePath]:
        """The base paths, by id."""
        return self._bases

    def with_bases(self, base_paths: Mapping[int, BasePath]) -> TablePaths:
        """Return the paths of another version of the table."""
        return TablePaths(self.store, base_paths, self._options)

    def open_data_file(self, file: DataFile) -> ByteSource:
        """Open a data file.

        Raises MissingFileError, StorageError. Raises CorruptFileError: the size of a local file
        differs from the size in the manifest. Raises CorruptTableError: the manifest does not have
        the base path.
        """
        store, path = self.locate(file.base_id, DATA, file.path)
        # For a file of version 0.1, releases around 0.33 recorded the size of its data alone.
        size = file.file_size_bytes if file.version > LAST_LEGACY else 0
        return store.open(path, size or None, keep=Keep.DATA_FILE)

    def read_deletion_file(self, file: DeletionFile, fragment_id: int) -> tuple[bytes, str]:
        """Read the deletion file of a fragment in one request; return its content and full name.

        Raises MissingFileError, CorruptTableError, StorageError.
        """
        store, path = self.locate(file.base_id, DELETIONS, file.name(fragment_id))
        return store.read_kept(path), store.name(path)

    def forget_deletion_file(self, file: DeletionFile, fragment_id: int) -> None:
        """Read the deletion file from the store next time: what is kept may be damaged."""
        store, path = self.locate(file.base_id, DELETIONS, file.name(fragment_id))
        store.forget_kept(path)

    def expect_deletion_file(self, file: DeletionFile, fragment_id: int) -> None:
        """Begin to read the deletion file of a fragment, if it is remote and not known yet."""
        if self.deletions.get((fragment_id, file)) is None:
            store, path = self.locate(file.base_id, DELETIONS, file.name(fragment_id))
            store.expect_kept(path)

    def expect_data_file(self, file: DataFile) -> None:
        """Begin to read the end of a data file, if it is remote and its size is known."""
        store, path = self.locate(file.base_id, DATA, file.path)
        if not store.is_local and file.version > LAST_LEGACY and file.file_size_bytes:
            expect_tail(store.open(path, file.file_size_bytes, keep=Keep.DATA_FILE))

    def read_external_range(self, external: ExternalRange) -> tuple[bytes, str]:
        """Read a row id or version sequence that is stored outside of the manifest.

        Returns
        -------
        bytes
            The sequence.
        str
            The full name of its file, for errors.

        Raises
        ------
        MissingFileError
        CorruptTableError
            The range exceeds the file.
        StorageError
        """
        source = self.store.open(external.path)
        try:
            if external.offset + external.size > source.size:
                raise CorruptTableError(
                    f"{source.name}: the manifest refers to {external.size} bytes at "
                    f"{external.offset}, but the file has {source.size} bytes"
                )
            (data,) = source.read([ByteRange(external.offset, external.size)])
            return data.tobytes(), source.name
        finally:
            source.close()

    def read_index_file(self, name: str, base_id: int | None = None) -> tuple[bytes, str]:
        """Read a small file of an index; return its content and full name.

        - `name`: The id of the index, a slash, and the name of the file.
        - `base_id`: The base path that contains the file; None for the table itself.

        Raises MissingFileError, CorruptTableError, StorageError.
        """
        store, path = self.locate(base_id, INDICES, name)
        return store.read_kept(path), store.name(path)

    def open_index_file(
        self,
        name: str,
        base_id: int | None = None,
        size: int | None = None,
        *,
        keep: bool = True,
    ) -> ByteSource:
        """Open a file of an index; see `read_index_file` and `ObjectStore.open`.

        Raises MissingFileError, CorruptTableError, StorageError.
        """
        store, path = self.locate(base_id, INDICES, name)
        # Of a local file, the size is known.
        source = store.open(
            path, None if store.is_local else size, keep=Keep.INDEX_FILE if keep else None
        )
        if isinstance(source, RemoteSource):
            source.end_bytes = _SMALL_INDEX_FILE
        return source

    def open_sidecar(self, file: DataFile, blob_id: int) -> ByteSource:
        """Open a blob file of a data file.

        Raises MissingFileError, CorruptTableError, StorageError.
        """
        store, path = self.locate(file.base_id, DATA, sidecar_path(file.path, blob_id))
        return store.open(path)

    def open_external(self, uri: str, base_id: int) -> ByteSource:
        """Open an object that a blob refers to.

        - `uri`: An absolute URI with percent escapes, or a path below a base path without escapes.
        - `base_id`: 0 for an absolute URI.

        Raises MissingFileError, CorruptTableError, StorageError, InvalidInputError.
        """
        if base_id:
            store, path = self.locate(base_id, DATA, uri)
            _check_file(store, path)
            return store.open(path)
        if not _ABSOLUTE.match(uri):
            raise CorruptTableError(
                f"{self.store.display}: a blob refers to {uri!r}, which is not an absolute URI"
            )
        return self.open_uri(uri)

    def open_uri(self, uri: str) -> ByteSource:
        """Open any object by its path or URI, with the storage options of the table if allowed.

        Raises MissingFileError, StorageError, InvalidInputError.
        """
        location = parse_uri(uri)
        folder, _, name = location.uri.rpartition("/")
        if location.is_local:
            folder = folder or "/"
        elif location.scheme not in _ESCAPED_SCHEMES:
            folder, _, name = unquote(location.uri).rpartition("/")
            folder = escaped(location.scheme, folder)
        if not name or folder.endswith(":/"):
            raise InvalidInputError(
                f"a blob refers to {location.display!r}, which is not the name of an object"
            )
        parent = Location(location.scheme, folder)
        store = ObjectStore(parent, self._options if self._is_trusted(parent) else None)
        _check_file(store, name)
        return store.open(name)

    def locate(self, base_id: int | None, folder: str, name: str) -> tuple[ObjectStore, str]:
        """Return the store of a file and the path of the file in the store.

        - `folder`: The folder of a table for this sort of file, such as `DATA`.
        - `name`: Path below that folder, or below a base path that is not the root of a table.

        Raises StorageError. Raises CorruptTableError: the manifest does not have the base path.
        """
        if base_id is None:
            return self.store, f"{folder}/{name}"
        base = self._bases.get(base_id)
        if base is None:
            raise CorruptTableError(
                f"{self.store.display}: {name} is below base path {base_id}, "
                "which the manifest does not have"
            )
        return self.store_of(base), f"{folder}/{name}" if base.is_dataset_root else name

    def store_of(self, base: BasePath) -> ObjectStore:
        """Return the store of a base path of the table, opened with the settings of the base path.

        Raises InvalidOptionError, StorageError.
        """
        store = self._stores.get(base.id)
        if store is None:
            location = parse_uri(base.path)
            options = options_of_base(
                self._options, base.id, base.path, inherits=self._is_trusted(location)
            )
            store = self._stores[base.id] = ObjectStore(location, options)
        return store

    def _is_trusted(self, location: Location) -> bool:
        """Return whether the server of a location may receive the settings of the table.

        The settings can contain credentials.
        """
        return location.objects.is_served_as(self.store.location)


def _check_file(store: ObjectStore, path: str) -> None:
    """Refuse folders and pipes. The open of a pipe would block."""
    if store.is_local:
        full = os.path.join(store.uri, *check_relative(path).split("/"))
        if os.path.exists(full) and not os.path.isfile(full):
            raise StorageError(f"{full}: a blob refers to this path, which is not a file")


def sidecar_path(data_file: str, blob_id: int) -> str:
    """Return the path of a blob file: in a folder named like its data file, named by its id.

    The name consists of the binary digits of the id, lowest first.
    """
    return f"{data_file.removesuffix('.lance')}/{format(blob_id, '032b')[::-1]}.blob"


def deletion_path(file: DeletionFile, fragment_id: int) -> str:
    """Return the path of a fragment's deletion file below the table's root."""
    return f"{DELETIONS}/{file.name(fragment_id)}"
