"""The servers of stores: their addresses, and whether they are the clouds' own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from lance_spark.storage.options import family_of
from lance_spark.storage.uri import AZURE_DOMAINS

#: Domains of the clouds' own servers. Their behaviour is known, so they are not probed.
_OWN_DOMAINS = {
    "s3": ("amazonaws.com", "amazonaws.com.cn", "api.aws"),
    "google": ("googleapis.com",),
    "azure": AZURE_DOMAINS,
}  # fmt: skip
#: Servers that refuse an upload whose parts, but the last, have several lengths.
_EQUAL_PARTS = ("r2.cloudflarestorage.com",)


def endpoint_of(scheme: str, fs: Any) -> str | None:
    """Return the server of a file system, without possible secrets; None if it is unknown."""
    family = family_of(scheme)
    # The file system of obstore has it as an attribute.
    url: object = getattr(fs, "server", None)
    if isinstance(url, str):
        pass
    elif family == "s3":
        # The client of s3fs has resolved options, environment variables and profiles.
        client = getattr(fs, "s3", None)
        url = getattr(getattr(client, "meta", None), "endpoint_url", None)
    elif family == "google":
        url = getattr(fs, "_location", None)
    elif family == "azure":
        client = getattr(fs, "service_client", None)
        host = getattr(client, "primary_hostname", None)
        url = f"{getattr(client, 'scheme', 'https')}://{host}" if host else None
    if not isinstance(url, str) or not url:
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def is_own_endpoint(scheme: str, endpoint: str | None) -> bool:
    """Return whether a server belongs to the cloud that the scheme is named after."""
    return _is_below(endpoint, _OWN_DOMAINS.get(family_of(scheme) or "", ()))


def wants_equal_parts(endpoint: str | None) -> bool:
    """Return whether all parts of an upload to a server, but the last, must have one length."""
    return _is_below(endpoint, _EQUAL_PARTS)


def _is_below(endpoint: str | None, domains: Iterable[str]) -> bool:
    host = urlsplit(endpoint or "").hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
