"""One class for every store: local disks by system calls, all others through fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from lance_spark.errors import CorruptFileError, InvalidInputError, MissingFileError, StorageError
from lance_spark.storage import local
from lance_spark.storage import output as outputs
from lance_spark.storage.commit import OPTION as MANIFEST_STORE
from lance_spark.storage.commit import (
    CommitHandler,
    ManifestStore,
    handler_for,
    load_manifest_store,
)
from lance_spark.storage.connect import (
    check_conditional_put,
    connect,
    connect_obstore,
    connect_renewing,
    of_uri,
    uses_obstore,
)
from lance_spark.storage.disk_ranges import (
    DiskFile,
    DiskRanges,
    DiskSettings,
    identity_of,
    is_never_reused,
    parse_settings,
)
from lance_spark.storage.errors import translated
from lance_spark.storage.io_counts import CountedOutput, counts_of
from lance_spark.storage.kept_ranges import KEPT, WHOLE, Keep, KeptFile, Tagged, tag_of
from lance_spark.storage.listing import FileInfo, local_tree, modified, remote_tree
from lance_spark.storage.objects import Entry, objects_of
from lance_spark.storage.options import COMMIT_LOCK, CREDENTIALS, OWN, family_of, to_fsspec
from lance_spark.storage.output import LocalOutput, OutputFile
from lance_spark.storage.parallel import AT_ONCE, read_all
from lance_spark.storage.remote import (
    RemoteSource,
    arrived,
    file_key,
    parse_ahead_bytes,
    parse_io_threads,
    read_whole,
    reads_at_once,
)
from lance_spark.storage.renewal import RenewedArguments, credentials_of, merged
from lance_spark.storage.retry import MAX_RETRIES, Retries, create_once
from lance_spark.storage.s3 import is_s3, prepare, single_tries
from lance_spark.storage.scheduler import Group, ReadRequest, Scheduler
from lance_spark.storage.source import ByteSource
from lance_spark.storage.uri import Location, check_relative, check_root, escaped, join, parse_uri

__all__ = ["ObjectStore", "OutputFile"]

#: A store limits how many objects are deleted in a second, by one request or by many.
_BATCHES_AT_ONCE = 4


# Named here because `ObjectStore.list` hides the built-in inside the class.
_Names = list[str]
_Files = list[tuple[str, int]]
_TaggedFiles = list[Tagged]
_Infos = list[FileInfo]
_Entries = list[Entry]
_Errors = list[StorageError | None]


class ObjectStore:
    """The files below one root, usually the root of a table.

    Paths are relative to the root, with "/" between their parts on every system. A store can be
    pickled, as URI and options; it connects again after unpickling.

    - `storage_options`: Credentials and endpoint, by the names of other Lance clients or of the
      fsspec file system (`options`). Never shown by `repr` or in errors. `manifest_store` and
      `dynamodb_endpoint` belong to the manifest store, `io_threads` is the number of parallel
      reads, `read_ahead_bytes` the bytes that scans read ahead, `commit_lock` names a lock for
      commits, `disk_cache` and others are about ranges on the disk (`disk_ranges`).
    - `uri`: The root: an absolute path on local disks, else a URI.
    - `display`: `uri` without possible secrets, for errors.
    - `reads_at_once`: Number of files that are worth reading in parallel.
    - `ahead_bytes`: Bytes that a scan may hold besides those of the part that its consumer reads.
    """

    def __init__(
        self, location: Location, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._location = location
        self._options = dict(storage_options or {})
        self._credentials = None if location.is_local else credentials_of(self._options)
        if self._credentials is not None:
            self._options = merged(self._options, self._credentials.current())
        self._objects = location.objects
        self._arguments = to_fsspec(
            self._objects.scheme, {**of_uri(self._objects), **self._options}
        )
        #: Options whose values no error shows.
        self._secrets = {**self._arguments, **self._options, **location.secrets}
        self._renewed: RenewedArguments | None = None
        if self._credentials is not None:
            self._secrets["renewed"] = self._credentials.secrets
            options = {**of_uri(self._objects), **self._options}
            self._renewed = RenewedArguments(self._credentials, self._objects.scheme, options)
        #: Shared by all stores of this root.
        self.io_counts = counts_of(self._objects.uri)
        self._fs: Any = None
        self._uses_obstore = uses_obstore(self.scheme, self._arguments)
        self._io_threads = parse_io_threads(self._arguments, self.scheme)
        if not location.is_local:
            client_options = {
                name: value for name, value in self._arguments.items() if name not in OWN
            }
            if family_of(self.scheme) == "s3" and not self._uses_obstore:
                client_options = single_tries(client_options, self._io_threads)
            if self._renewed is None:
                self._fs = self._connected(client_options)
            else:
                with translated(self.display, self._secrets):
                    self._fs = connect_renewing(self._renewed, client_options, self._connected)
        self._retries = Retries.of(self._options, self._fs)
        self.reads_at_once = reads_at_once(self._fs, self._io_threads)
        self.ahead_bytes = parse_ahead_bytes(self._arguments)
        if not location.is_local:
            # Here only for the errors: a task of Spark sets the default after this.
            parse_settings(self._arguments)
        self._disk: tuple[DiskSettings, bytes] | None = None
        self._knows_disk = False
        self._handler: CommitHandler | None = None
        self._manifest_store: ManifestStore | None = None

    def _connected(self, client_options: Mapping[str, Any]) -> Any:
        if self._uses_obstore:
            return connect_obstore(self._objects, client_options, self._secrets)
        fs = connect(self._objects, client_options, self._secrets)
        if is_s3(fs):
            fs.retries = 1
            prepare(fs)
        return fs

    @classmethod
    def from_uri(
        cls, uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> ObjectStore:
        """Open the store at a URI: a path, ``file://``, ``memory://``, or any scheme of fsspec.

        Raises InvalidInputError: the URI is empty, or other clients take it for another place.
        Raises StorageError: the scheme is unknown, or its package is not installed.
        """
        location = parse_uri(uri)
        check_root(uri)
        return cls(location, storage_options)

    @property
    def uri(self) -> str:
        """The root: an absolute path on local disks, else a URI."""
        return self._location.uri

    @property
    def object_uri(self) -> str:
        """The root of the files: `uri` without escapes, and without the manifest store."""
        return self._objects.uri

    @property
    def display(self) -> str:
        """The root as errors show it."""
        return self._location.display

    def name(self, path: str) -> str:
        """Return the name that errors give the file at `path`."""
        return f"{self.display}/{path}"

    @property
    def scheme(self) -> str:
        """The scheme of the files; "file" for local disks."""
        return self._objects.scheme

    @property
    def base_uri(self) -> str:
        """The root of the files as a URI, as base paths of other tables record it."""
        return escaped(self.scheme, self.object_uri)

    @property
    def manifest_store(self) -> ManifestStore | None:
        """The database that records the manifests; None if the store of the files does.

        Raises InvalidOptionError, StorageError: it cannot be used.
        """
        if self._manifest_store is None:
            named = self._arguments.get(MANIFEST_STORE)
            table = self._location.dynamodb_table
            if named is not None:
                other_options = {k: v for k, v in self._arguments.items() if k != MANIFEST_STORE}
                self._manifest_store = load_manifest_store(named, other_options)
            elif table is not None:
                from lance_spark.storage.dynamodb import DynamoDbManifestStore

                names = {name.lower(): name for name in self._options}
                retry_option = (
                    {MAX_RETRIES: self._options[names[MAX_RETRIES]]} if MAX_RETRIES in names else {}
                )
                self._manifest_store = DynamoDbManifestStore(
                    table, {**self._arguments, **retry_option}, self._renewed
                )
        return self._manifest_store

    @property
    def is_consistent(self) -> bool:
        """Whether a listing is known to contain every file written before it.

        S3, Google Cloud Storage and Azure promise it.

        """
        return self.is_local or self.scheme == "memory" or family_of(self.scheme) is not None

    @property
    def lists_in_order(self) -> bool:
        """Whether `list_first` works.

        S3 and Google Cloud Storage list in the order of the bytes of names. Directory buckets of S3
        and zonal buckets of Google are not known to. Azure does, unless the account has a
        hierarchical namespace, which neither the URI nor a listing shows; and only newer servers
        can begin a listing after a name. So Azure counts as unordered.
        """
        if self._fs is None or self.scheme not in ("s3", "s3a", "gs", "gcs"):
            return False
        return objects_of(self._fs).lists_in_order(self.object_uri)

    @property
    def has_no_empty_folders(self) -> bool:
        """Whether a folder exists only together with files.

        HDFS, accounts of Azure with a hierarchical namespace, and local disks have empty folders.
        """
        return self.scheme == "memory" or family_of(self.scheme) in ("s3", "google")

    @property
    def location(self) -> Location:
        """The location of the files."""
        return self._objects

    @property
    def options(self) -> Mapping[str, Any]:
        """The storage options of the user, with secrets; the newest options, if they expire."""
        if self._credentials is None:
            return self._options
        return merged(self._options, self._credentials.values)

    @property
    def is_local(self) -> bool:
        """Whether the root is on a local disk."""
        return self._location.is_local

    def __repr__(self) -> str:
        return f"ObjectStore({self.display!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self._location, self.options)

    def below(self, folder: str) -> ObjectStore:
        """Return the store whose root is a folder of this one."""
        return ObjectStore(self._location.below(check_relative(folder)), self.options)

    def above(self, folder: str) -> ObjectStore | None:
        """Return the store of the parent if the root of this one ends with `folder`, else None."""
        location = self._location.above(check_relative(folder))
        return None if location is None else ObjectStore(location, self.options)

    def open(self, path: str, size: int | None = None, *, keep: Keep | None = None) -> ByteSource:
        """Open a file for reading.

        - `size`: Length of the file, if known: saves a request. A local file of another length is
          refused.
        - `keep`: What is kept of a remote file for later reads; see `kept_ranges`. The file never
          changes. By default nothing is kept.

        Raises StorageError. Raises MissingFileError: the file is not found. Raises
        CorruptFileError: the file's length is not `size`.
        """
        full = self._full(path)
        source: local.LocalSource | RemoteSource
        if self._fs is None:
            source = local.LocalSource(full, size)
        else:
            options, threads = self._secrets, self._io_threads
            kept = None if keep is None else partial(self._kept, path, keep)
            source = RemoteSource(
                self._fs, full, self.name(path), size, options, threads, self._retries, keep=kept
            )
        source.counts.total = self.io_counts
        return source

    def _kept(self, path: str, keep: Keep | None, mark: int | str | None) -> KeptFile:
        """Return what is kept of a file of a remote store; see `file_key`."""
        full = self._full(path)
        if not self._knows_disk:
            self._disk, self._knows_disk = self._find_disk(), True
        disk = None
        keeps_all = keep is Keep.INDEX_FILE
        # A file with a tag is written again under its name. The root counts for nothing: it can
        # have a random name, and be that of another table later.
        if self._disk is not None and not isinstance(mark, str) and is_never_reused(path):
            settings, identity = self._disk
            keeps_all |= settings.keeps_data
            disk = DiskFile(DiskRanges.of(settings), identity, full, mark)
        return KeptFile(file_key(self._fs, full, mark), disk, keeps_all=keeps_all)

    def _find_disk(self) -> tuple[DiskSettings, bytes] | None:
        """Return the settings of the disk, and what the store is called there."""
        settings = None
        if self.scheme != "memory":
            settings = parse_settings(self._arguments)
        identity = None if settings is None else self._identity()
        return None if settings is None or identity is None else (settings, identity)

    def _identity(self) -> bytes | None:
        """Return a digest of the store that other processes find; None if they cannot."""
        expiring: tuple[str, ...] = ()
        source = None
        if self._credentials is not None and self._credentials.is_renewable:
            expiring = CREDENTIALS.get(family_of(self.scheme) or "", ())
            source = self._credentials.name
        options = {
            name: value
            for name, value in self._arguments.items()
            if name not in OWN and name not in expiring
        }
        return identity_of(self.scheme, options, source)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a small file.

        - `limit`: Most bytes that the file may have. Where possible, not more is read.

        Raises StorageError. Raises MissingFileError: the file is not found. Raises
        CorruptFileError: the file is longer than `limit`.
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is not None:
                data = self._retries.call(read_whole, self._fs, full, limit)
            else:
                with local.open_file(full) as file:
                    data = file.read() if limit is None else file.read(limit + 1)
        self.io_counts.add_reads(1, len(data))
        if limit is not None and len(data) > limit:
            raise CorruptFileError(f"{self.name(path)}: the file has more than {limit} bytes")
        return data

    def read_kept(self, path: str, tag: str | None = None) -> bytes:
        """Return the content of a small file that never changes; see `kept_ranges`.

        - `tag`: Of a file that can be deleted and written again: only the content that was read of
          the file with this tag is kept.

        Raises MissingFileError, StorageError.
        """
        if self._fs is None:
            return self.read_bytes(path)
        file = self._kept(path, None, tag)
        kept = file.get(WHOLE, on_disk=True)
        is_first = kept is not None and file.is_first_use(WHOLE)
        if isinstance(kept, ReadRequest):
            self._scheduler.need([kept])
            kept = arrived(kept)
        if kept is not None:
            if is_first:
                self.io_counts.add_reads(1, len(kept))
            return bytes(kept)
        data = self.read_bytes(path)
        file.put(WHOLE, np.frombuffer(data, np.uint8), on_disk=True)
        return data

    def is_kept(self, path: str, tag: str) -> bool:
        """Return whether `read_kept` of the file with a tag needs no request."""
        return self._fs is not None and KEPT.has(file_key(self._fs, self._full(path), tag), WHOLE)

    def forget_kept(self, path: str, tag: str | None = None) -> None:
        """Drop what is kept of a small file, which may have arrived damaged."""
        if self._fs is not None:
            self._kept(path, None, tag).forget()

    def expect_kept(self, path: str) -> None:
        """Begin to read a small file of a remote store that `read_kept` returns later."""
        if self._fs is None:
            return
        full = self._full(path)
        # Without a start, s3fs requests the size first.
        start = 0 if is_s3(self._fs) else None
        request = ReadRequest(Group(self._retries), full, start, None)
        if self._kept(path, None, None).expect(WHOLE, request):
            self._scheduler.send([request], ahead=True)

    @property
    def _scheduler(self) -> Scheduler:
        return Scheduler.of(self._fs, self.reads_at_once)

    def write_bytes(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a small file atomically.

        - `durable`: If False, the file may be lost in a crash: this saves two fsync calls on local
          disks.

        Raises StorageError.
        """
        full = self._full(path)
        if self._fs is None:
            local.write_whole(full, data, durable=durable)
        else:
            with translated(self.name(path), self._secrets):
                self._retries.call(self._fs.pipe_file, full, data)
        self.io_counts.add_write(len(data))

    def open_output(self, path: str, *, replace: bool = False) -> OutputFile:
        """Open a new file for sequential writes.

        - `replace`: Whether `close` replaces an existing file.

        Raises StorageError: the store refuses, or a local file exists and `replace` is false.
        """
        full = self._full(path)
        if self._fs is None:
            return CountedOutput(LocalOutput(full, replace=replace), self.io_counts)
        with translated(self.name(path), self._secrets):
            output = outputs.start(
                self._fs,
                full,
                self.name(path),
                self._options,
                self._retries,
                self._secrets,
                replace=replace,
            )
        return CountedOutput(output, self.io_counts)

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder on a local disk; "" is the root. Errors are ignored."""
        if self._fs is None:
            with suppress(OSError):
                os.rmdir(self._folder(folder))

    def exists(self, path: str) -> bool:
        """Return whether a file exists. Raises StorageError."""
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return os.path.isfile(full)
            try:
                # `isfile` of fsspec returns false when the store fails.
                entry = self._retries.call(objects_of(self._fs).head, full)
                return bool(entry["type"] == "file")
            except FileNotFoundError:
                return False

    def is_missing_folder(self) -> bool:
        """Return whether the root does not exist, by at most one listing of it.

        In stores without empty folders, it exists together with the first object below it. Raises
        StorageError.
        """
        if self._fs is None:
            return not os.path.lexists(self.uri)
        with translated(self.display, self._secrets):
            try:
                entries = objects_of(self._fs).entries(self.object_uri, self._retries)
                return self.has_no_empty_folders and next(iter(entries), None) is None
            except FileNotFoundError:
                return True

    def list(self, folder: str) -> _Files:
        """Return name and size of the files in `folder`, unordered; empty if it does not exist.

        Files in its sub-folders are not listed. "" is the root. Raises StorageError.
        """
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_files(self._folder(folder))
        return [
            (_base(entry["name"]), entry["size"] or 0) for entry in self._entries(folder, "file")
        ]

    def list_names(self, folder: str) -> _Names:
        """Return the names of the files in `folder`, unordered; empty if it does not exist.

        Raises StorageError.
        """
        return self._names(folder, "file")

    def list_tagged(self, folder: str) -> _TaggedFiles:
        """Return the files in `folder` with their tags, unordered; empty if it does not exist.

        Files of local disks have no tags. Raises StorageError.
        """
        if self._fs is None:
            return [Tagged(name, None) for name in self.list_names(folder)]
        return [
            Tagged(_base(entry["name"]), tag_of(entry)) for entry in self._entries(folder, "file")
        ]

    def list_folders(self, folder: str) -> _Names:
        """Return the names of the folders in `folder`, unordered; empty if it does not exist.

        Raises StorageError.
        """
        return self._names(folder, "directory")

    def _names(self, folder: str, entry_type: str) -> _Names:
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_names(self._folder(folder), folders=entry_type == "directory")
        return [_base(entry["name"]) for entry in self._entries(folder, entry_type)]

    def list_first(self, folder: str, limit: int, after: str = "") -> _TaggedFiles:
        """Return the first files in `folder`, ordered by the bytes of names, in one request.

        Only for stores that list in this order.

        - `limit`: Most files to return; up to 1,000.
        - `after`: Only files whose names are after this one.

        Raises StorageError.
        """
        objects = objects_of(self._fs)
        with translated(self.name(folder), self._secrets):
            return objects.first_files(self._folder(folder), limit, after, self._retries)

    def list_tree(self, folder: str) -> _Infos:
        """Return the files below `folder` at any depth, unordered; empty if it does not exist.

        Raises StorageError.
        """
        check_relative(folder)
        with translated(self.name(folder), self._secrets):
            if self._fs is None:
                return list(local_tree(self.uri, folder))
            return list(remote_tree(self._fs, self.object_uri, folder, self._retries))

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds since 1970 by the clock of the store.

        None if the store does not report it. Raises MissingFileError, StorageError.
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return os.stat(full).st_mtime
            return modified(self._retries.call(objects_of(self._fs).head, full))

    def _full(self, path: str) -> str:
        check_relative(path)
        if self._fs is None:
            return os.path.join(self.uri, *path.split("/"))
        return join(self.object_uri, path)

    def _folder(self, folder: str) -> str:
        return self._full(folder) if folder else self.object_uri

    def _entries(self, folder: str, entry_type: str) -> _Entries:
        full = self._folder(folder)
        try:
            with translated(self.name(folder), self._secrets):
                listed = list(objects_of(self._fs).entries(full, self._retries))
        except MissingFileError:
            return []
        # Some object stores list the marker of the folder itself, or a file of the same name.
        prefix = _base(full)
        return [
            entry
            for entry in listed
            if entry["type"] == entry_type
            and _base(entry["name"])
            and entry["name"].rstrip("/").split("/")[-2:-1] == [prefix]
        ]

    def copy(self, source: str, target: str) -> None:
        """Copy a small file atomically, replacing an existing target.

        Raises StorageError. Raises MissingFileError: `source` does not exist.
        """
        if self._fs is None:
            self.write_bytes(target, self.read_bytes(source))
            return
        full = self._full(source)
        with translated(self.name(source), self._secrets):
            self._retries.call(self._fs.cp_file, full, self._full(target))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing files are ignored.

        Raises StorageError: some file could not be deleted. The others are deleted.
        """
        for error in self.delete_each(list(paths)):
            if error is not None:
                raise error

    def delete_each(self, paths: Sequence[str], at_once: int = AT_ONCE) -> _Errors:
        """Delete files; return for each the error of the store, or None if it does not exist.

        - `at_once`: Most requests at the same time. Where the store can, each deletes many files.
        """
        outcomes: dict[str, StorageError | None] = {}
        most = self.deleted_at_once
        if most > 1 and len(paths) > 1:
            batches = [paths[start : start + most] for start in range(0, len(paths), most)]
            together = min(at_once, _BATCHES_AT_ONCE)
            for known in read_all(self._delete_batch, batches, local=False, at_once=together):
                outcomes |= known
        # What the store has not deleted together gets an answer of its own.
        left = [path for path in paths if path not in outcomes]
        errors = read_all(self._delete, left, local=self.is_local, at_once=at_once)
        outcomes |= zip(left, errors, strict=True)
        return [outcomes[path] for path in paths]

    @property
    def deleted_at_once(self) -> int:
        """Most files that one request deletes."""
        return 1 if self._fs is None else objects_of(self._fs).most_deleted()

    def _delete_batch(self, paths: Sequence[str]) -> dict[str, StorageError | None]:
        """Delete files by one request; return the outcome of those of which it is known."""
        whole = {self._full(path): path for path in paths}
        try:
            with translated(f"{self.display}: {len(paths)} files", self._secrets):
                gone = objects_of(self._fs).delete_many(list(whole), self._retries)
        except StorageError as error:
            return dict.fromkeys(paths, error)
        return {whole[path]: None for path in gone}

    def _delete(self, path: str) -> StorageError | None:
        """Delete a file; return the error of the store."""
        full = self._full(path)
        try:
            with translated(self.name(path), self._secrets):
                if self._fs is None:
                    os.unlink(full)
                else:
                    self._retries.call(self._fs.rm_file, full)
        except MissingFileError:
            pass
        except StorageError as error:
            return error
        return None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a durable file atomically; return False and change nothing if it exists.

        Raises StorageError: the store failed, and the file may exist or not; or the store has no
        atomic creation.
        """
        return self._create(self._commit_handler(), path, data)

    def _create(self, handler: CommitHandler, path: str, data: bytes) -> bool:
        full = self._full(path)
        self.io_counts.add_write(len(data))
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
        """Return the content of a file of up to `size` bytes; None if it does not exist.

        Any longer text stands for the content of a longer file.
        """
        try:
            return self.read_bytes(path, size)
        except MissingFileError:
            return None
        except CorruptFileError:
            return bytes(size + 1)

    def check_put_if_absent(self) -> None:
        """Refuse a store without atomic creation, before anything is written to it.

        Raises StorageError.
        """
        if self.manifest_store is None:
            self._commit_handler()

    def check_new_table(self) -> None:
        """Refuse to create a table in a cloud at a path that other clients cannot open.

        Raises InvalidInputError.
        """
        path = self.object_uri.partition("://")[2].partition("/")[2]
        if family_of(self.scheme) is not None and path and "" in path.split("/"):
            raise InvalidInputError(
                f"{self.display}: a table cannot be created at a path with '//', which other "
                "clients cannot open; write one slash"
            )

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
                # Packages of stores validate some options only when they connect.
                with translated(self.display, self._secrets):
                    check_conditional_put(
                        *place, self.display, put, bare, self.write_bytes, self._delete_one
                    )
            self._handler = handler
        return self._handler

    def _locked(self, lock: object) -> CommitHandler:
        from lance_spark.storage.commit import LockedPut
        from lance_spark.storage.commit import load_lock as load

        try:
            inner = handler_for(self.scheme, self._fs, self._secrets, self._retries)
        except StorageError:
            inner = None
        return LockedPut(self._fs, load(lock), inner, self._secrets)

    def _delete_one(self, path: str) -> None:
        self.delete([path])


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
