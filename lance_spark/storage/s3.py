"""What S3 is asked for without the help that s3fs gives: each request is sent once, and is seen to be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lance_spark.storage.retry import Retries

#: The most that one listing answers.
_PAGE = 1000


def is_s3(fs: Any) -> bool:
    """Tell whether a file system is that of s3fs."""
    return hasattr(fs, "call_s3")


def single_tries(arguments: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Return the arguments of s3fs by which botocore sends each request once, over so many connections at the same time."""
    config = {**(arguments.get("config_kwargs") or {})}
    config.setdefault("retries", {"max_attempts": 0})
    # One more than there are reads: an upload or a listing does not wait for them.
    config.setdefault("max_pool_connections", max(connections + 1, 10))
    return {**arguments, "config_kwargs": config}


def without_expectation(fs: Any) -> None:
    """Have puts sent at once: aiohttp waits without end for a server that was asked first whether it wants them (`Expect: 100-continue`)."""
    if "set_session" in vars(fs):
        return
    own = fs.set_session

    async def set_session(*args: Any, **kwargs: Any) -> Any:
        from botocore.handlers import add_expect_header

        client = await own(*args, **kwargs)
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    fs.set_session = set_session


def head(fs: Any, path: str) -> dict[str, Any]:
    """Return what S3 tells of an object (`ContentLength`, `LastModified`), by one request whether there is one or not.

    Raises
    ------
    FileNotFoundError
    """
    bucket, key, _ = fs.split_path(path)
    told: dict[str, Any] = fs.call_s3("head_object", Bucket=bucket, Key=key)
    return told


def size_of(fs: Any, path: str) -> int:
    """Return the length of an object. Raises as `head`."""
    return int(head(fs, path)["ContentLength"])


def entries(
    fs: Any, folder: str, retries: Retries, *, deep: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects and the folders right in a folder, each page of the listing asked for until it comes.

    Parameters
    ----------
    fs : s3fs file system
    folder : str
        Its URI.
    retries : Retries
    deep : bool
        The objects in its folders, too, and no folders.

    Yields
    ------
    dict
        `name` with the bucket, `size`, `type` ("file" or "directory"), `LastModified` of objects.
    """
    bucket, key, _ = fs.split_path(folder.rstrip("/"))
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "MaxKeys": _PAGE}
    if not deep:
        asked["Delimiter"] = "/"
    while True:
        answer = retries.call(fs.call_s3, "list_objects_v2", **asked)
        for found in answer.get("CommonPrefixes", ()):
            name = f"{bucket}/{found['Prefix'].rstrip('/')}"
            yield {"name": name, "size": 0, "type": "directory"}
        for found in answer.get("Contents", ()):
            yield {
                "name": f"{bucket}/{found['Key']}",
                "size": found["Size"],
                "type": "file",
                "LastModified": found["LastModified"],
            }
        if not answer.get("IsTruncated"):
            return
        asked["ContinuationToken"] = answer["NextContinuationToken"]
