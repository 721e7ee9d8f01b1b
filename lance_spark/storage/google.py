"""What Google Cloud Storage is asked for without the help that gcsfs gives."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lance_spark.storage.retry import Retries


def is_google(fs: Any) -> bool:
    """Tell whether a file system is that of gcsfs."""
    return hasattr(fs, "_set_session") and hasattr(fs, "_location")


def is_zonal(fs: Any, path: str) -> bool:
    """Tell whether the bucket of a path is one that gcsfs reads and writes by another protocol than HTTP."""
    return hasattr(fs, "_is_zonal_bucket") and _is_zonal_bucket(fs, fs.split_path(path)[0])


@lru_cache(maxsize=64)
def _is_zonal_bucket(fs: Any, bucket: str) -> bool:
    # gcsfs asks Google each time if it was not allowed to know.
    from fsspec.asyn import sync

    return bool(sync(fs.loop, fs._is_zonal_bucket, bucket))


def names_in_order(fs: Any, folder: str, limit: int, after: str, retries: Retries) -> list[str]:
    """Return the names of the first objects right below a folder, by one request as a rule.

    Parameters
    ----------
    fs : gcsfs file system
    folder : str
        Its URI.
    limit : int
        Names at most, up to 1,000.
    after : str
        Only names after this one, in the order of their bytes.
    retries : Retries
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    asked: dict[str, Any] = {
        "prefix": prefix,
        "delimiter": "/",
        "fields": "nextPageToken,items(name)",
    }
    if after:
        # From that name on, which is passed over below.
        asked["startOffset"] = prefix + after
    names: list[str] = []
    while True:
        asked["maxResults"] = limit - len(names) + bool(after)
        page = retries.call(fs.call, "GET", "b/{}/o", bucket, json_out=True, **asked)
        found = (entry["name"][len(prefix) :] for entry in page.get("items", ()))
        names += [name for name in found if name.encode() > after.encode()]
        # A page can have fewer names than asked for, even none, though there are more.
        if len(names) >= limit or "nextPageToken" not in page:
            return names[:limit]
        asked["pageToken"] = page["nextPageToken"]
