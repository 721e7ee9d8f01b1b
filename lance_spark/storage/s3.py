"""Requests to S3 past the caches and retries of s3fs: each request is sent exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lance_spark.storage.retry import Retries

#: Most entries of one page of a listing.
_PAGE = 1000


def is_s3(fs: Any) -> bool:
    """Tell whether a file system is from s3fs."""
    return hasattr(fs, "call_s3")


def single_tries(arguments: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Return arguments of s3fs with which botocore sends each request once, over `connections`."""
    config = {**(arguments.get("config_kwargs") or {})}
    config.setdefault("retries", {"max_attempts": 0})
    # One connection more than parallel reads, so that an upload or a listing does not wait.
    config.setdefault("max_pool_connections", max(connections + 1, 10))
    return {**arguments, "config_kwargs": config}


def without_expectation(fs: Any) -> None:
    """Remove the header `Expect: 100-continue` from puts.

    With it, aiohttp waits without a timeout for the answer of the server.
    """
    if "set_session" in vars(fs):
        return
    original = fs.set_session

    async def set_session(*args: Any, **kwargs: Any) -> Any:
        from botocore.handlers import add_expect_header

        client = await original(*args, **kwargs)
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    fs.set_session = set_session


def head(fs: Any, path: str) -> dict[str, Any]:
    """Return the metadata of an object (`ContentLength`, `LastModified`) by one request.

    Raises
    ------
    FileNotFoundError
    """
    bucket, key, _ = fs.split_path(path)
    metadata: dict[str, Any] = fs.call_s3("head_object", Bucket=bucket, Key=key)
    return metadata


def size_of(fs: Any, path: str) -> int:
    """Return the length of an object. Raises as `head`."""
    return int(head(fs, path)["ContentLength"])


def entries(
    fs: Any, folder: str, retries: Retries, *, deep: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects and folders in a folder. Each page of the listing is repeated as needed.

    Parameters
    ----------
    fs : s3fs file system
    folder : str
        URI of the folder.
    retries : Retries
    deep : bool
        Yield objects at any depth instead, and no folders.

    Yields
    ------
    dict
        `name` with the bucket, `size`, `type` ("file" or "directory"), `LastModified` of objects.
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
