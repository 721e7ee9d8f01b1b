"""Options of the store among the options of the source, brought to the names that fsspec uses.

Other Lance clients name credentials and endpoints as the object_store library does (`aws_access_key_id`, `endpoint`); fsspec's
file systems have names of their own (`key`, `endpoint_url`). Both are understood:

- the names of `KNOWN` stand among the plain options, as other connectors have them, or below a prefix;
- below `storage_options.` or `storage.`, or in the JSON object `storage_options`, any name may stand: what is not in `KNOWN`
  reaches the file system as it is.

Values may be secrets: nothing here puts one in a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lance_spark.errors import InvalidOptionError

Place = Callable[[dict[str, Any], str], None]

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def parse_flag(name: str, value: str) -> bool:
    """Read `true` or `false`.

    Raises
    ------
    InvalidOptionError
        The value is neither.
    """
    text = value.strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidOptionError(f"option {name}: give true or false")


def _into(*keys: str) -> Place:
    def place(target: dict[str, Any], value: str) -> None:
        for key in keys[:-1]:
            target = target.setdefault(key, {})
        target[keys[-1]] = value

    return place


def _flag(name: str, *keys: str) -> Place:
    def place(target: dict[str, Any], value: str) -> None:
        _into(*keys)(target, parse_flag(name, value))  # type: ignore[arg-type]

    return place


def _nothing(target: dict[str, Any], value: str) -> None:
    # fsspec's file systems take the scheme of the endpoint as it is written.
    del target, value


def _virtual_hosted(target: dict[str, Any], value: str) -> None:
    style = "virtual" if parse_flag("virtual_hosted_style_request", value) else "path"
    _into("config_kwargs", "s3", "addressing_style")(target, style)


_S3: dict[str, Place] = {
    "access_key_id": _into("key"),
    "secret_access_key": _into("secret"),
    "session_token": _into("token"),
    "token": _into("token"),
    "region": _into("client_kwargs", "region_name"),
    "default_region": _into("client_kwargs", "region_name"),
    "endpoint": _into("endpoint_url"),
    "endpoint_url": _into("endpoint_url"),
    "allow_http": _nothing,
    "skip_signature": _flag("skip_signature", "anon"),
    "virtual_hosted_style_request": _virtual_hosted,
}
_AZURE: dict[str, Place] = {
    "account_name": _into("account_name"),
    "account_key": _into("account_key"),
    "access_key": _into("account_key"),
    "sas_token": _into("sas_token"),
    "sas_key": _into("sas_token"),
    "client_id": _into("client_id"),
    "client_secret": _into("client_secret"),
    "tenant_id": _into("tenant_id"),
    "authority_id": _into("tenant_id"),
    "endpoint": _into("account_host"),
}
_GOOGLE: dict[str, Place] = {
    "service_account": _into("token"),
    "service_account_path": _into("token"),
    "application_credentials": _into("token"),
    "skip_signature": _nothing,
}

#: Every name that may stand among the plain options, and where fsspec wants its value.
KNOWN: dict[str, Place] = {
    **_S3,
    **{f"aws_{name}": place for name, place in _S3.items()},
    **{name: place for name, place in _AZURE.items() if name not in _S3},
    **{f"azure_storage_{name}": place for name, place in _AZURE.items()},
    **{f"azure_{name}": place for name, place in _AZURE.items()},
    **{name: place for name, place in _GOOGLE.items() if name not in _S3},
    **{f"google_{name}": place for name, place in _GOOGLE.items()},
    # Where manifests are kept if not beside the data.
    "dynamodb_endpoint": _into("dynamodb_endpoint"),
    "manifest_store": _into("manifest_store"),
    # Reads that are under way at once.
    "io_threads": _into("io_threads"),
}


def to_fsspec(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of an fsspec file system.

    Parameters
    ----------
    options : mapping
        Names of `KNOWN` in any case, or of the file system itself.

    Raises
    ------
    InvalidOptionError
        A flag is neither true nor false.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        place = KNOWN.get(name.lower())
        if place is not None and isinstance(value, str):
            place(found, value)
        else:
            found[name] = value
    return found
