"""Parses the URI of a table.

- A path without a scheme, or with `file:` or `local:`, is on a local disk; it becomes absolute.
  `%41` is decoded after `file:`, as every URI reader does, and left alone in plain paths.
- `scheme://...` belongs to the fsspec file system of that scheme. On S3, Google Cloud Storage and
  Azure `%41` is decoded, as other clients do. In `uri`, and only there, a literal "%", "?" or "#"
  is written `%25`, `%3F` or `%23`.
- `abfss://container@account.dfs.core.windows.net/path` names an account of Azure. The container is
  not a user name, so errors show it.
- `s3+ddb://bucket/path?ddbTableName=name` has its files at `s3://bucket/path` and its manifests in
  a table of DynamoDB. `%41` is decoded, as other clients do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lance_spark.errors import InvalidInputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_FILE = re.compile(r"(?:file|local):(?://(?:localhost)?(?=/)|(?=/)|//)", re.IGNORECASE)
#: The scheme of tables whose manifests are recorded in DynamoDB.
DYNAMODB = "s3+ddb"
_DYNAMODB = re.compile(r"(?P<folder>[^?]+)\?ddbTableName=(?P<table>[^&#?]+)")
#: Schemes whose URIs have escapes.
_ESCAPED = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss"})
#: Characters that other clients take for an escape, a query or a fragment.
_ESCAPES = str.maketrans({"%": "%25", "?": "%3F", "#": "%23"})
_TRAILING_SPACES = re.compile(r" +(?=/|\Z)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Most times that a name is decoded.
_DEEPEST = 4
#: Schemes with a container of Azure before the "@" and the account after it.
_AZURE = frozenset({"az", "azure", "abfs", "abfss"})
_ACCOUNT = re.compile(
    r"[a-z]+://[^/@]+@(?P<account>[^/@.]+)\.(?:dfs|blob)\.(?P<domain>[^/@]+)(?:/.*)?"
)
#: Schemes whose URIs begin with a bucket instead of a server.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs"})
#: Domains of Azure's own servers.
AZURE_DOMAINS = (
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "storage.azure.net",
    "fabric.microsoft.com",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Location:
    """A root that paths are relative to.

    - `scheme`: "file" for local disks, else the URI's scheme in lower case.
    - `uri`: Absolute path on a local disk, else the URI; no slash at the end.
    """

    scheme: str
    uri: str

    @property
    def is_local(self) -> bool:
        """Whether the root is on a local disk."""
        return self.scheme == "file"

    @property
    def display(self) -> str:
        """The URI without possible secrets: user, password and query."""
        if self.is_local:
            return self.uri
        start, remainder = self.uri.split("://", 1)
        host, slash, path = remainder.partition("/")
        user, separator, server = host.rpartition("@")
        if user and self.scheme not in _AZURE:
            host = f"***{separator}{server}"
        shown = f"{start}://{host}{slash}{path}"
        mark = self._query_mark
        return shown.split(mark, 1)[0] + "?***" if mark in shown else shown

    @property
    def secrets(self) -> dict[str, str]:
        """Possible secrets in the URI: user and password before an "@", and the query."""
        if self.is_local or self.scheme == DYNAMODB:
            return {}
        remainder = self.uri.partition("://")[2]
        user, separator, _ = remainder.partition("/")[0].rpartition("@")
        secrets = {"secret query": remainder.partition(self._query_mark)[2]}
        if separator and self.scheme not in _AZURE:
            secrets |= {"secret user": user, "secret password": user.partition(":")[2]}
        return {name: text for name, text in secrets.items() if text}

    @property
    def _query_mark(self) -> str:
        return "%3F" if self.scheme in _ESCAPED else "?"

    @property
    def azure_account(self) -> tuple[str, str] | None:
        """Account and domain of ``abfss://container@account.dfs.domain/path``; None for others."""
        match = _ACCOUNT.fullmatch(self.uri) if self.scheme in _AZURE else None
        return (match["account"], match["domain"]) if match else None

    def is_served_as(self, other: Location) -> bool:
        """Return whether the credentials of another location may be sent to the server of this one.

        A manifest or a blob names this location, so its server may be untrusted.
        """
        if self.scheme != other.scheme:
            return False
        if self.scheme in _AZURE:
            account = self.azure_account
            return account in (None, other.azure_account) or account[1] in AZURE_DOMAINS
        if self.scheme in _BUCKETS or self.scheme in ("file", "memory"):
            return True
        return self._server == other._server

    @property
    def _server(self) -> str:
        return self.uri.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()

    @property
    def objects(self) -> Location:
        """The location of the files, without escapes and without the manifest store."""
        if self.scheme in _ESCAPED:
            return Location(self.scheme, unquote(self.uri))
        if self.scheme != DYNAMODB:
            return self
        folder = unquote(self._parts()[0])
        return Location("s3", f"s3{folder.removeprefix(DYNAMODB)}")

    @property
    def dynamodb_table(self) -> str | None:
        """The table of DynamoDB that records the manifests; None for other schemes."""
        return unquote(self._parts()[1]) if self.scheme == DYNAMODB else None

    def below(self, folder: str) -> Location:
        """Return a folder below the root, with the same manifest store."""
        if self.scheme != DYNAMODB:
            return Location(self.scheme, join(self.uri, escaped(self.scheme, folder)))
        root, table = self._parts()
        return Location(self.scheme, f"{join(root, quote(folder))}?ddbTableName={table}")

    def above(self, folder: str) -> Location | None:
        """Return the parent if this root ends with `folder`, else None."""
        if self.scheme != DYNAMODB:
            root = self.uri.removesuffix(f"/{escaped(self.scheme, folder)}")
            return Location(self.scheme, root) if root != self.uri else None
        own_path, table = self._parts()
        steps = own_path.split("/")
        count = folder.count("/") + 1
        if [unquote(step) for step in steps[-count:]] != folder.split("/"):
            return None
        return Location(self.scheme, f"{'/'.join(steps[:-count])}?ddbTableName={table}")

    def _parts(self) -> tuple[str, str]:
        match = _DYNAMODB.fullmatch(self.uri)
        assert match is not None, self.uri
        return match["folder"], match["table"]


