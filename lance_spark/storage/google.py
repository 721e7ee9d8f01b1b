"""Requests to Google Cloud Storage that gcsfs has no call for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lance_spark.storage.retry import Retries


def is_google(fs: Any) -> bool:
    """Tell whether a file system is from gcsfs."""
    return hasattr(fs, "_set_session") and hasattr(fs, "_location")


def is_zonal(fs: Any, path: str) -> bool:
    """Tell whether the bucket of a path is zonal: gcsfs does not use HTTP for it."""
    return hasattr(fs, "_is_zonal_bucket") and _is_zonal_bucket(fs, fs.split_path(path)[0])


@lru_cache(maxsize=64)
def _is_zonal_bucket(fs: Any, bucket: str) -> bool:
    # Cached, as gcsfs asks Google again each time if it was not allowed to know.
    from fsspec.asyn import sync

    return bool(sync(fs.loop, fs._is_zonal_bucket, bucket))


def names_in_order(fs: Any, folder: str, limit: int, after: str, retries: Retries) -> list[str]:
    """Return the names of the first objects in a folder, usually by one request.

    Parameters
    ----------
    fs : gcsfs file system
    folder : str
        URI of the folder.
    limit : int
        Most names to return, up to 1,000.
    after : str
        Only names after this one, in the order of their bytes.
    retries : Retries
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    parameters: dict[str, Any] = {
        "prefix": prefix,
        "delimiter": "/",
        "fields": "nextPageToken,items(name)",
    }
    if after:
        # This offset is inclusive; the name itself is skipped below.
        parameters["startOffset"] = prefix + after
    names: list[str] = []
    while True:
        parameters["maxResults"] = limit - len(names) + bool(after)
        page = retries.call(fs.call, "GET", "b/{}/o", bucket, json_out=True, **parameters)
        listed = (entry["name"][len(prefix) :] for entry in page.get("items", ()))
        names += [name for name in listed if name.encode() > after.encode()]
        # A page can have fewer names than the limit, even none, although more names follow.
        if len(names) >= limit or "nextPageToken" not in page:
            return names[:limit]
        parameters["pageToken"] = page["nextPageToken"]
