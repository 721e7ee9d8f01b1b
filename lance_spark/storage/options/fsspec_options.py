"""Translates storage options of other Lance clients to arguments of fsspec file systems.

Other Lance clients name credentials and endpoints as the object_store library does
(`aws_access_key_id`, `endpoint`). Packages of fsspec have other names (`key`, `endpoint_url`). Both
are accepted:

1. A name of `option_setters`, with or without its prefix, in any case, is set where fsspec expects
   its value. The scheme selects the table: `token` is a session token on S3 and a credential on
   Google Cloud Storage.
   Names of Hadoop (`fs.s3a.access.key`) are accepted for S3.
2. Names with the prefix of another kind of store are ignored, so that one set of options serves
   tables on several kinds of store.
3. Any other name reaches the file system as it is.

Environment variables of other Lance clients that packages of fsspec do not read (`VARIABLES`) apply
where no option is given. The translation is idempotent.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lance_spark.errors import InvalidOptionError
from lance_spark.storage.errors import translated
from lance_spark.storage.options import option_setters as setters
from lance_spark.storage.options.base_paths import is_of_base
from lance_spark.storage.options.option_setters import AZURE, GOOGLE, S3, OptionSetter, parse_flag

__all__ = ["COMMIT_LOCK", "KNOWN", "parse_flag", "to_fsspec"]

#: Storage option: a lock that is held during commits.
COMMIT_LOCK = "commit_lock"
#: Storage option: read branches whose base paths are outside of the table.
FOREIGN_BRANCH_BASES = "allow_foreign_branch_bases"
#: Storage option: the package that sends the requests; see `obstore_config`.
FILE_SYSTEM = "file_system"
#: Storage options: requests of a process at the same time, and bytes that a scan reads ahead; see
#: `lance_spark.storage.remote`.
IO_THREADS, READ_AHEAD_BYTES = "io_threads", "read_ahead_bytes"
#: Storage options: the folder of ranges of files on the local disk, the most bytes in it, and
#: whether it also has values; see `lance_spark.storage.disk_ranges`.
DISK_CACHE, DISK_CACHE_BYTES = "disk_cache", "disk_cache_bytes"
DISK_CACHE_DATA = "disk_cache_data"
#: Options of this package, which are not passed to a file system.
OWN = frozenset(
    {
        "manifest_store", "dynamodb_endpoint", IO_THREADS, READ_AHEAD_BYTES, COMMIT_LOCK,
        FILE_SYSTEM, FOREIGN_BRANCH_BASES, DISK_CACHE, DISK_CACHE_BYTES, DISK_CACHE_DATA,
    }
)  # fmt: skip
#: Storage options of credentials that expire: see `lance_spark.storage.renewal`.
EXPIRES_AT, REFRESH_OFFSET = "expires_at_millis", "refresh_offset_millis"
CREDENTIAL_SOURCE = "credential_source"
#: Options about retries, uploads and the renewal of credentials, which no file system takes.
_OF_CLIENTS = frozenset(
    {
        EXPIRES_AT, REFRESH_OFFSET, CREDENTIAL_SOURCE,
        "client_max_retries", "client_retry_timeout", "download_retry_count",
        "lance_initial_upload_size",
        "lance_upload_concurrency",
    }
)  # fmt: skip
_FAMILIES = {
    **dict.fromkeys(("s3", "s3a", "s3+ddb"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "google"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "azure"),
}
_TABLES = {"s3": S3, "azure": AZURE, "google": GOOGLE}
#: Longer prefixes come first.
#: The prefix of names of Hadoop's file system for S3, which `option_setters.S3A` has.
_S3A_PREFIX = "fs.s3a."
_PREFIXES = {"s3": ("aws_",), "azure": ("azure_storage_", "azure_"), "google": ("google_",)}
#: All known names, with and without prefix.
KNOWN: frozenset[str] = frozenset(
    OWN
    | _OF_CLIENTS
    | {name for table in _TABLES.values() for name in table}
    | {
        f"{p}{name}"
        for client, table in _TABLES.items()
        for p in _PREFIXES[client]
        for name in table
    }
    | {f"{_S3A_PREFIX}{name}" for name in setters.S3A}
)
#: Options that are also read from the environment, as packages of fsspec do not.
VARIABLES = {
    "s3": (
        "region", "endpoint", "skip_signature", "virtual_hosted_style_request", "unsigned_payload",
        "request_payer", "allow_http", "ca_bundle",
        "conditional_put", "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled",
        "sse_customer_key_base64",
    ),
    "azure": (
        "account_name", "account_key", "access_key", "master_key", "sas_token", "sas_key",
        "client_id", "client_secret", "tenant_id",
        "authority_id", "endpoint", "use_emulator", "use_fabric_endpoint", "use_azure_cli",
        "skip_signature", "allow_http",
    ),
    "google": (
        "service_account", "service_account_path", "service_account_key", "base_url",
        "bearer_token", "skip_signature", "allow_http",
    ),
}  # fmt: skip
#: Arguments with credentials. If one of them is given, credentials of the environment are ignored.
CREDENTIALS = {
    "s3": ("key", "secret", "token", "anon", "profile"),
    "azure": (
        "account_key", "sas_token", "client_id", "client_secret", "tenant_id", "connection_string",
        "credential", "anon",
    ),
    "google": ("token",),
}  # fmt: skip
_CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
_EMULATOR_ACCOUNT = "devstoreaccount1"
# Public: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
_EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_EMULATOR_URL = "http://127.0.0.1:10000/devstoreaccount1"


def family_of(scheme: str) -> str | None:
    """Return the family of a scheme: "s3", "azure", "google", or None for all others."""
    return _FAMILIES.get(scheme)


#: Arguments of the packages that are mappings of further arguments.
_MAPPINGS = frozenset({"client_kwargs", "config_kwargs", "s3_additional_kwargs"})


def to_fsspec(
    scheme: str, options: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the arguments of a file system, together with the options of this package.

    - `options`: Options of the user. Only texts are translated.
    - `environment`: Environment variables; by default the variables of the process.

    Raises InvalidOptionError: a value is not valid for its option, or the option cannot be honoured
    and must not be ignored.
    """
    family = family_of(scheme)
    arguments = _translated(family, options)
    if family is None:
        return arguments
    variables = _from_environment(family, os.environ if environment is None else environment)
    if any(arguments.get(name) is not None for name in CREDENTIALS[family]):
        for name in CREDENTIALS[family]:
            variables.pop(name, None)
    if family == "azure" and "connection_string" in arguments:
        variables.clear()
    arguments = _merged(variables, arguments)
    complete = {"s3": _complete_s3, "azure": _complete_azure, "google": _complete_google}
    complete[family](arguments)
    return arguments