def parse_uri(uri: str | os.PathLike[str]) -> Location:
    """Parse the URI of a table.

    Raises InvalidInputError: the URI is empty, has a NUL byte or credentials, or lacks the table of
    DynamoDB.
    """
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInputError(f"a path or URI must be a string, not {type(uri).__name__}")
    text = os.fspath(uri)
    if not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is not the path of a table: give a path or a URI")
    stripped = text.lstrip()
    if stripped != text and (_SCHEME.match(stripped) or _FILE.match(stripped)):
        # It would be a folder of the local disk.
        raise InvalidInputError(
            f"{text[:20]!r}...: a URI must not begin with white space; remove it"
        )
    local = _FILE.match(text)
    if local:
        return _local(unquote(text[local.end() :]))
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _local(os.path.expanduser(text))
    remainder = text[scheme.end() :].rstrip("/")
    name = scheme[1].lower()
    _check_bucket(name, unquote(remainder))
    if name == DYNAMODB:
        return _dynamodb(remainder)
    if name in _AZURE and re.search(r"[?&]sig=", remainder):
        raise InvalidInputError(
            f"{name}://{remainder.partition('?')[0]}: a shared access signature does not "
            "belong in the URI of a table; give it as the storage option sas_token"
        )
    if name in _ESCAPED:
        remainder = escaped(name, unquote(remainder)).rstrip("/")
        if "\0" in remainder:
            raise InvalidInputError(f"{text!r} is not the path of a table: give a path or a URI")
    return Location(name, f"{name}://{remainder}")


