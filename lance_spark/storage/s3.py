"""S3: requests past the caches and retries of s3fs, each sent exactly once, and uploads.

The parts of an upload are sent in parallel:

| item | size |
| --- | --- |
| a file of up to one part | one put |
| parts 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| each further 100 parts | 5 MiB more, unless the store requires one size: 10,000 hold 2.5 TB |
| parallel parts | `lance_upload_concurrency`, 10 by default; fewer if larger, at least one |

An open file holds at most 11 parts of 5 MiB, or two parts of a very large file, besides the buffers
of connections (`write/multipart`).

An aborted file leaves no parts behind: its upload is aborted after its last part. A killed process
cannot abort; a lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`) removes its parts.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lance_spark._version import __version__
from lance_spark.storage.endpoints import endpoint_of, is_own_endpoint, wants_equal_parts
from lance_spark.storage.errors import ADVICE, is_missing, status_of
from lance_spark.storage.kept_ranges import Tagged, tag_of
from lance_spark.storage.multipart import PartSizes, PartsOutput
from lance_spark.storage.options import CHECKSUM_SETTINGS
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.retry import Retries, is_transient

#: Most entries of one page of a listing.
_PAGE = 1000
#: Statuses of servers that do not know the checksum of a request, or miss it.
_ABOUT_CHECKSUMS = frozenset({400, 401, 403, 411, 501})
_HTTP_DATE = re.compile(r"\w{3}, (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Most objects of one deletion.
MOST_DELETED = 1000
#: Statuses of servers that do not know a deletion of many objects, or its checksum.
_BULK_REFUSED = frozenset({400, 405, 411, 501})
_NOT_IN_XML = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CHECKSUM = re.compile("checksum|content-?md5", re.IGNORECASE)


def is_s3(fs: Any) -> bool:
    """Return whether a file system is from s3fs."""
    return hasattr(fs, "call_s3")


def single_tries(arguments: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Return arguments of s3fs with which botocore sends each request once, over `connections`."""
    config = {**(arguments.get("config_kwargs") or {})}
    config.setdefault("retries", {"max_attempts": 0})
    # botocore makes its own text anew for each request, in an eighth of the processor time.
    config.setdefault("user_agent", f"lance-spark/{__version__}")
    # One connection more than parallel reads, so that an upload or a listing does not wait.
    config.setdefault("max_pool_connections", max(connections + 1, 10))
    return {**arguments, "config_kwargs": config}


def prepare(fs: Any) -> None:
    """Make the client of s3fs, whenever it makes one, as this package and the server need it.

    - Without the header `Expect: 100-continue` on puts: with it, aiohttp waits without a timeout
      for the answer of the server.
    - Without checksums that a server other than Amazon's may not know, unless the user set them.
    - With a faster parser of times: each answer and each entry of a listing has one.
    """
    if "set_session" in vars(fs):
        return
    original = fs.set_session
    # A session that the user gave keeps its parser.
    is_own_session = getattr(fs, "session", fs) is None

    async def set_session(*args: Any, **kwargs: Any) -> Any:
        from botocore.handlers import add_expect_header

        client = await original(*args, **kwargs)
        if not hasattr(client, "is_prepared"):
            client.is_prepared = True
            client.meta.events.unregister("before-call.s3", add_expect_header)
            if is_own_session:
                factory = fs.session.get_component("response_parser_factory")
                factory.set_parser_defaults(timestamp_parser=parse_time)
            if not is_own_endpoint("s3", client.meta.endpoint_url):
                _spare_checksums(client, fs)
                client.meta.events.register("after-call.s3", _advise)
        return client

    fs.set_session = set_session


def parse_time(value: Any) -> datetime:
    """Return a time in an answer of S3: an HTTP date, or an ISO time of a listing."""
    text = str(value)
    match = _HTTP_DATE.fullmatch(text)
    with suppress(ValueError):
        if match is not None:
            day, month, *others = match.groups()
            year, hour, minute, second = map(int, others)
            number = _MONTHS.index(month) + 1
            return datetime(year, number, int(day), hour, minute, second, tzinfo=UTC)
        if text.endswith("Z"):
            return datetime.fromisoformat(text)
    from botocore.utils import parse_timestamp

    parsed: datetime = parse_timestamp(value)
    return parsed


def _spare_checksums(client: Any, fs: Any) -> None:
    """Send and verify checksums only where the protocol requires them.

    By default, botocore adds a checksum to each put, over TLS as a trailer of a body in chunks.
    Many servers refuse that. Without it, the signature covers the bytes of the body, also over TLS.
    """
    given = {**fs.session.get_scoped_config(), **(fs.config_kwargs or {})}
    for name in CHECKSUM_SETTINGS:
        # Releases of botocore before 1.36 have no such setting, and send no such checksums.
        is_set = name in given or f"AWS_{name}".upper() in os.environ
        if not is_set and hasattr(client.meta.config, name):
            setattr(client.meta.config, name, "when_required")
    if getattr(client.meta.config, CHECKSUM_SETTINGS[0], "when_required") == "when_required":
        client.meta.events.register("before-call.s3.DeleteObjects", _md5)


