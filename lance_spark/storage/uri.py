"""Where a table is: its URI, taken apart.

- A path without a scheme, or with `file:` or `local:`, is on a local disk; it becomes absolute. `%41` is decoded after
  `file:`, as every URI reader does, and left alone in plain paths.
- `scheme://...` belongs to the fsspec file system of that scheme.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from lance_spark.errors import InvalidInputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_FILE = re.compile(r"(?:file|local):(?://(?:localhost)?(?=/)|(?=/)|//)", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True, slots=True)
class Location:
    """A root that paths are relative to.

    Attributes
    ----------
    scheme : str
        "file" for local disks, else the URI's scheme in lower case.
    uri : str
        Absolute path on a local disk, else the URI; no slash at the end.
    """

    scheme: str
    uri: str

    @property
    def is_local(self) -> bool:
        """Whether it is on a local disk."""
        return self.scheme == "file"

    @property
    def display(self) -> str:
        """The URI without what could be a secret: user, password and query."""
        if self.is_local:
            return self.uri
        shown = _USER_INFO.sub("***@", self.uri)
        return shown.split("?", 1)[0] + "?***" if "?" in shown else shown


def parse_uri(uri: str | os.PathLike[str]) -> Location:
    """Take a table's URI apart.

    Raises
    ------
    InvalidInputError
        The URI is empty, or has a NUL byte.
    """
    text = os.fspath(uri)
    if not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is no path of a table: give a path or a URI")
    local = _FILE.match(text)
    if local:
        return _local(unquote(text[local.end() :]))
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _local(os.path.expanduser(text))
    rest = text[scheme.end() :].rstrip("/")
    return Location(scheme[1].lower(), f"{scheme[1].lower()}://{rest}")


def _local(path: str) -> Location:
    return Location("file", os.path.abspath(path))


def join(*parts: str) -> str:
    """Join parts of a path with slashes; empty parts are left out."""
    return "/".join(part for part in parts if part)


def check_relative(path: str) -> str:
    """Return `path` if it stays below the root that it is relative to.

    Raises
    ------
    InvalidInputError
        The path is empty or absolute, has a scheme, or steps outside by "..".
    """
    steps = path.split("/")
    if (
        not path
        or path.startswith("/")
        or "\0" in path
        or "\\" in path
        or "://" in path
        or any(step in ("", ".", "..") for step in steps)
    ):
        raise InvalidInputError(f"{path!r} is no path below the table's root")
    return path
