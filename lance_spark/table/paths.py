"""Resolves names in a manifest to files below the root of the table or a base path.

| file | no `base_id` | base path is a table's root | base path is a folder |
| --- | --- | --- | --- |
| data file | `{root}/data/{path}` | `{base}/data/{path}` | `{base}/{path}` |
| its blobs | the same, in a folder named like the file without `.lance` | | |
| deletion file | `{root}/_deletions/{name}` | `{base}/_deletions/{name}` | `{base}/{name}` |
| file of an index | `{root}/_indices/{uuid}/{name}` | `{base}/_indices/{uuid}/{name}` | `{base}/{uuid}/{name}` |
| row ids or versions outside of the manifest | `{root}/{path}` | | |

Names cannot lead out of their root: they are checked when the manifest is read, and by the store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lance_spark.errors import CorruptTableError, InvalidInputError, StorageError
from lance_spark.proto import table_pb2
from lance_spark.storage.options.base_paths import options_of_base
from lance_spark.storage.source import ByteRange, ByteSource
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import Location, check_relative, escaped, parse_uri
from lance_spark.table.fragments.files import DataFile, DeletionFile, ExternalRange
from lance_spark.table.rows.deletion_cache import DeletionCache

DATA = "data"
DELETIONS = "_deletions"
INDICES = "_indices"
# Files of version 0.1 have the numbers 0.0, 0.1 or 0.2.
LAST_LEGACY = (0, 2)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
#: Schemes whose file systems expect escaped URIs.
_AS_THEY_ARE = ("http", "https")


@dataclass(frozen=True, slots=True)
class BasePath:
    """A folder outside of the root of a table, with files of the table.

    Attributes
    ----------
    id : int
    path : str
        Absolute path or URI.
    is_dataset_root : bool
        Whether files are in data/ and _deletions/ below it, as in a table, instead of directly in
        it.
    name : str, optional
    """

    id: int
    path: str
    is_dataset_root: bool
    name: str | None = None

    @classmethod
    def from_proto(cls, proto: table_pb2.BasePath) -> BasePath:
        """Parse the message. A relative path, as pylance writes it, is made absolute."""
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
    """Opens the files of a table below its root and its base paths. Can be pickled.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    base_paths : mapping of int to BasePath
    storage_options : mapping, optional
        Passed on only to base paths of the same scheme and server. They can contain options of base
        paths; see `lance_spark.storage.options.base_paths`.

    Attributes
    ----------
    deletions : DeletionCache
        Cache of deletion files.
    foreign_roots : dict of int to bool
        Cache: whether a base path is the root of another table; see
        `lance_spark.table.placement`.
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
        """Open the root at `uri`. Base paths are opened on first use.

        Raises
        ------
        InvalidInputError, StorageError
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

        Raises
        ------
        MissingFileError
            It is not there.
        CorruptFileError
            A local file has another size than the manifest records.
        CorruptTableError
            Its base path is not registered.
        StorageError
        """
        store, path = self._resolve(file.base_id, DATA, file.path)
        # Releases around 0.33 recorded only the data bytes of a file of version 0.1.
        known = file.file_size_bytes if file.version > LAST_LEGACY else 0
        return store.open(path, known or None)

    def read_deletion_file(self, file: DeletionFile, fragment_id: int) -> tuple[bytes, str]:
        """Return the content of the deletion file of a fragment, and its name in errors.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError
        """
        store, path = self._resolve(file.base_id, DELETIONS, file.name(fragment_id))
        return store.read_bytes(path), store.name(path)

    def read_external_range(self, place: ExternalRange) -> tuple[bytes, str]:
        """Return bytes of a fragment outside of the manifest, and the name of their file.

        Raises
        ------
        MissingFileError
            The file does not exist.
        CorruptTableError
            The range exceeds the file.
        StorageError
        """
        source = self.store.open(place.path)
        try:
            if place.offset + place.size > source.size:
                raise CorruptTableError(
                    f"{source.name}: {source.size} bytes, but the manifest has {place.size} at "
                    f"{place.offset}"
                )
            (data,) = source.read([ByteRange(place.offset, place.size)])
            return data.tobytes(), source.name
        finally:
            source.close()

    def read_index_file(self, name: str, base_id: int | None = None) -> tuple[bytes, str]:
        """Return the content of a small file of an index, and its name in errors.

        Parameters
        ----------
        name : str
            UUID of the index, a slash, and the name of the file.
        base_id : int, optional
            Id of the base path; None for the root of the table.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError
        """
        store, path = self._resolve(base_id, INDICES, name)
        return store.read_bytes(path), store.name(path)

    def open_index_file(self, name: str, base_id: int | None = None) -> ByteSource:
        """Open a file of an index; see `read_index_file`.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError
        """
        store, path = self._resolve(base_id, INDICES, name)
        return store.open(path)

    def open_sidecar(self, file: DataFile, blob_id: int) -> ByteSource:
        """Open a file of blobs beside a data file.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError
        """
        store, path = self._resolve(file.base_id, DATA, sidecar_path(file.path, blob_id))
        return store.open(path)

    def open_external(self, uri: str, base_id: int) -> ByteSource:
        """Open an object that a blob refers to.

        Parameters
        ----------
        uri : str
            Absolute URI with escapes, or path below a base path without escapes.
        base_id : int
            0 for an absolute URI.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError, InvalidInputError
        """
        if base_id:
            store, path = self._resolve(base_id, DATA, uri)
            _check_file(store, path)
            return store.open(path)
        if not _ABSOLUTE.match(uri):
            raise CorruptTableError(
                f"{self.store.display}: a blob refers to {uri!r}, which is not an absolute URI"
            )
        return self.open_uri(uri)

    def open_uri(self, uri: str) -> ByteSource:
        """Open an object by its path or URI, with storage options as for a base path.

        Raises
        ------
        MissingFileError, StorageError, InvalidInputError
        """
        place = parse_uri(uri)
        folder, _, name = place.uri.rpartition("/")
        if place.is_local:
            folder = folder or "/"
        elif place.scheme not in _AS_THEY_ARE:
            folder, _, name = unquote(place.uri).rpartition("/")
            folder = escaped(place.scheme, folder)
        if not name or folder.endswith(":/"):
            raise InvalidInputError(
                f"a blob refers to {place.display!r}, which is not the URI of an object"
            )
        store = self._store_at(Location(place.scheme, folder))
        _check_file(store, name)
        return store.open(name)

    def locate(self, base_id: int | None, folder: str, name: str) -> tuple[ObjectStore, str]:
        """Return the store of a file and its path there.

        Parameters
        ----------
        base_id : int, optional
        folder : str
            Folder of such files in a table.
        name : str
            Name below that folder, or below a base path without the layout of a table.

        Raises
        ------
        CorruptTableError
            The base path is not registered.
        StorageError
        """
        return self._resolve(base_id, folder, name)

    def _resolve(self, base_id: int | None, folder: str, name: str) -> tuple[ObjectStore, str]:
        if base_id is None:
            return self.store, f"{folder}/{name}"
        base = self._bases.get(base_id)
        if base is None:
            raise CorruptTableError(
                f"{self.store.display}: {name} lies below base path {base_id}, which the manifest "
                "does not have"
            )
        return self.store_of(base), f"{folder}/{name}" if base.is_dataset_root else name

    def store_of(self, base: BasePath) -> ObjectStore:
        """Return the store of a base path, with its storage options.

        Raises
        ------
        InvalidOptionError, StorageError
        """
        store = self._stores.get(base.id)
        if store is None:
            place = parse_uri(base.path)
            options = options_of_base(
                self._options, base.id, base.path, inherits=self._is_trusted(place)
            )
            store = self._stores[base.id] = ObjectStore(place, options)
        return store

    def _store_at(self, place: Location) -> ObjectStore:
        return ObjectStore(place, self._options if self._is_trusted(place) else None)

    def _is_trusted(self, place: Location) -> bool:
        """Tell whether the storage options of the table may be sent to another location."""
        return place.objects.is_served_as(self.store.place)


def _check_file(store: ObjectStore, path: str) -> None:
    """Refuse folders, and pipes, which would block."""
    if store.is_local:
        full = os.path.join(store.uri, *check_relative(path).split("/"))
        if os.path.exists(full) and not os.path.isfile(full):
            raise StorageError(f"{full}: a blob refers to it, but it is not a file")


def sidecar_path(data_file: str, blob_id: int) -> str:
    """Return the path of a file of blobs: its id as binary digits, lowest first."""
    return f"{data_file.removesuffix('.lance')}/{format(blob_id, '032b')[::-1]}.blob"


def deletion_path(file: DeletionFile, fragment_id: int) -> str:
    """Return the path of the deletion file of a fragment below the root of the table."""
    return f"{DELETIONS}/{file.name(fragment_id)}"