def _advise(http_response: Any, parsed: Any, context: Any, **_: Any) -> None:
    """Add to the error of a server what its checksums may have to do with it."""
    if http_response.status_code not in _ABOUT_CHECKSUMS or "Error" not in parsed:
        return
    name = CHECKSUM_SETTINGS[0]
    if (context.get("checksum") or {}).get("request_algorithm"):
        parsed["Error"][ADVICE] = (
            "the request had a checksum, which this server may not know: set the storage option "
            f"aws_{name} to when_required"
        )
    elif _CHECKSUM.search(str(parsed["Error"].get("Message"))):
        parsed["Error"][ADVICE] = (
            "the request had no checksum, which this server may want: set the storage option "
            f"aws_{name} to when_supported"
        )


def renew(fs: Any, arguments: RenewedArguments) -> None:
    """Sign each request with the newest credentials, also the requests of running uploads."""
    original = fs.set_session

    async def set_session(*args: Any, **kwargs: Any) -> Any:
        client = await original(*args, **kwargs)
        signer = client._request_signer
        # A closed client is made again. Anonymous requests have no credentials.
        if signer._credentials is not None and not hasattr(signer, "is_renewed"):
            signer._credentials, signer.is_renewed = _newest(arguments), True
        return client

    fs.set_session = set_session


def _newest(arguments: RenewedArguments) -> Any:
    """Return credentials as a signer of requests takes them."""
    from aiobotocore.credentials import AioCredentials

    class RenewedCredentials(AioCredentials):  # type: ignore[misc]
        async def get_frozen_credentials(self) -> Any:
            current = await arguments.of_loop()
            names = ("key", "secret", "token")
            return await AioCredentials(*map(current.get, names)).get_frozen_credentials()

    return RenewedCredentials("", "")


def head(fs: Any, path: str) -> dict[str, Any]:
    """Return the metadata of an object (`ContentLength`, `LastModified`) by one request.

    Raises FileNotFoundError.
    """
    bucket, key, _ = fs.split_path(path)
    metadata: dict[str, Any] = fs.call_s3("head_object", Bucket=bucket, Key=key)
    return metadata


def size_of(fs: Any, path: str) -> int:
    """Return the length of an object. Raises as `head`."""
    return int(head(fs, path)["ContentLength"])