def _translated(family: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    setter_values: list[tuple[OptionSetter, str]] = []
    for name, value in options.items():
        if not isinstance(name, str):
            raise InvalidOptionError(f"storage option {name!r}: its name must be a text")
        lower = name.lower()
        setter = _setter_of(family, lower)
        if lower in _MAPPINGS and not isinstance(value, Mapping):
            raise InvalidOptionError(
                f"storage option {name} must be a mapping, not {type(value).__name__}"
            )
        text = str(value).lower() if isinstance(value, bool) else value
        if is_of_base(name):
            continue
        if lower in OWN:
            arguments[lower] = value
        elif lower in _OF_CLIENTS:
            continue
        elif setter is not None and isinstance(text, str):
            setter_values.append((setter, text))
        elif setter is not setters.ignore:
            arguments[name] = value
    # Last, as they also set items of mappings that are given.
    for setter, text in setter_values:
        setter(arguments, text)
    return arguments


def _setter_of(family: str | None, name: str) -> OptionSetter | None:
    for setter_family, prefixes in _PREFIXES.items():
        for prefix in prefixes:
            setter = (
                _TABLES[setter_family].get(name.removeprefix(prefix))
                if name.startswith(prefix)
                else None
            )
            if setter is not None:
                return setter if setter_family == family else setters.ignore
    if name.startswith(_S3A_PREFIX) and name in KNOWN:
        return setters.S3A[name.removeprefix(_S3A_PREFIX)] if family == "s3" else setters.ignore
    return _TABLES[family].get(name) if family is not None else None


def _from_environment(family: str, environment: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name in VARIABLES[family]:
        for prefix in _PREFIXES[family]:
            value = environment.get(f"{prefix}{name}".upper())
            if value:
                _TABLES[family][name](arguments, value)
                break
    return arguments


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {**under, **over}
    for name, value in under.items():
        if isinstance(value, dict) and isinstance(over.get(name), Mapping) and name != "token":
            merged[name] = _merged(value, dict(over[name]))
    return merged


def _check_http(arguments: dict[str, Any], endpoint: object) -> None:
    allowed = arguments.pop(setters.ALLOW_HTTP, True)
    if not allowed and isinstance(endpoint, str) and endpoint.lower().startswith("http:"):
        raise InvalidOptionError(
            "storage option allow_http is false, but the endpoint begins with http: give an "
            "endpoint with https, or allow_http=true"
        )


def _complete_s3(arguments: dict[str, Any]) -> None:
    host = arguments.pop(setters.SCHEMELESS, None)
    if host is not None:
        scheme = "https" if arguments.get("use_ssl", True) else "http"
        arguments.setdefault("endpoint_url", f"{scheme}://{host}")
    region = arguments.pop(setters.REGION, None)
    client = arguments.get("client_kwargs") or {}
    if region is not None and "region_name" not in client:
        arguments["client_kwargs"] = {**client, "region_name": region}
    _check_http(arguments, arguments.get("endpoint_url") or client.get("endpoint_url"))


def _complete_google(arguments: dict[str, Any]) -> None:
    token = arguments.get("token")
    if isinstance(token, str) and token.endswith(".json") and os.path.isfile(token):
        # As in other clients, the file can name the server, and say that it needs no credentials.
        with translated(token), open(token, encoding="utf-8") as file:
            try:
                token = json.load(file)
            except (ValueError, RecursionError):
                token = None
    if isinstance(token, Mapping):
        if token.get("gcs_base_url"):
            arguments.setdefault("endpoint_url", token["gcs_base_url"])
        if token.get("disable_oauth"):
            arguments["token"] = "anon"  # noqa: S105 - how gcsfs spells it
    _check_http(arguments, arguments.get("endpoint_url"))


def _endpoint_parts(endpoint: str) -> SplitResult:
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    except ValueError:
        parts = None
    if parts is None or "@" in parts.netloc:
        raise InvalidOptionError(
            "storage option endpoint must be a URL with a host, without user and password, which "
            "have options of their own"
        )
    return parts


def _complete_azure(arguments: dict[str, Any]) -> None:
    endpoint = arguments.pop(setters.AZURE_ENDPOINT, None)
    if arguments.pop(setters.AZURE_EMULATOR, False):
        arguments.setdefault("account_name", _EMULATOR_ACCOUNT)
        if arguments["account_name"] == _EMULATOR_ACCOUNT and not arguments.get("sas_token"):
            arguments.setdefault("account_key", _EMULATOR_KEY)
        endpoint = endpoint or os.environ.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR_URL
    if arguments.pop(setters.AZURE_FABRIC, False) and endpoint is None:
        endpoint = f"https://{arguments.get('account_name', '')}.blob.fabric.microsoft.com"
    _check_http(arguments, endpoint)
    secret = arguments.get("account_key") or arguments.get("sas_token")
    # adlfs prefers the connection string of the environment, which may be of another account.
    uses_connection_string = "connection_string" not in arguments and bool(
        os.environ.get(_CONNECTION_STRING)
    )
    if endpoint is None and uses_connection_string and secret and arguments.get("account_name"):
        endpoint = f"https://{arguments['account_name']}.blob.core.windows.net"
    if endpoint is None:
        return
    parts = _endpoint_parts(endpoint)
    if (
        parts.scheme == "https"
        and parts.path in ("", "/")
        and not (parts.query or uses_connection_string)
    ):
        arguments["account_host"] = parts.netloc
        return
    if secret is None or not arguments.get("account_name"):
        raise InvalidOptionError(
            f"storage option endpoint: {parts.scheme}://{parts.netloc}{parts.path} needs "
            "account_name and account_key or sas_token"
        )
    # The only way to pass adlfs an endpoint without TLS, or with a path.
    base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    credentials = (
        f"AccountName={arguments['account_name']};AccountKey={arguments['account_key']}"
        if arguments.get("account_key")
        else f"SharedAccessSignature={str(arguments['sas_token']).removeprefix('?')}"
    )
    arguments["connection_string"] = (
        f"DefaultEndpointsProtocol={parts.scheme};{credentials};BlobEndpoint={base};"
    )


def import_object(option: str, text: str, used: str) -> Any:
    """Return the object that an option names.

    - `text`: ``package.module:name``.
    - `used`: Completes "wherever tables are ..." in the error.

    Raises InvalidOptionError: the text is malformed, or the object cannot be imported.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidOptionError(f"{option} {text!r}: must be package.module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"{option} {text!r} cannot be imported: {error}; it must be installed wherever "
            f"tables are {used}"
        ) from error
