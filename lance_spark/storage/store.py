"""One class for every store: local disks by the operating system's calls, everything else through
fsspec.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from lance_spark.errors import CorruptFileError, MissingFileError, StorageError
from lance_spark.storage import local
from lance_spark.storage.commit import conditional_put_probe
from lance_spark.storage.commit.handlers import CommitHandler, handler_for
from lance_spark.storage.commit.manifest_store import OPTION as MANIFEST_STORE
from lance_spark.storage.commit.manifest_store import ManifestStore, load
from lance_spark.storage.connect import connect, of_uri
from lance_spark.storage.errors import translated
from lance_spark.storage.folders import Folders
from lance_spark.storage.google import is_google, is_zonal
from lance_spark.storage.options.fsspec_options import COMMIT_LOCK, OWN, family_of, to_fsspec
from lance_spark.storage.remote import (
    RemoteSource,
    file_size,
    parse_io_threads,
    read_whole,
    reads_at_once,
)
from lance_spark.storage.retry import MAX_RETRIES, Retries, create_once
from lance_spark.storage.s3 import is_s3, single_tries, without_expectation
from lance_spark.storage.source import ByteSource
from lance_spark.storage.uri import Location, check_relative, escaped, parse_uri
from lance_spark.storage.write import start as outputs
from lance_spark.storage.write.output import OutputFile

__all__ = ["ObjectStore", "OutputFile"]


class ObjectStore(Folders):
    """The files below one root, a table's as a rule.

    Paths are relative to the root, with "/" between their parts on every system. A store can be
    pickled: it travels as URI and options, and connects again where it arrives.

    Parameters
    ----------
    location : Location
    storage_options : mapping, optional
        Credentials, endpoint: by the names that other Lance clients use, or as the fsspec file
        system takes them (`options`). Never shown by `repr` or in errors. `manifest_store` and
        `dynamodb_endpoint` are for the manifest store, `io_threads` says how many reads are under
        way at once, `commit_lock` names a lock for commits.

    Attributes
    ----------
    uri : str
        The root: an absolute path on local disks, else a URI.
    display : str
        The same without what could be a secret, for messages.
    is_local : bool
    reads_at_once : int
        How many files may be read at the same time with gain.
    """

    def __init__(
        self, location: Location, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._location = location
        self._options = dict(storage_options or {})
        self._objects = location.objects
        self._arguments = to_fsspec(
            self._objects.scheme, {**of_uri(self._objects), **self._options}
        )
        #: What no message shows.
        self._secrets = {**self._arguments, **self._options, **location.secrets}
        self._fs: Any = None
        self._io_threads = parse_io_threads(self._arguments)
        if not location.is_local:
            own = {name: value for name, value in self._arguments.items() if name not in OWN}
            if family_of(self.scheme) == "s3":
                own = single_tries(own, self._io_threads)
            self._fs = connect(self._objects, own, self._secrets)
            if is_s3(self._fs):
                self._fs.retries = 1
                without_expectation(self._fs)
        self._retries = Retries.of(self._options, self._fs)
        self.reads_at_once = reads_at_once(self._fs, self._io_threads)
        self._handler: CommitHandler | None = None
        self._manifest_store: ManifestStore | None = None

    @classmethod
    def from_uri(
        cls, uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> ObjectStore:
        """Open the store at a URI: a path, ``file://``, ``memory://``, or any scheme that fsspec
        knows.

        Raises
        ------
        InvalidInputError
            The URI is empty.
        StorageError
            The scheme is unknown, or its package is not installed.
        """
        return cls(parse_uri(uri), storage_options)

    @property
    def scheme(self) -> str:
        """The scheme of the files; "file" for local disks."""
        return self._objects.scheme

    @property
    def base_uri(self) -> str:
        """The root of the files as a base path of another table has it: a URI."""
        return escaped(self.scheme, self.object_uri)

    @property
    def manifest_store(self) -> ManifestStore | None:
        """The database that says which manifests there are; None if the files themselves do.

        Raises
        ------
        InvalidOptionError, StorageError
            It cannot be used.
        """
        if self._manifest_store is None:
            named = self._arguments.get(MANIFEST_STORE)
            table = self._location.dynamodb_table
            if named is not None:
                others = {k: v for k, v in self._arguments.items() if k != MANIFEST_STORE}
                self._manifest_store = load(named, others)
            elif table is not None:
                from lance_spark.storage.commit.dynamodb import DynamoDbManifestStore

                names = {name.lower(): name for name in self._options}
                given = (
                    {MAX_RETRIES: self._options[names[MAX_RETRIES]]} if MAX_RETRIES in names else {}
                )
                self._manifest_store = DynamoDbManifestStore(table, {**self._arguments, **given})
        return self._manifest_store

    @property
    def is_consistent(self) -> bool:
        """Whether listings are known to have everything that was written before, as S3, Google
        Cloud Storage and Azure promise.
        """
        return self.is_local or self.scheme == "memory" or family_of(self.scheme) is not None

    @property
    def lists_in_order(self) -> bool:
        """Whether `list_first` works.

        S3 and Google Cloud Storage list by the bytes of names, but for directory buckets of S3, and
        zonal ones of Google, which are not known to. Azure does so unless the account has a
        hierarchical namespace; neither the URI nor a listing tells whether it has, and only newer
        servers can begin a listing after a name. So everything is listed there.
        """
        if self._fs is None or self.scheme not in ("s3", "s3a", "gs", "gcs"):
            return False
        if is_google(self._fs):
            return not is_zonal(self._fs, self.object_uri)
        bucket = self.object_uri.partition("://")[2].partition("/")[0]
        return is_s3(self._fs) and not bucket.endswith(("--x-s3", "--xa-s3"))

    @property
    def place(self) -> Location:
        """Where the files are."""
        return self._objects

    @property
    def options(self) -> Mapping[str, Any]:
        """Storage options as they were given; secrets among them."""
        return self._options

    @property
    def is_local(self) -> bool:
        """Whether the root is on a local disk."""
        return self._location.is_local

    def __repr__(self) -> str:
        return f"ObjectStore({self.display!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self._location, self._options)

    def below(self, folder: str) -> ObjectStore:
        """Return the store whose root is a folder of this one."""
        return ObjectStore(self._location.below(check_relative(folder)), self._options)

    def above(self, folder: str) -> ObjectStore | None:
        """Return the store that this one is the given folder of; None if its root is another
        folder.
        """
        location = self._location.above(check_relative(folder))
        return None if location is None else ObjectStore(location, self._options)

    def open(self, path: str, size: int | None = None) -> ByteSource:
        """Open a file for reading.

        Parameters
        ----------
        path : str
        size : int, optional
            Its length, if known: saves a request. A local file of another length is refused.

        Raises
        ------
        MissingFileError
            There is no such file.
        CorruptFileError
            The file's length is not `size`.
        StorageError
        """
        full = self._full(path)
        if self._fs is None:
            return local.LocalSource(full, size)
        return RemoteSource(
            self._fs, full, self.name(path), size, self._secrets, self._io_threads, self._retries
        )

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a small file.

        Parameters
        ----------
        path : str
        limit : int, optional
            Bytes that it can have. Kept to where the store lets files be read in part without a
            look at them first.

        Raises
        ------
        MissingFileError
            There is no such file.
        CorruptFileError
            It is longer.
        StorageError
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is not None:
                data = self._retries.call(read_whole, self._fs, full, limit)
            else:
                with local.open_file(full) as file:
                    data = file.read() if limit is None else file.read(limit + 1)
        if limit is not None and len(data) > limit:
            raise CorruptFileError(f"{self.name(path)}: the file has more than {limit} bytes")
        return data

    def write_bytes(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a small file; readers see all of it or nothing.

        Parameters
        ----------
        path : str
        data : bytes
        durable : bool
            False for what may be lost in a crash: spares local disks two fsync.

        Raises
        ------
        StorageError
        """
        full = self._full(path)
        if self._fs is None:
            local.write_whole(full, data, durable=durable)
            return
        with translated(self.name(path), self._secrets):
            self._retries.call(self._fs.pipe_file, full, data)

    def open_output(self, path: str, *, replace: bool = False) -> OutputFile:
        """Start a new file, to be written from start to end.

        Parameters
        ----------
        path : str
        replace : bool
            Whether it takes the place of one that is there, once it is whole.

        Raises
        ------
        StorageError
            The store refuses, or, on local disks, the file exists and is not to be replaced.
        """
        full = self._full(path)
        if self._fs is None:
            return local.LocalOutput(full, replace=replace)
        with translated(self.name(path), self._secrets):
            return outputs.start(
                self.scheme,
                self._fs,
                full,
                self.name(path),
                self._options,
                self._retries,
                self._secrets,
                replace=replace,
            )

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder on a local disk. Errors are ignored."""
        if self._fs is None:
            with suppress(OSError):
                os.rmdir(self._full(folder))

    def exists(self, path: str) -> bool:
        """Tell whether there is a file.

        Raises
        ------
        StorageError
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return os.path.isfile(full)
            try:
                if is_s3(self._fs):
                    self._retries.call(file_size, self._fs, full)
                    return True
                self._fs.invalidate_cache(full)
                # `isfile` takes a store that fails for one that has no such file.
                return bool(self._retries.call(self._fs.info, full)["type"] == "file")
            except FileNotFoundError:
                return False

    def copy(self, source: str, target: str) -> None:
        """Create or replace a small file by a copy of another; readers see all of it or nothing.

        Raises
        ------
        MissingFileError
            There is no `source`.
        StorageError
        """
        if self._fs is None:
            self.write_bytes(target, self.read_bytes(source))
            return
        full = self._full(source)
        with translated(self.name(source), self._secrets):
            self._retries.call(self._fs.cp_file, full, self._full(target))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; those that are not there are passed over.

        Raises
        ------
        StorageError
            Some file could not be deleted; the others are.
        """
        first: StorageError | None = None
        for path in paths:
            full = self._full(path)
            try:
                with translated(self.name(path), self._secrets):
                    if self._fs is None:
                        os.unlink(full)
                    else:
                        self._retries.call(self._fs.rm_file, full)
            except MissingFileError:
                continue
            except StorageError as error:
                first = first or error
        if first is not None:
            raise first

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file, whole and durable, in one atomic step; return False and change nothing if
        it exists.

        Raises
        ------
        StorageError
            The store failed, and the file may or may not be there; or the store has no such step.
        """
        return self._create(self._commit_handler(), path, data)

    def _create(self, handler: CommitHandler, path: str, data: bytes) -> bool:
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return handler.put_if_absent(full, data)
            return create_once(
                partial(handler.put_if_absent, full, data),
                partial(self._present, path, len(data)),
                data,
                self._retries,
            )

    def _create_bare(self, handler: CommitHandler, path: str, data: bytes) -> bool:
        with translated(self.name(path), self._secrets):
            return self._retries.call(handler.put_if_absent, self._full(path), data)

    def _present(self, path: str, size: int) -> bytes | None:
        """Return the content of a file that should have so many bytes, or the first ones of it;
        None if there is none.
        """
        try:
            return self.read_bytes(path, size)
        except MissingFileError:
            return None
        except CorruptFileError:
            return b""

    def check_put_if_absent(self) -> None:
        """Refuse a store that `put_if_absent` does not work on, before anything is written to it.

        Raises
        ------
        StorageError
        """
        if self.manifest_store is None:
            self._commit_handler()

    def _commit_handler(self) -> CommitHandler:
        if self._handler is None:
            lock = self._arguments.get(COMMIT_LOCK)
            if lock is not None:
                self._handler = self._locked(lock)
                return self._handler
            handler = handler_for(self.scheme, self._fs, self._secrets, self._retries)
            if self.manifest_store is None:
                put = partial(self._create, handler)
                bare = partial(self._create_bare, handler)
                place = (self.scheme, self._fs, self.object_uri)
                # Packages look at some options only when they connect.
                with translated(self.display, self._secrets):
                    conditional_put_probe.check(*place, self.display, put, bare, self._delete_one)
            self._handler = handler
        return self._handler

    def _locked(self, lock: object) -> CommitHandler:
        from lance_spark.storage.commit.lock import LockedPut, load

        try:
            inner = handler_for(self.scheme, self._fs, self._secrets, self._retries)
        except StorageError:
            inner = None
        return LockedPut(self._fs, load(lock), inner, self._secrets)

    def _delete_one(self, path: str) -> None:
        self.delete([path])
