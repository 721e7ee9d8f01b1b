"""From the names in a manifest to files: the table's root, and the other roots it refers to.

| file | no `base_id` | base path is a table's root | base path is a folder |
| --- | --- | --- | --- |
| data file | `{root}/data/{path}` | `{base}/data/{path}` | `{base}/{path}` |
| its blobs | the same, in a folder named like the file without `.lance` | | |
| deletion file | `{root}/_deletions/{name}` | `{base}/_deletions/{name}` | `{base}/{name}` |
| file of an index | `{root}/_indices/{uuid}/{name}` | `{base}/_indices/{uuid}/{name}` | `{base}/{uuid}/{name}` |
| row ids or versions outside of the manifest | `{root}/{path}` | | |

Names never lead out of their root: they are checked when the manifest is read, and once more by the
store.
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
# Files of version 0.1 say 0.0, 0.1 or 0.2.
LAST_LEGACY = (0, 2)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
#: Schemes whose file systems take URIs with their escapes.
_AS_THEY_ARE = ("http", "https")


@dataclass(frozen=True, slots=True)
class BasePath:
    """Another place where files of a table lie.

    Attributes
    ----------
    id : int
    path : str
        Absolute path or URI.
    is_dataset_root : bool
        Whether the files lie in data/ and _deletions/ below it, as in a table, instead of right in
        it.
    name : str, optional
    """

    id: int
    path: str
    is_dataset_root: bool
    name: str | None = None

    @classmethod
    def from_proto(cls, proto: table_pb2.BasePath) -> BasePath:
        """Parse the message. A relative path, as pylance writes for a clone of one, is made
        absolute.
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
    """Opens the files of a table, wherever they lie. Can be pickled.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    base_paths : mapping of int to BasePath
    storage_options : mapping, optional
        Handed on to base paths of the table's own scheme, and server if their URIs name one, to no
        others. Base paths can have settings of their own among them; see
        `lance_spark.storage.options.base_paths`.

    Attributes
    ----------
    deletions : DeletionCache
        What the deletion files that were read hold.
    foreign_roots : dict of int to bool
        For base paths that were asked about, whether they are roots of other tables; see
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
        """Open the root at `uri`; the others are opened when a file asks for them.

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
        """Return what opens the files of another version of the table."""
        return TablePaths(self.store, base_paths, self._options)

    def open_data_file(self, file: DataFile) -> ByteSource:
        """Open a data file.

        Raises
        ------
        MissingFileError
            It is not there.
        CorruptFileError
            A local file has not the size that the manifest says.
        CorruptTableError
            Its base path is not registered.
        StorageError
        """
        store, path = self._resolve(file.base_id, DATA, file.path)
        # Releases around 0.33 counted only the data of a file of version 0.1, not what follows it.
        known = file.file_size_bytes if file.version > LAST_LEGACY else 0
        return store.open(path, known or None)

    def read_deletion_file(self, file: DeletionFile, fragment_id: int) -> tuple[bytes, str]:
        """Return the content of the deletion file of a fragment, in one request, and what errors
        call the file.

        Raises
        ------
        MissingFileError, CorruptTableError, StorageError
        """
        store, path = self._resolve(file.base_id, DELETIONS, file.name(fragment_id))
        return store.read_bytes(path), store.name(path)

    def read_external_range(self, place: ExternalRange) -> tuple[bytes, str]:
        """Return bytes that a fragment has outside of the manifest, and what errors call their
        file.

        Raises
        ------
        MissingFileError
            The file is not there.
        CorruptTableError
            It ends before the range does.
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
        """Return the content of a small file of an index, and what errors call it.

        Parameters
        ----------
        name : str
            The index's id, a slash, and the file's name.
        base_id : int, optional
            The base path it lies below, if not in the table itself.

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
        """Open a file of blobs that stands beside a data file.

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
            Absolute, with escapes; or relative to a base path, without.
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
                f"{self.store.display}: a blob refers to {uri!r}, which is no absolute URI"
            )
        return self.open_uri(uri)

    def open_uri(self, uri: str) -> ByteSource:
        """Open any object, by its path or URI. It gets the table's storage options as base paths
        do.

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
            raise InvalidInputError(f"a blob refers to {place.display!r}, which names no object")
        store = self._store_at(Location(place.scheme, folder))
        _check_file(store, name)
        return store.open(name)

    def locate(self, base_id: int | None, folder: str, name: str) -> tuple[ObjectStore, str]:
        """Return the store of a file and its path there.

        Parameters
        ----------
        base_id : int, optional
        folder : str
            Where a table keeps files of that kind.
        name : str
            Below that folder, or below a base path that is no table's root.

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
        """Return the store of a base path of the table, with the settings that it has.

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
        """Tell whether the settings of the table may be told to the server of another place."""
        return place.objects.is_served_as(self.store.place)


def _check_file(store: ObjectStore, path: str) -> None:
    """Refuse folders, and pipes, which would be waited for."""
    if store.is_local:
        full = os.path.join(store.uri, *check_relative(path).split("/"))
        if os.path.exists(full) and not os.path.isfile(full):
            raise StorageError(f"{full}: a blob refers to it, and it is no file")


def sidecar_path(data_file: str, blob_id: int) -> str:
    """Return the path of a file of blobs, from that of its data file: the id's binary digits,
    lowest first.
    """
    return f"{data_file.removesuffix('.lance')}/{format(blob_id, '032b')[::-1]}.blob"


def deletion_path(file: DeletionFile, fragment_id: int) -> str:
    """Return the path of a fragment's deletion file below the table's root."""
    return f"{DELETIONS}/{file.name(fragment_id)}"