def first_files(fs: Any, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
    """Return the first objects in a folder; see `google.first_files`."""
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    start = {"StartAfter": prefix + after} if after else {}
    files: list[Tagged] = []
    most = limit
    while True:
        parameters = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": most, **start}
        answer = retries.call(fs.call_s3, "list_objects_v2", **parameters)
        listed = [
            Tagged(entry["Key"][len(prefix) :], tag_of(entry))
            for entry in answer.get("Contents", ())
        ]
        # Some servers ignore the start. Then the names after it may be many pages away.
        later = [file for file in listed if file.name.encode() > after.encode()]
        files += later
        # A page can have fewer names than the limit, even none, although more names follow.
        if len(files) >= limit or not answer.get("IsTruncated"):
            return files[:limit]
        most = limit - len(files) if len(later) == len(listed) else _PAGE
        start = {"ContinuationToken": answer["NextContinuationToken"]}


def entries(
    fs: Any, folder: str, retries: Retries, *, deep: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects and folders in a folder. Each page of the listing is repeated as needed.

    - `folder`: URI of the folder.
    - `deep`: Yield objects at any depth instead, and no folders.

    Yields `name` with the bucket, `size`, `type` ("file" or "directory"), `LastModified` of
    objects.
    """
    bucket, key, _ = fs.split_path(folder.rstrip("/"))
    parameters: dict[str, Any] = {
        "Bucket": bucket,
        "Prefix": f"{key}/" if key else "",
        "MaxKeys": _PAGE,
    }
    if not deep:
        parameters["Delimiter"] = "/"
    while True:
        answer = retries.call(fs.call_s3, "list_objects_v2", **parameters)
        for prefix in answer.get("CommonPrefixes", ()):
            name = f"{bucket}/{prefix['Prefix'].rstrip('/')}"
            yield {"name": name, "size": 0, "type": "directory"}
        for entry in answer.get("Contents", ()):
            yield {
                "name": f"{bucket}/{entry['Key']}",
                "size": entry["Size"],
                "type": "file",
                "LastModified": entry["LastModified"],
            }
        if not answer.get("IsTruncated"):
            return
        parameters["ContinuationToken"] = answer["NextContinuationToken"]


def most_deleted(fs: Any) -> int:
    """Return how many objects `delete_many` takes; 1 if the server does not serve it."""
    return 1 if getattr(fs, "deletes_singly", False) else MOST_DELETED


def delete_many(fs: Any, paths: Sequence[str], retries: Retries) -> set[str]:
    """Delete objects of one bucket by one request; see `objects.Objects`."""
    bucket = fs.split_path(paths[0])[0]
    keys = {fs.split_path(path)[1]: path for path in paths}
    named = [{"Key": key} for key in keys if is_text_of_xml(key)]
    if len(named) < 2:
        return set()
    try:
        # The answer names each object, so that a server cannot leave one without a word.
        answer = retries.call(
            fs.call_s3, "delete_objects", Bucket=bucket, Delete={"Objects": named, "Quiet": False}
        )
    except Exception as error:
        fs.deletes_singly = is_bulk_refused(error)
        # An error that is raised while another one is handled has its cause, too.
        if is_transient(error) and not fs.deletes_singly:
            raise
        return set()
    gone = {entry.get("Key") for entry in answer.get("Deleted", ())}
    return {path for key, path in keys.items() if key in gone}


def is_text_of_xml(key: str) -> bool:
    """Return whether XML can have a key as a text, unchanged."""
    return _NOT_IN_XML.search(key) is None


def is_bulk_refused(error: Exception) -> bool:
    """Return whether an answer says that the server does not serve deletions of many objects."""
    return status_of(error) in _BULK_REFUSED


def _md5(params: Any, **_: Any) -> None:
    """Give a deletion of many objects the checksum that all servers take.

    botocore sends CRC32, which older servers do not know. The protocol requires one of both.
    """
    checksum = (params.get("context") or {}).get("checksum") or {}
    checksum.pop("request_algorithm", None)
    body = params["body"]
    data = body if isinstance(body, bytes) else str(body).encode()
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def sizes_of(options: Mapping[str, Any], fs: Any) -> PartSizes:
    """Return the sizes of parts. Raises InvalidOptionError."""
    sizes = PartSizes.of(options, fs)
    return replace(sizes, constant=True) if wants_equal_parts(endpoint_of("s3", fs)) else sizes


class S3Output(PartsOutput):
    """A new object of S3; see `PartsOutput`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bucket, key, _ = self._fs.split_path(self._path)
        self._object = {"Bucket": bucket, "Key": key}
        self._upload: Future[str] | None = None
        self._uploads_unknown = False

    def _put_whole(self, data: bytearray) -> None:
        self._retries.call(self._fs.pipe_file, self._path, data, chunksize=len(data) + 1)

    def _begin(self) -> None:
        if self._upload is None:
            self._upload = self._started(
                self._retries.call_async(self._begin_upload, self._is_cancelled)
            )

    async def _begin_upload(self) -> str:
        try:
            begun = await self._fs._call_s3("create_multipart_upload", **self._object)
        except Exception:
            # The upload may exist, under a name that this process does not know.
            self._uploads_unknown = True
            raise
        return str(begun["UploadId"])

    async def _send_part(self, number: int, part: bytearray, last: bool) -> dict[str, Any]:
        assert self._upload is not None
        upload = await asyncio.wrap_future(self._upload)
        arguments = {**self._object, "UploadId": upload, "PartNumber": number, "Body": part}
        answer = await self._retries.call_async(
            lambda: self._fs._call_s3("upload_part", **arguments), self._is_cancelled
        )
        sent = {"PartNumber": number, "ETag": answer["ETag"]}
        algorithm = (self._fs.s3_additional_kwargs or {}).get("ChecksumAlgorithm")
        if algorithm:
            sent[f"Checksum{algorithm}"] = answer[f"Checksum{algorithm}"]
        return sent

    def _complete(self) -> None:
        assert self._upload is not None
        self._parts.sort(key=lambda part: int(part["PartNumber"]))
        arguments = {"UploadId": self._upload.result(), "MultipartUpload": {"Parts": self._parts}}
        tries = self._retries.tries()
        while True:
            try:
                self._fs.call_s3("complete_multipart_upload", **self._object, **arguments)
                return
            except Exception as error:
                failure = error
            if is_missing(failure):
                # An earlier request, whose answer was lost, has completed the upload.
                if self._retries.call(size_of, self._fs, self._path) != self._written:
                    raise failure
                return
            pause = tries.wait_after(failure)
            if pause is None:
                raise failure
            time.sleep(pause)

    def _discard(self) -> None:
        assert self._upload is not None
        with suppress(Exception):
            self._abort_upload(self._upload.result())
        with suppress(Exception):
            self._abort_unknown()

    def _abort_upload(self, upload: str) -> None:
        # A missing upload was aborted by an earlier request.
        with suppress(FileNotFoundError):
            self._retries.call(
                self._fs.call_s3, "abort_multipart_upload", **self._object, UploadId=upload
            )

    def _abort_unknown(self) -> None:
        """Abort the uploads of this object whose names were lost with an answer."""
        if not self._uploads_unknown:
            return
        key = self._object["Key"]
        answer = self._retries.call(
            self._fs.call_s3, "list_multipart_uploads", Bucket=self._object["Bucket"], Prefix=key
        )
        for upload in answer.get("Uploads", ()):
            if upload["Key"] == key:
                self._abort_upload(upload["UploadId"])
