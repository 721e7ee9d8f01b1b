"""Object stores by obstore, in place of the packages of fsspec.

obstore is the library of the Lance clients in Rust (`object_store`), for Python. A request takes a
fifth of the processor time that s3fs needs. The storage option `file_system` chooses it.

`ObstoreFileSystem` is a file system of fsspec. The one that comes with obstore
(`obstore.fsspec.FsspecStore`) does not create an object only if it is absent, merges ranges up to
1 MiB apart, and lists a folder where an object is missing.

- obstore sends each request once, and `retry` repeats it. obstore repeats only the requests of an
  upload in parts, as often as `retry` would. It drops the header `Retry-After`.
- Errors have the status and the code of the answer where those of botocore have them.
- `first_files` receives a whole page of 1,000 names, as obstore cannot ask for fewer.
- The parts of an upload have one size, 10 MiB by default, so that 10,000 hold 100 GB.
- The threads of obstore do not survive a fork, and it cannot start new ones. So the fork of a
  process that has used obstore uses the package of fsspec.
"""

from __future__ import annotations

import datetime
import os
import queue
import re
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import obstore
from fsspec.asyn import AsyncFileSystem
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from lance_spark._forks import after_fork
from lance_spark.errors import StorageError
from lance_spark.storage.errors import translated
from lance_spark.storage.kept_ranges import Tagged, tag_of
from lance_spark.storage.multipart import INITIAL_UPLOAD_SIZE, PartSizes
from lance_spark.storage.objects import DIRECTORY_BUCKETS, Entry, OwnOutput
from lance_spark.storage.options import OWN, ObstoreConfig, config_of
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.retry import Retries, is_transient
from lance_spark.storage.s3 import MOST_DELETED, is_bulk_refused, is_text_of_xml
from lance_spark.storage.uri import Location

_CLASSES = {"s3": S3Store, "google": GCSStore, "azure": AzureStore}
_PAGE = 1000
_PART = 10 * 1024 * 1024
_MOST_FILE_SYSTEMS = 64
#: obstore asks for credentials again before they expire, at most ten times in a second.
_LIFE = datetime.timedelta(seconds=1)
_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_CERTIFICATE = re.compile(r"nvalidCertificate\(\s*(\w+)")
_DEBUG = "\n\nDebug source:"
#: The name of the class, which no module exports.
_PANIC = "PanicException"
_BEYOND_END = 416
_CONFLICT, _EXISTS, _MISSING, _DENIED = 409, 412, 404, (401, 403)
#: The server that has the credentials of a machine in the cloud.
_METADATA_SERVER = "169.254.169.254"


class _OpenFileSystems:
    """The file systems of this process, and whether obstore has started its threads here."""

    lock = threading.Lock()
    file_systems: ClassVar[OrderedDict[tuple[str, ...], ObstoreFileSystem]] = OrderedDict()
    is_started = False
    is_unusable = False


@after_fork
def _forked() -> None:
    _OpenFileSystems.lock = threading.Lock()
    _OpenFileSystems.is_unusable = _OpenFileSystems.is_started
    _OpenFileSystems.file_systems.clear()


def is_usable() -> bool:
    """Return whether this process can use obstore: it is no fork of one that has used it."""
    return not _OpenFileSystems.is_unusable


def connect(location: Location, arguments: Mapping[str, Any]) -> ObstoreFileSystem:
    """Return the file system of a location for arguments of the package of fsspec.

    Stores with the same arguments share one, unless their credentials expire.

    Raises InvalidOptionError.
    """
    config = config_of(location.scheme, arguments)
    key = (location.scheme, *sorted(f"{name}={value!r}" for name, value in arguments.items()))
    if arguments.get("skip_instance_cache"):
        return ObstoreFileSystem(config)
    with _OpenFileSystems.lock:
        fs = _OpenFileSystems.file_systems.get(key)
        if fs is None:
            fs = _OpenFileSystems.file_systems[key] = ObstoreFileSystem(config)
        _OpenFileSystems.file_systems.move_to_end(key)
        while len(_OpenFileSystems.file_systems) > _MOST_FILE_SYSTEMS:
            _OpenFileSystems.file_systems.popitem(last=False)
    return fs


class ObstoreFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """The buckets of one server.

    - `server`: URL of the server.
    - `family`: "s3", "google" or "azure".
    """

    protocol = "obstore"
    cachable = False

    def __init__(self, config: ObstoreConfig) -> None:
        super().__init__()
        self.server = config.server
        self.family = config.family
        self.lance_objects = ObstoreObjects(self)
        self._config = config
        self._process = os.getpid()
        self._stores: dict[tuple[str, Retries | None, bool], Any] = {}
        self._renewed: RenewedArguments | None = None
        self._credentials: Mapping[str, Any] | None = None

    def renew(self, arguments: RenewedArguments) -> None:
        """Send each request with the newest credentials."""
        self._renewed = arguments

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        bucket, slash, key = path.partition("://")[2].partition("/")
        if "://" not in path:
            bucket, slash, key = path.partition("/")
        # `container@account.dfs.core.windows.net` of Azure.
        return f"{bucket.partition('@')[0]}{slash}{key}".rstrip("/")

    def split(self, path: str) -> tuple[str, str]:
        """Return bucket and key."""
        bucket, _, key = self._strip_protocol(path).partition("/")
        return bucket, key

    def store(self, bucket: str, retries: Retries | None = None, *, bulk: bool = False) -> Any:
        """Return obstore's store of a bucket.

        - `retries`: How often obstore repeats requests; by default never.
        - `bulk`: Whether one request deletes many objects of S3.
        """
        if self._process != os.getpid():
            raise RuntimeError("a file system of obstore cannot be used after a fork")
        if self._renewed is not None:
            # Its errors say more than those of a function that obstore calls.
            credentials = self._renewed()
            if credentials is not self._credentials:
                # obstore would use the old ones for another tenth of a second.
                self._credentials = credentials
                self._stores = {}
        store = self._stores.get((bucket, retries, bulk))
        if store is None:
            store = self._stores[bucket, retries, bulk] = self._new_store(bucket, retries, bulk)
        return store

    def _new_store(self, bucket: str, retries: Retries | None, bulk: bool) -> Any:
        config = self._config
        _OpenFileSystems.is_started = True
        settings = dict(config.settings)
        if config.family == "s3":
            settings["disable_bulk_delete"] = not bulk
        if config.bucket_in_host:
            scheme, _, host = config.server.partition("://")
            settings["endpoint"] = f"{scheme}://{bucket}.{host}"
            settings["aws_endpoint_url_s3"] = settings["endpoint"]
        provider = self._provider(settings)
        if provider is not None:
            settings["credential_provider"] = provider
        seconds = 0.0 if retries is None else retries.timeout
        return _CLASSES[config.family](
            bucket,
            client_options=config.client,
            retry_config={
                "max_retries": 0 if retries is None else retries.max_retries,
                "retry_timeout": datetime.timedelta(seconds=seconds),
            },
            **settings,
        )

    def _provider(self, settings: dict[str, Any]) -> Callable[[], dict[str, Any]] | None:
        config = self._config
        if self._renewed is not None and config.credentials is not None:
            return partial(_newest, self._renewed)
        if config.credentials is not None:
            return lambda: {**(config.credentials or {}), "expires_at": None}
        if config.profile is not None:
            return _of_profile(config.profile, settings)
        return None

    def invalidate_cache(self, path: str | None = None) -> None:
        """Do nothing: there is no cache."""

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> Any:
        """Return the content of an object or a range of it, as an object with a buffer."""
        bucket, key = self.split(path)
        with _errors(path):
            if start is not None and end is not None:
                if end <= start:
                    return b""
                return obstore.get_range(self.store(bucket), key, start=start, end=end)
            return obstore.get(self.store(bucket), key, options=_range(start, end)).bytes()

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> Any:
        bucket, key = self.split(path)
        if self._renewed is not None:
            await self._renewed.of_loop()
        with _errors(path):
            store = self.store(bucket)
            if start is not None and end is not None:
                if end <= start:
                    return b""
                return await obstore.get_range_async(store, key, start=start, end=end)
            answer = await obstore.get_async(store, key, options=_range(start, end))
            return await answer.bytes_async()

    def pipe_file(
        self,
        path: str,
        value: Any,
        mode: str = "overwrite",
        overwrite: bool = True,
        **kwargs: Any,
    ) -> None:
        """Create or replace an object. The arguments are those of s3fs, gcsfs and adlfs.

        With `mode` "create", or without `overwrite`, an existing object is a FileExistsError.
        """
        bucket, key = self.split(path)
        mode = mode if overwrite else "create"
        with _errors(path):
            obstore.put(self.store(bucket), key, value, mode=mode, use_multipart=False)

    async def _pipe_file(
        self,
        path: str,
        value: Any,
        mode: str = "overwrite",
        overwrite: bool = True,
        **kwargs: Any,
    ) -> None:
        bucket, key = self.split(path)
        mode = mode if overwrite else "create"
        with _errors(path):
            await obstore.put_async(self.store(bucket), key, value, mode=mode, use_multipart=False)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return the metadata of an object. Raises FileNotFoundError, also for a folder."""
        bucket, key = self.split(path)
        with _errors(path):
            return _entry(bucket, obstore.head(self.store(bucket), key))

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        bucket, key = self.split(path)
        with _errors(path):
            return _entry(bucket, await obstore.head_async(self.store(bucket), key))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the objects and folders in a folder."""
        bucket, key = self.split(path)
        with _errors(path):
            listed = obstore.list_with_delimiter(self.store(bucket), key or None)
        folders = [
            {"name": f"{bucket}/{prefix}", "size": 0, "type": "directory"}
            for prefix in listed["common_prefixes"]
        ]
        found = folders + [_entry(bucket, meta) for meta in listed["objects"]]
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [entry["name"] for entry in found]

    def tree(self, path: str) -> list[dict[str, Any]]:
        """Return the objects below a folder at any depth."""
        bucket, key = self.split(path)
        with _errors(path):
            listed = obstore.list(self.store(bucket), key or None, chunk_size=_PAGE)
            return [_entry(bucket, meta) for metas in listed for meta in metas]

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        bucket, key = self.split(path)
        with _errors(path):
            obstore.delete(self.store(bucket), key)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        bucket, key = self.split(path)
        with _errors(path):
            await obstore.delete_async(self.store(bucket), key)

    def delete_many(self, bucket: str, keys: list[str]) -> None:
        """Delete up to 1,000 objects of S3 by one request."""
        with _errors(bucket):
            obstore.delete(self.store(bucket, bulk=True), keys)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy an object within its bucket."""
        (source, old), (target, new) = self.split(path1), self.split(path2)
        if source != target:
            raise OSError(f"obstore cannot copy from bucket {source} to bucket {target}")
        with _errors(path1):
            obstore.copy(self.store(source), old, new)


def _range(start: int | None, end: int | None) -> Any:
    if start is None and end is None:
        return None
    if start is not None and start < 0:
        return {"range": {"suffix": -start}}
    return {"range": {"offset": start or 0} if end is None else (start or 0, end)}


def _entry(bucket: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{bucket}/{meta['path']}",
        "size": meta["size"],
        "type": "file",
        "LastModified": meta["last_modified"],
    }


class ObstoreObjects:
    """The requests to stores by obstore; see `objects.Objects`."""

    def __init__(self, fs: ObstoreFileSystem) -> None:
        self._fs = fs
        #: Whether the server may serve deletions of many objects.
        self._bulk = True

    def head(self, path: str) -> Entry:
        return self._fs.info(path)

    def read_start(self, path: str, limit: int | None) -> bytes:
        try:
            data = self._fs.cat_file(path, *(() if limit is None else (0, limit)))
        except OSError as error:
            if getattr(error, "status", None) != _BEYOND_END:
                raise
            # The object is empty: S3 refuses every range of it.
            return b""
        return bytes(data)

    def entries(self, folder: str, retries: Retries, *, deep: bool = False) -> list[Entry]:
        list_all: Callable[[str], Any] = self._fs.tree if deep else self._fs.ls
        found: list[Entry] = retries.call(list_all, folder)
        return found

    def lists_in_order(self, path: str) -> bool:
        # Zonal buckets of Google may not, and obstore does not know which these are.
        bucket = self._fs.split(path)[0]
        return self._fs.family == "s3" and not bucket.endswith(DIRECTORY_BUCKETS)

    def first_files(self, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
        return retries.call(self._first_files, folder, limit, after)

    def _first_files(self, folder: str, limit: int, after: str) -> list[Tagged]:
        bucket, key = self._fs.split(folder)
        prefix = f"{key}/" if key else ""
        files: list[Tagged] = []
        with _errors(folder):
            listed = obstore.list(
                self._fs.store(bucket),
                key or None,
                offset=prefix + after if after else None,
                chunk_size=limit,
            )
            for metas in listed:
                below = [Tagged(meta["path"][len(prefix) :], tag_of(meta)) for meta in metas]
                # The listing also has the files of folders in the folder.
                files += [file for file in below if "/" not in file.name]
                if len(files) >= limit:
                    break
        return files[:limit]

    def most_deleted(self) -> int:
        return MOST_DELETED if self._bulk and self._fs.family == "s3" else 1

    def delete_many(self, paths: Sequence[str], retries: Retries) -> Collection[str]:
        by_key = {self._fs.split(path)[1]: path for path in paths}
        keys = [key for key in by_key if is_text_of_xml(key)]
        if len(keys) < 2:
            return ()
        try:
            retries.call(self._fs.delete_many, self._fs.split(paths[0])[0], keys)
        except Exception as error:
            if is_transient(error):
                raise
            # An answer about one object does not say what became of the others.
            self._bulk = not is_bulk_refused(error)
            return ()
        return [by_key[key] for key in keys]

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput:
        sizes = PartSizes.of({INITIAL_UPLOAD_SIZE: _PART, **_lower(options)}, self._fs)
        return ObstoreOutput, sizes


def _lower(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in options.items()}


class _Aborted(Exception):  # noqa: N818 - no error of a store
    """The writer gives a file up."""


class ObstoreOutput:
    """A new object; see `write.output.OutputFile`.

    A thread hands the parts to obstore, which sends them in parallel, and removes them if the
    upload fails. The writer waits while a further part waits for its turn.

    - `name`: Name of the object in errors.
    - `secrets`: Options whose values no error shows.
    - `replace`: Whether an object can exist already; `abort` leaves it.
    """

    def __init__(
        self,
        fs: ObstoreFileSystem,
        path: str,
        name: str,
        sizes: PartSizes,
        retries: Retries,
        secrets: Mapping[str, object],
        *,
        replace: bool = False,
    ) -> None:
        self.name = name
        self._fs = fs
        self._path = path
        self._size = sizes.first
        self._at_once = sizes.under_way(sizes.first)
        self._most = sizes.first * sizes.max_parts
        self._max_parts = sizes.max_parts
        self._retries = retries
        self._secrets = secrets
        self._replace = replace
        self._written = 0
        self._buffer = bytearray()
        #: Parts for the thread; None ends the upload.
        self._parts: queue.Queue[bytearray | None] = queue.Queue(1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_open = True
        self._is_aborted = False

    def write(self, buffer: Any) -> None:
        assert self._is_open, f"{self.name} is closed"
        view = memoryview(buffer).cast("B")
        start = 0
        while start < len(view):
            if len(self._buffer) == self._size:
                part, self._buffer = self._buffer, bytearray()
                self._hand_over(part)
            step = min(self._size - len(self._buffer), len(view) - start)
            self._buffer += view[start : start + step]
            start += step
        self._written += len(view)

    def tell(self) -> int:
        return self._written

    def close(self) -> None:
        if not self._is_open:
            return
        try:
            if self._thread is None:
                self._put_whole()
            else:
                self._hand_over(self._buffer)
                self._hand_over(None)
                self._thread.join()
                self._raise_error()
        except BaseException:
            self.abort()
            raise
        self._is_open = False
        self._buffer = bytearray()

    def abort(self) -> None:
        if not self._is_open:
            return
        self._is_open, self._is_aborted = False, True
        self._buffer = bytearray()
        if self._thread is not None:
            while self._thread.is_alive():
                # The thread waits for a part.
                with suppress(queue.Full):
                    self._parts.put(None, timeout=0.05)
                self._thread.join(0.05)
        if not self._replace:
            # No version refers to what cannot be removed now: cleanup removes it.
            with suppress(Exception):
                self._retries.call(self._fs.rm_file, self._path)

    def _put_whole(self) -> None:
        with translated(self.name, self._secrets):
            self._retries.call(self._fs.pipe_file, self._path, self._buffer)

    def _hand_over(self, part: bytearray | None) -> None:
        """Give the thread a part, or the end of the file."""
        if self._written > self._most:
            raise StorageError(
                f"{self.name}: the file has more than {self._max_parts} parts of {self._size} "
                f"bytes; set the storage option {INITIAL_UPLOAD_SIZE} to more bytes, or write "
                "smaller files"
            )
        if self._thread is None:
            self._thread = threading.Thread(target=self._upload, name="lance-upload", daemon=True)
            self._thread.start()
        while True:
            self._raise_error()
            with suppress(queue.Full):
                self._parts.put(part, timeout=0.25)
                return

    def _raise_error(self) -> None:
        if self._error is not None:
            with translated(self.name, self._secrets):
                raise self._error

    def _upload(self) -> None:
        try:
            bucket, key = self._fs.split(self._path)
            with _errors(self._path):
                obstore.put(
                    self._fs.store(bucket, self._retries),
                    key,
                    self._each_part(),
                    use_multipart=True,
                    chunk_size=self._size,
                    max_concurrency=self._at_once,
                )
        except BaseException as error:
            if not (self._is_complete(error) or self._is_aborted):
                self._error = error

    def _is_complete(self, error: BaseException) -> bool:
        """Return whether the object has all bytes although the last request failed.

        An earlier request, whose answer was lost, has completed the upload.
        """
        if self._is_aborted or not isinstance(error, FileNotFoundError):
            return False
        with suppress(Exception):
            entry = self._retries.call(self._fs.info, self._path)
            return bool(entry["size"] == self._written)
        return False

    def _each_part(self) -> Iterator[bytearray]:
        while True:
            part = self._parts.get()
            if self._is_aborted:
                raise _Aborted
            if part is None:
                return
            yield part


def _newest(arguments: RenewedArguments) -> dict[str, Any]:
    given = {name: value for name, value in arguments().items() if name not in OWN}
    credentials = config_of(arguments.scheme, given).credentials
    return {**(credentials or {}), "expires_at": datetime.datetime.now(datetime.UTC) + _LIFE}


def _of_profile(profile: str, settings: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Return the credentials of a profile of AWS, and set its region."""
    try:
        from botocore.session import Session
    except ImportError as error:
        raise StorageError(
            "profiles of AWS need the package botocore: pip install botocore, or give "
            "aws_access_key_id and aws_secret_access_key"
        ) from error
    session = Session(profile=profile or None)
    region = session.get_config_variable("region")
    if region:
        settings.setdefault("region", region)
    credentials = session.get_credentials()
    if credentials is None:
        raise StorageError("no credentials of AWS were found: give aws_access_key_id, or a role")

    def current() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            # botocore renews them when they are about to expire.
            "expires_at": datetime.datetime.now(datetime.UTC) + _LIFE,
        }

    return current


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Translate the errors of obstore to those of Python, with the status of the answer."""
    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        raise _translated(error, path) from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        # It is no Exception, and a task of Spark would end without an answer.
        raise OSError(f"obstore failed: {error}") from None


def _translated(error: Exception, path: str) -> Exception:
    text = str(error)
    answer, _, debug = text.partition(_DEBUG)
    if _METADATA_SERVER in answer:
        return StorageError(
            f"{path}: no credentials were found in the storage options, in the environment or on "
            "this machine; give them as storage options"
        )
    found = _STATUS.search(answer)
    if found is None:
        return _without_answer(error, path, answer.strip(), debug)
    status, body = int(found[1]), answer[found.end() :]
    code = code_match[1] if (code_match := _CODE.search(body)) else ""
    message = message_match[1] if (message_match := _MESSAGE.search(body)) else ""
    if status == _BEYOND_END:
        code = code or "InvalidRange"
    reason = f"the store answers {status}" + "".join(
        f"{sign}{part}" for sign, part in ((" ", code), (": ", message)) if part
    )
    new = _class_of(error, status, code)(reason)
    new.status = status  # type: ignore[attr-defined]
    # As errors of botocore have them.
    new.response = {  # type: ignore[attr-defined]
        "Error": {"Code": code or str(status), "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }
    return new


def _class_of(error: Exception, status: int, code: str) -> type[OSError]:
    if status == _MISSING:
        return FileNotFoundError
    if status in _DENIED:
        return PermissionError
    if status == _EXISTS:
        return FileExistsError
    if isinstance(error, exceptions.AlreadyExistsError):
        # On S3, 409 means that another request for the object is being served: try again. On Azure
        # it means that the blob exists.
        is_conflict = status == _CONFLICT and not code.endswith("AlreadyExists")
        return ConnectionError if is_conflict else FileExistsError
    return OSError


def _without_answer(error: Exception, path: str, text: str, debug: str) -> Exception:
    """Return the error of a request that got no answer, or one that cannot be understood."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(path)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return PermissionError(text)
    if "ertificate" in debug:
        why = why_match[1] if (why_match := _CERTIFICATE.search(debug)) else "not valid"
        return ssl.SSLError(1, f"{text}: the certificate of the server is not accepted ({why})")
    if "kind: Builder" in debug:
        return OSError(text)
    if "kind: Timeout" in debug or "TimedOut" in debug:
        return TimeoutError(text)
    if "HttpError" in debug or "HTTP error" in text:
        return ConnectionError(text)
    return OSError(text)
