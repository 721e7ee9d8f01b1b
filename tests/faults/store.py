"""A file system of fsspec over objects in memory. Each call can fail."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from tests.faults.faults import ClientError, Faults
from tests.faults.objects import Object, Objects, PartError
from tests.faults.schedule import Schedule
from tests.faults.threads import Pool

#: Root of the table of a schedule.
ROOT = "bucket/table/"


class Place:
    """The store below the file systems of this process: fsspec creates them, and does not know
    schedules.
    """

    objects: Objects
    faults: Faults
    schedule: Schedule
    #: Whether the store deletes one object by a request.
    deletes_singly: bool


class FaultyFileSystem(AbstractFileSystem):
    """Lists in no order, as Google Cloud Storage does here; conditional puts by `mode="create"`."""

    protocol = "gs"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(part) for part in path]
        return path.split("://", 1)[-1].rstrip("/")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        name, data = self._strip_protocol(path), bytes(value)
        create = mode == "create"
        put = _put_of(name, data, create=create)
        Place.faults.call("create" if create else "put", name, put)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        name = self._strip_protocol(path)
        data = Place.faults.call("get", name, lambda: Place.objects.get(name).data[start:end])
        if start and not data:
            raise OSError(22, "The requested range is not satisfiable")
        return data

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        return Place.faults.call("head", name, lambda: _info(name))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        name = self._strip_protocol(path)
        entries = Place.faults.call("list", name, lambda: _listed(name))
        return entries if detail else [entry["name"] for entry in entries]

    def find(self, path: str, detail: bool = False, **_: Any) -> Any:
        name = self._strip_protocol(path)
        entries = Place.faults.call(
            "list",
            name,
            lambda: {name_below: _file(name_below) for name_below in Place.objects.below(name)},
        )
        return entries if detail else list(entries)

    def rm_file(self, path: str, **_: Any) -> None:
        name = self._strip_protocol(path)
        Place.faults.call("delete", name, lambda: Place.objects.delete(name))

    _rm = rm_file

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        Place.faults.call("copy", target, lambda: _copy(source, target))

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        assert mode == "wb"
        return Upload(self._strip_protocol(path))

    def created(self, path: str) -> datetime.datetime:
        return self.modified(path)

    def modified(self, path: str) -> datetime.datetime:
        stored = Place.objects.get(self._strip_protocol(path))
        return datetime.datetime.fromtimestamp(stored.modified, datetime.UTC)


class FaultyS3(FaultyFileSystem):
    """Lists in the order of names, by the call of s3fs."""

    protocol = "s3"
    async_impl = True
    #: Event loop of coroutines, which are threads of the schedule.
    loop = None
    s3_additional_kwargs = None

    @property
    def deletes_singly(self) -> bool:
        """As of a server that does not serve deletions of many objects."""
        return Place.deletes_singly

    @deletes_singly.setter
    def deletes_singly(self, _: bool) -> None:
        pass

    async def set_session(self) -> None:
        raise AssertionError("schedules have no server to connect to")

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = self._strip_protocol(path).partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]:
        checked_arguments: dict[str, Any] = arguments
        answered: dict[str, Any] = getattr(self, f"_{method}")(**checked_arguments)
        return answered

    async def _call_s3(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self.call_s3(method, **arguments)

    def cat_ranges(
        self, paths: list[str], starts: list[int], ends: list[int], batch_size: int, **_: Any
    ) -> list[Any]:
        """Answer several reads that run at the same time, each by its bytes or its error."""

        def fetched(path: str, start: int, end: int) -> Any:
            try:
                return self.cat_file(path, start, end)
            except Exception as error:
                return error

        with Pool(batch_size) as pool:
            return list(pool.map(fetched, paths, starts, ends))

    def _list_objects_v2(
        self,
        Bucket: str,
        Prefix: str,
        MaxKeys: int = 1000,
        Delimiter: str = "",
        StartAfter: str = "",
        ContinuationToken: str = "",
    ) -> dict[str, Any]:
        def listed() -> dict[str, Any]:
            after = ContinuationToken or StartAfter
            entries: dict[str, dict[str, Any] | None] = {}
            for path in sorted(Place.objects.now):
                key = path.removeprefix(f"{Bucket}/")
                if not key.startswith(Prefix):
                    continue
                inner = key[len(Prefix) :].find(Delimiter) if Delimiter else -1
                name = key[: len(Prefix) + inner + 1] if inner >= 0 else key
                if name > after and name not in entries:
                    entry = _file(path)
                    facts = {"Size": entry["size"], "LastModified": entry["LastModified"]}
                    entries[name] = {"Key": key, **facts} if inner < 0 else None
            names = list(entries)[:MaxKeys]
            answer: dict[str, Any] = {
                "Contents": [content for name in names if (content := entries[name])],
                "CommonPrefixes": [{"Prefix": name} for name in names if not entries[name]],
            }
            if len(entries) > len(names):
                answer |= {"IsTruncated": True, "NextContinuationToken": names[-1]}
            return answer

        return Place.faults.call("list", Prefix, listed)

    def _head_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        path = f"{Bucket}/{Key}"
        stored = Place.faults.call("head", path, lambda: Place.objects.get(path))
        entry = _facts(stored)
        return {"ContentLength": entry["size"], "LastModified": entry["LastModified"]}

    def _create_multipart_upload(self, Bucket: str, Key: str, **_: Any) -> dict[str, Any]:
        path = f"{Bucket}/{Key}"
        actor = Place.schedule.running
        if actor is not None:
            actor.begun.append(path)
        return Place.faults.call("begin", path, lambda: {"UploadId": Place.objects.begin(path)})

    def _upload_part(
        self, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: Any, **_: Any
    ) -> dict[str, Any]:
        path, data = f"{Bucket}/{Key}", bytes(Body)

        def put() -> dict[str, Any]:
            return {"ETag": Place.objects.put_part(UploadId, PartNumber, data)}

        return Place.faults.call("part", path, put)

    def _complete_multipart_upload(
        self, Bucket: str, Key: str, UploadId: str, MultipartUpload: Any, **_: Any
    ) -> dict[str, Any]:
        path = f"{Bucket}/{Key}"
        listed = [(part["PartNumber"], part["ETag"]) for part in MultipartUpload["Parts"]]
        put_of = _putter(path)

        def put() -> dict[str, Any]:
            try:
                put_of(Place.objects.complete(UploadId, listed))
            except PartError as error:
                raise ClientError(str(error)) from None
            return {}

        return Place.faults.call("complete", path, put)

    def _abort_multipart_upload(self, Bucket: str, Key: str, UploadId: str) -> dict[str, Any]:
        def drop() -> dict[str, Any]:
            Place.objects.abort(UploadId)
            return {}

        return Place.faults.call("abort", f"{Bucket}/{Key}", drop)

    def _list_multipart_uploads(self, Bucket: str, Prefix: str) -> dict[str, Any]:
        def listed() -> dict[str, Any]:
            uploads_found = Place.objects.uploads(f"{Bucket}/{Prefix}")
            keys = [
                upload.removeprefix(f"{Bucket}/").rpartition("#")[0] for upload in uploads_found
            ]
            uploads = zip(keys, uploads_found, strict=True)
            return {"Uploads": [{"Key": key, "UploadId": upload} for key, upload in uploads]}

        return Place.faults.call("uploads", f"{Bucket}/{Prefix}", listed)

    def _delete_objects(
        self, Bucket: str, Delete: dict[str, Any], **_: Any
    ) -> dict[str, list[dict[str, str]]]:
        keys = [entry["Key"] for entry in Delete["Objects"]]

        def deleted() -> dict[str, list[dict[str, str]]]:
            gone = []
            for key in keys:
                with suppress(FileNotFoundError):
                    Place.objects.delete(f"{Bucket}/{key}")
                gone.append({"Key": key})
            return {"Deleted": gone}

        return Place.faults.call("delete", " ".join(f"{Bucket}/{key}" for key in keys), deleted)

    def _put_object(
        self, Bucket: str, Key: str, Body: Any, IfNoneMatch: str = "", **_: Any
    ) -> dict[str, Any]:
        self.pipe_file(f"{Bucket}/{Key}", Body, "create" if IfNoneMatch else "overwrite")
        return {}


class Upload:
    """A file that exists once it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._parts: list[bytes] = []
        self.closed = False
        Place.faults.call("begin", path, lambda: None)

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        path, data = self._path, b"".join(self._parts)
        Place.faults.call("finish", path, _put_of(path, data))
        self.closed = True

    def discard(self) -> None:
        self._parts.clear()