def escaped(scheme: str, text: str) -> str:
    """Return a part of a path, escaped as in the URIs of a scheme."""
    if scheme not in _ESCAPED:
        return text
    # Other clients remove white space at the end of a URI.
    return _TRAILING_SPACES.sub(lambda spaces: "%20" * len(spaces[0]), text.translate(_ESCAPES))


def check_root(uri: str | os.PathLike[str]) -> None:
    """Refuse the URI of a table in a cloud that other clients take for another place.

    They leave out a query, a fragment and white space at the end, and resolve ``.`` and ``..``.
    Raises InvalidInputError.
    """
    text = os.fspath(uri)
    scheme, separator, remainder = text.partition("://")
    name = scheme.lower()
    if not separator or (name not in _ESCAPED and name != DYNAMODB):
        return
    path = remainder.partition("?")[0] if name == DYNAMODB else remainder
    shown = f"{name}://{path.partition('?')[0]}"
    if name in _ESCAPED and "?" in path:
        raise InvalidInputError(
            f"{shown}: the URI of a table must not have a query, which other clients leave out; "
            "remove it, or write a question mark of the path as %3F"
        )
    if "#" in path:
        raise InvalidInputError(
            f"{shown}: the URI of a table must not have a fragment, which other clients leave out; "
            "write a number sign of the path as %23"
        )
    steps = unquote(path).split("/")[1:]
    if text != text.rstrip() or not {".", ".."}.isdisjoint(steps) or _CONTROL.search(unquote(path)):
        raise InvalidInputError(
            f"{shown!r}: the URI of a table must not have white space at the end, control "
            "characters, and no step '.' or '..', which other clients leave out or resolve; give "
            "the path without them"
        )


def _check_bucket(scheme: str, remainder: str) -> None:
    """Refuse keys before the bucket, an old form of Hadoop: errors would show them."""
    bucket = remainder.partition("/")[0]
    # A secret can contain slashes. Names of access points contain colons.
    has_key = "@" in bucket or (
        ":" in bucket and "@" in remainder and not bucket.lower().startswith("arn:")
    )
    if has_key and scheme in (*_BUCKETS, DYNAMODB):
        raise InvalidInputError(
            f"{scheme}://***: the URI of a table begins with its bucket; give keys as storage "
            "options"
        )


def _dynamodb(remainder: str) -> Location:
    match = _DYNAMODB.fullmatch(remainder)
    folder = match["folder"].rstrip("/") if match else ""
    if match is None or not folder:
        raise InvalidInputError(
            f"{DYNAMODB}://{remainder.partition('?')[0]} needs one parameter, the table of "
            f"DynamoDB that keeps the manifests: {DYNAMODB}://bucket/path?ddbTableName=name"
        )
    return Location(DYNAMODB, f"{DYNAMODB}://{folder}?ddbTableName={match['table']}")


def _local(path: str) -> Location:
    return Location("file", os.path.abspath(path))


def join(*parts: str) -> str:
    """Join the parts of a path with slashes; empty parts are skipped."""
    return "/".join(part for part in parts if part)


def check_relative(path: str) -> str:
    """Return `path` if it stays below its root.

    Raises InvalidInputError: the path is empty or absolute, has a scheme, or steps outside by "..".
    """
    if _leads_out(path) or ("%" in path and _leads_out_decoded(path)):
        raise InvalidInputError(f"{path!r} is not a path below the root of the table")
    return path


def _leads_out(path: str) -> bool:
    return (
        not path
        or path.startswith("/")
        or "\0" in path
        or "\\" in path
        or "://" in path
        or any(step in ("", ".", "..") for step in path.split("/"))
    )


def _leads_out_decoded(path: str) -> bool:
    # Web servers and their clients decode escapes, some of them repeatedly.
    for _ in range(_DEEPEST):
        decoded = unquote(path)
        if decoded == path:
            return False
        if _leads_out(decoded):
            return True
        path = decoded
    return True