def _putter(path: str, *, create: bool = False) -> Callable[[bytes], None]:
    actor = Place.schedule.running
    # The actor of the operation that made the request. A late effect may run while another
    # operation runs.
    created = [] if actor is None else actor.created

    def put(data: bytes) -> None:
        Place.objects.put(path, data, Place.schedule.now, create=create)
        created.append(path.removeprefix(ROOT))

    return put


def _put_of(path: str, data: bytes, *, create: bool = False) -> Callable[[], None]:
    put = _putter(path, create=create)
    return lambda: put(data)


def _copy(source: str, target: str) -> None:
    _put_of(target, Place.objects.get(source).data)()


def _file(path: str) -> dict[str, Any]:
    return {"name": path, "type": "file", **_facts(Place.objects.now[path])}


def _facts(stored: Object) -> dict[str, Any]:
    modified = datetime.datetime.fromtimestamp(stored.modified, datetime.UTC)
    return {"size": len(stored.data), "LastModified": modified}


def _info(path: str) -> dict[str, Any]:
    if path in Place.objects.now:
        return _file(path)
    if Place.objects.below(path):
        return {"name": path, "size": 0, "type": "directory"}
    raise FileNotFoundError(path)


def _listed(folder: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    folders: set[str] = set()
    start = len(folder) + 1
    for path in Place.objects.below(folder):
        name, slash, _ = path[start:].partition("/")
        if not slash:
            entries.append(_file(path))
        elif name not in folders:
            folders.add(name)
            entries.append({"name": f"{folder}/{name}", "size": 0, "type": "directory"})
    if not entries:
        raise FileNotFoundError(folder)
    return entries


@contextmanager
def registered() -> Iterator[None]:
    """Register these file systems for the schemes s3 and gs."""
    for file_system in (FaultyS3, FaultyFileSystem):
        fsspec.register_implementation(file_system.protocol, file_system, clobber=True)
    try:
        yield
    finally:
        for file_system in (FaultyS3, FaultyFileSystem):
            _registry.pop(file_system.protocol, None)
