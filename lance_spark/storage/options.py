"""Storage options of Lance clients, translated to arguments of fsspec file systems."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.storage.errors import translated
from lance_spark.storage.uri import parse_uri

# --------------------------------------------------------------------------------------------------
# Maps each option of the object_store library to arguments of an fsspec file system.
#
# There is one table for each kind of store. Names have no prefix (`aws_`, `azure_storage_`,
# `google_`) and are in lower case. A setter receives the arguments and the value. Special setters:
# `ignore` for what packages of fsspec do anyway, `from_environment` for what only the environment
# can set, and `refused` for options that cannot be honoured, where silence would make a table less
# safe or less private.
#
# Values may be secrets, so no error contains a value.

OptionSetter = Callable[[dict[str, Any], str], None]

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_DURATION = re.compile(
    r"(?P<count>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>ms|s|sec|secs|seconds?|m|mins?|minutes?)?"
)
#: Internal names in the arguments, resolved by `fsspec_options`.
ALLOW_HTTP, AZURE_ENDPOINT, AZURE_EMULATOR, AZURE_FABRIC, REGION, SCHEMELESS = (
    " allow_http", " azure endpoint", " azure emulator", " azure fabric", " default region",
    " endpoint without scheme",
)  # fmt: skip

#: Settings of botocore, and options, about checksums of requests and of answers.
CHECKSUM_SETTINGS = ("request_checksum_calculation", "response_checksum_validation")


def parse_flag(name: str, value: str) -> bool:
    """Read `true` or `false`. Raises InvalidOptionError: the value is neither."""
    text = value.strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidOptionError(f"option {name}: give true or false")


def into(*keys: str) -> OptionSetter:
    """Return a setter of the item at nested keys."""

    def set_item(target: dict[str, Any], value: Any) -> None:
        for key in keys[:-1]:
            # A copy, as mappings of the caller must not change.
            target[key] = dict(target.get(key) or {})
            target = target[key]
        target[keys[-1]] = value

    return set_item


def flag(name: str, *keys: str) -> OptionSetter:
    """Return the setter of a value that is true or false."""

    def set_item(target: dict[str, Any], value: str) -> None:
        into(*keys)(target, parse_flag(name, value))  # type: ignore[arg-type]

    return set_item


def ignore(target: dict[str, Any], value: str) -> None:
    """Ignore an option: fsspec's packages behave so anyway, or the URI implies it."""
    del target, value


def refused(name: str, why: str, harmless: str = "") -> OptionSetter:
    """Return the setter of an option that cannot be honoured; a value that asks for nothing special
    is passed over.
    """

    def set_item(target: dict[str, Any], value: str) -> None:
        del target
        if value.strip().lower() not in (harmless, ""):
            raise InvalidOptionError(f"storage option {name} is not supported: {why}")

    return set_item


def from_environment(name: str, variable: str) -> OptionSetter:
    """Return the setter of an option that the store's package reads from the environment only."""
    return refused(
        name, f"set the environment variable {variable} wherever tables are read or written"
    )


def seconds(name: str, *keys: str) -> OptionSetter:
    """Return the setter of a duration such as `30s`."""

    def set_item(target: dict[str, Any], value: str) -> None:
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None:
            raise InvalidOptionError(f"storage option {name}: give a time such as 30s")
        unit = match["unit"] or "s"
        scale = 0.001 if unit == "ms" else 60 if unit.startswith("m") else 1
        into(*keys)(target, float(match["count"]) * scale)  # type: ignore[arg-type]

    return set_item


def _virtual_hosted(target: dict[str, Any], value: str) -> None:
    style = "virtual" if parse_flag("virtual_hosted_style_request", value) else "path"
    into("config_kwargs", "s3", "addressing_style")(target, style)


def _path_style(target: dict[str, Any], value: str) -> None:
    style = "path" if parse_flag("fs.s3a.path.style.access", value) else "virtual"
    into("config_kwargs", "s3", "addressing_style")(target, style)


def _host_or_url(target: dict[str, Any], value: str) -> None:
    """Set the endpoint. Hadoop takes a host, whose scheme another setting decides."""
    target[SCHEMELESS if "://" not in value else "endpoint_url"] = value


def _credentials_provider(target: dict[str, Any], value: str) -> None:
    names = [name.strip().rpartition(".")[2] for name in value.split(",")]
    if names == ["AnonymousAWSCredentialsProvider"]:
        target["anon"] = True
    elif not _KNOWN_PROVIDERS.issuperset(names):
        raise InvalidOptionError(
            "storage option fs.s3a.aws.credentials.provider names a class of Java that is not "
            f"supported: the classes are {', '.join(sorted(_KNOWN_PROVIDERS))} and "
            "AnonymousAWSCredentialsProvider; set aws_access_key_id and aws_secret_access_key, or "
            "remove the option to use the credentials of the environment"
        )


def _checksums(name: str) -> OptionSetter:
    def set_item(target: dict[str, Any], value: str) -> None:
        text = value.strip().lower()
        if text not in ("when_required", "when_supported"):
            raise InvalidOptionError(
                f"storage option {name}: must be one of when_required and when_supported"
            )
        into("config_kwargs", name)(target, text)

    return set_item


def _unsigned(target: dict[str, Any], value: str) -> None:
    signed = not parse_flag("unsigned_payload", value)
    into("config_kwargs", "s3", "payload_signing_enabled")(target, signed)  # type: ignore[arg-type]


def _any_certificate(target: dict[str, Any], value: str) -> None:
    if parse_flag("allow_invalid_certificates", value):
        into("client_kwargs", "verify")(target, False)  # type: ignore[arg-type]


def _authorities(target: dict[str, Any], value: str) -> None:
    """Set the file with the certificates of the authorities that are trusted."""
    if not os.path.isfile(value):
        # The packages would say that a file is not found, as of a missing object.
        raise InvalidOptionError(
            "storage option ca_bundle, or the environment variable AWS_CA_BUNDLE: must be a file "
            "with certificates (PEM), which exists wherever tables are read or written"
        )
    if (target.get("client_kwargs") or {}).get("verify") is not False:
        into("client_kwargs", "verify")(target, value)


def _proxy(target: dict[str, Any], value: str) -> None:
    into("config_kwargs", "proxies")(target, {"http": value, "https": value})  # type: ignore[arg-type]


def _encryption(target: dict[str, Any], value: str) -> None:
    names = {"aes256": "AES256", "sse:kms": "aws:kms", "aws:kms": "aws:kms"}
    names |= {"sse:kms:dsse": "aws:kms:dsse", "aws:kms:dsse": "aws:kms:dsse"}
    name = names.get(value.strip().lower())
    if name is None:
        raise InvalidOptionError(
            "storage option server_side_encryption: AES256, aws:kms and aws:kms:dsse are "
            "supported; keys of the "
            "customer (SSE-C) are not"
        )
    into("s3_additional_kwargs", "ServerSideEncryption")(target, name)


def _anonymous(target: dict[str, Any], value: str) -> None:
    if parse_flag("skip_signature", value):
        target["token"] = "anon"  # noqa: S105 - how gcsfs spells it


def _service_account(target: dict[str, Any], value: str) -> None:
    try:
        account = json.loads(value)
    except (ValueError, RecursionError):
        account = None
    if not isinstance(account, dict):
        # The text is a secret: not a word of it is shown.
        raise InvalidOptionError(
            "storage option service_account_key: give the content of a service account's JSON file"
        )
    target["token"] = account


def _azure_cli(target: dict[str, Any], value: str) -> None:
    if parse_flag("use_azure_cli", value):
        target["anon"] = False


_CONDITIONAL_PUT = (
    "commits need the conditional put of the store; name a lock by the option commit_lock, or keep "
    "manifests in DynamoDB (s3+ddb://)"
)
#: Classes of Java that find credentials as s3fs does: in other options, or in the environment.
_KNOWN_PROVIDERS = frozenset(
    {
        "SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider",
        "DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider",
        "EnvironmentVariableCredentialsProvider", "InstanceProfileCredentialsProvider",
        "IAMInstanceCredentialsProvider", "ProfileCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider", "WebIdentityTokenCredentialsProvider",
        "ContainerCredentialsProvider",
    }
)  # fmt: skip
_NO_PROXY = "set HTTPS_PROXY and NO_PROXY in the environment"

_CLIENT: dict[str, OptionSetter] = {
    "allow_http": flag("allow_http", ALLOW_HTTP),
    "allow_invalid_certificates": refused(
        "allow_invalid_certificates", "this store's package always checks them", "false"
    ),
    "proxy_url": refused("proxy_url", _NO_PROXY),
    "proxy_ca_certificate": refused(
        "proxy_ca_certificate", "add it to the certificates of the system"
    ),
    "proxy_excludes": refused("proxy_excludes", _NO_PROXY),
    **dict.fromkeys(
        (
            "connect_timeout", "timeout", "read_timeout", "user_agent", "default_content_type",
            "http1_only", "http2_only",
            "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle",
            "http2_max_frame_size",
            "pool_idle_timeout", "pool_max_idle_per_host", "randomize_addresses",
        ),
        ignore,
    ),
}  # fmt: skip

S3: dict[str, OptionSetter] = {
    **_CLIENT,
    "access_key_id": into("key"),
    "secret_access_key": into("secret"),
    "session_token": into("token"),
    "token": into("token"),
    "region": into("client_kwargs", "region_name"),
    "default_region": into(REGION),
    "endpoint": into("endpoint_url"),
    "endpoint_url": into("endpoint_url"),
    "endpoint_url_s3": into("endpoint_url"),
    "bucket": ignore,
    "bucket_name": ignore,
    "anon": flag("anon", "anon"),
    "skip_signature": flag("skip_signature", "anon"),
    "virtual_hosted_style_request": _virtual_hosted,
    "unsigned_payload": _unsigned,
    "checksum_algorithm": ignore,
    **{name: _checksums(name) for name in CHECKSUM_SETTINGS},
    "s3_express": ignore,
    "imdsv1_fallback": ignore,
    "disable_tagging": ignore,
    "copy_if_not_exists": ignore,
    "conditional_put": refused("conditional_put", _CONDITIONAL_PUT, "etag"),
    "request_payer": flag("request_payer", "requester_pays"),
    "server_side_encryption": _encryption,
    "sse_kms_key_id": into("s3_additional_kwargs", "SSEKMSKeyId"),
    "sse_bucket_key_enabled": flag(
        "sse_bucket_key_enabled", "s3_additional_kwargs", "BucketKeyEnabled"
    ),
    "sse_customer_key_base64": refused(
        "sse_customer_key_base64", "use AES256 or a key of KMS: server_side_encryption"
    ),
    **{
        name: from_environment(name, variable)
        for name, variable in {
            "metadata_endpoint": "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "container_credentials_relative_uri": "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "container_credentials_full_uri": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "container_authorization_token_file": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "web_identity_token_file": "AWS_WEB_IDENTITY_TOKEN_FILE",
            "role_arn": "AWS_ROLE_ARN",
            "role_session_name": "AWS_ROLE_SESSION_NAME",
            "endpoint_url_sts": "AWS_ENDPOINT_URL_STS",
        }.items()
    },
    "allow_invalid_certificates": _any_certificate,
    "ca_bundle": _authorities,
    "proxy_url": _proxy,
    "connect_timeout": seconds("connect_timeout", "config_kwargs", "connect_timeout"),
    "timeout": seconds("timeout", "config_kwargs", "read_timeout"),
    "read_timeout": seconds("read_timeout", "config_kwargs", "read_timeout"),
}

#: Names of Hadoop's file system, after `fs.s3a.`. Its other settings tune classes of Java.
S3A: dict[str, OptionSetter] = {
    "access.key": S3["access_key_id"],
    "secret.key": S3["secret_access_key"],
    "session.token": S3["session_token"],
    "endpoint": _host_or_url,
    "endpoint.region": S3["region"],
    "path.style.access": _path_style,
    "connection.ssl.enabled": flag("fs.s3a.connection.ssl.enabled", "use_ssl"),
    "requester.pays.enabled": S3["request_payer"],
    "aws.credentials.provider": _credentials_provider,
    "impl": ignore,
}

AZURE: dict[str, OptionSetter] = {
    **_CLIENT,
    "account_name": into("account_name"),
    **dict.fromkeys(("account_key", "access_key", "master_key"), into("account_key")),
    **dict.fromkeys(("sas_token", "sas_key"), into("sas_token")),
    "connection_string": into("connection_string"),
    "client_id": into("client_id"),
    "client_secret": into("client_secret"),
    **dict.fromkeys(("tenant_id", "authority_id"), into("tenant_id")),
    "authority_host": from_environment("authority_host", "AZURE_AUTHORITY_HOST"),
    **dict.fromkeys(
        ("token", "bearer_token"),
        refused("bearer_token", "give account_key, sas_token or client_id with client_secret"),
    ),
    "use_emulator": flag("use_emulator", AZURE_EMULATOR),
    "endpoint": into(AZURE_ENDPOINT),
    "use_fabric_endpoint": flag("use_fabric_endpoint", AZURE_FABRIC),
    "use_azure_cli": _azure_cli,
    "anon": flag("anon", "anon"),
    "skip_signature": flag("skip_signature", "anon"),
    "container_name": ignore,
    "disable_tagging": ignore,
    **dict.fromkeys(
        ("msi_endpoint", "identity_endpoint"),
        from_environment("msi_endpoint", "IDENTITY_ENDPOINT, and the option anon to false"),
    ),
    "object_id": refused("object_id", "name a user-assigned identity by AZURE_CLIENT_ID"),
    "msi_resource_id": refused(
        "msi_resource_id", "name a user-assigned identity by AZURE_CLIENT_ID"
    ),
    "federated_token_file": from_environment(
        "federated_token_file", "AZURE_FEDERATED_TOKEN_FILE, and the option anon to false"
    ),
    **{
        name: refused(name, "this credential is not known to adlfs")
        for name in (
            "fabric_token_service_url", "fabric_workload_host", "fabric_session_token",
            "fabric_cluster_identifier",
            "credential_type",
        )
    },
    "encryption_key": refused("encryption_key", "adlfs cannot encrypt by keys of the customer"),
    "connect_timeout": seconds("connect_timeout", "connection_timeout"),
    "read_timeout": seconds("read_timeout", "read_timeout"),
    "timeout": seconds("timeout", "read_timeout"),
}  # fmt: skip

GOOGLE: dict[str, OptionSetter] = {
    **_CLIENT,
    "service_account": into("token"),
    "service_account_path": into("token"),
    "application_credentials": into("token"),
    "service_account_key": _service_account,
    "bearer_token": into("token"),
    "storage_token": into("token"),
    "base_url": into("endpoint_url"),
    "endpoint": into("endpoint_url"),
    "bucket": ignore,
    "bucket_name": ignore,
    "skip_signature": _anonymous,
    "timeout": seconds("timeout", "requests_timeout"),
}


# --------------------------------------------------------------------------------------------------
# Storage options of base paths, given among the storage options of a table.
#
# | storage option | means |
# | --- | --- |
# | `base_<id>.<name>` | the setting `<name>` of the base path with that id |
# | `base_store_params` | a mapping from the path of a base path to all settings of its store |
# | any other | a setting of the table, and of each base path on the same server |
#
# An entry of `base_store_params` is complete: the base path inherits nothing. The names are as in
# pylance. They reach executors with the storage options, and are never written to the table.

#: Storage option: storage options of base paths, by their paths.
BASE_STORE_PARAMS = "base_store_params"
_SCOPED = re.compile(r"base_(?P<id>[0-9]{1,10})\.(?P<name>.+)", re.IGNORECASE | re.DOTALL)


def with_base_params(
    options: Mapping[str, Any] | None, params: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return storage options with the settings of base paths, if any are given.

    Raises InvalidOptionError: they are not a mapping from paths to mappings.
    """
    merged = dict(options or {})
    if params:
        merged[BASE_STORE_PARAMS] = {**_params(merged), **_checked(params)}
    return merged


def check_base_params(options: Mapping[str, Any], paths: Collection[str], table: str) -> None:
    """Refuse settings of a base path that a table does not have.

    - `options`: Storage options of the table.
    - `paths`: Paths or URIs of its base paths.
    - `table`: Name of the table in errors.

    Raises InvalidOptionError: an entry of `base_store_params` is about another path, or
    `base_store_params` is malformed.
    """
    locations = [parse_uri(path) for path in paths]
    for key in _params(options):
        if not any(_is_same(key, location.uri) for location in locations):
            raise InvalidOptionError(
                f"{table}: {BASE_STORE_PARAMS}: the table has no base path {_display(key)}; its "
                "base paths are "
                f"{', '.join(location.display for location in locations) or 'none'}"
            )


def _display(key: str) -> str:
    """Return a path as errors show it; what is not a path may be a secret."""
    try:
        return parse_uri(key).display
    except InvalidInputError:
        return "of that name"


def is_of_base(name: str) -> bool:
    """Return whether a storage option is for base paths only."""
    return name.lower() == BASE_STORE_PARAMS or _SCOPED.fullmatch(name) is not None


def options_of_base(
    options: Mapping[str, Any], number: int, path: str, *, inherits: bool
) -> dict[str, Any]:
    """Return the storage options of a base path.

    - `options`: Storage options of the table.
    - `number`: Id of the base path.
    - `path`: Its path or URI.
    - `inherits`: Whether the settings of the table may be sent to the server of the base path.

    Raises InvalidOptionError: `base_store_params` is not a mapping from paths to mappings.
    """
    base_uri = parse_uri(path).uri
    for key, settings in _params(options).items():
        if _is_same(key, base_uri):
            return dict(settings)
    settings_of_base = {}
    if inherits:
        settings_of_base = {name: value for name, value in options.items() if not is_of_base(name)}
    for name, value in options.items():
        scoped = _SCOPED.fullmatch(name)
        if scoped is not None and int(scoped["id"]) == number:
            # Last, as the last of two names for one setting is used.
            settings_of_base.pop(scoped["name"], None)
            settings_of_base[scoped["name"]] = value
    return settings_of_base


def _is_same(key: str, uri: str) -> bool:
    try:
        return parse_uri(key).uri == uri
    except InvalidInputError:
        return False


def _params(options: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    names = [name for name in options if name.lower() == BASE_STORE_PARAMS]
    return _checked(options[names[0]]) if names else {}


def _checked(value: object) -> dict[str, Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    # The error shows no part of the value, which holds secrets.
    if not isinstance(value, Mapping) or not all(
        isinstance(path, str) and isinstance(settings, Mapping) for path, settings in value.items()
    ):
        raise InvalidOptionError(
            f"storage option {BASE_STORE_PARAMS}: it must be a mapping from the path of each base "
            "path to its storage options, "
            'such as {"s3://bucket/folder": {"region": "eu-west-1"}}'
        )
    return dict(value)


# --------------------------------------------------------------------------------------------------
# Translates storage options of other Lance clients to arguments of fsspec file systems.
#
# Other Lance clients name credentials and endpoints as the object_store library does
# (`aws_access_key_id`, `endpoint`). Packages of fsspec have other names (`key`, `endpoint_url`).
# Both are accepted:
#
# 1. A name of `option_setters`, with or without its prefix, in any case, is set where fsspec
# expects    its value. The scheme selects the table: `token` is a session token on S3 and a
# credential on    Google Cloud Storage.    Names of Hadoop (`fs.s3a.access.key`) are accepted for
# S3.
# 2. Names with the prefix of another kind of store are ignored, so that one set of options serves
#    tables on several kinds of store.
# 3. Any other name reaches the file system as it is.
#
# Environment variables of other Lance clients that packages of fsspec do not read (`VARIABLES`)
# apply where no option is given. The translation is idempotent.

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
    | {f"{_S3A_PREFIX}{name}" for name in S3A}
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
        elif setter is not ignore:
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
                return setter if setter_family == family else ignore
    if name.startswith(_S3A_PREFIX) and name in KNOWN:
        return S3A[name.removeprefix(_S3A_PREFIX)] if family == "s3" else ignore
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
    allowed = arguments.pop(ALLOW_HTTP, True)
    if not allowed and isinstance(endpoint, str) and endpoint.lower().startswith("http:"):
        raise InvalidOptionError(
            "storage option allow_http is false, but the endpoint begins with http: give an "
            "endpoint with https, or allow_http=true"
        )


def _complete_s3(arguments: dict[str, Any]) -> None:
    host = arguments.pop(SCHEMELESS, None)
    if host is not None:
        scheme = "https" if arguments.get("use_ssl", True) else "http"
        arguments.setdefault("endpoint_url", f"{scheme}://{host}")
    region = arguments.pop(REGION, None)
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
    endpoint = arguments.pop(AZURE_ENDPOINT, None)
    if arguments.pop(AZURE_EMULATOR, False):
        arguments.setdefault("account_name", _EMULATOR_ACCOUNT)
        if arguments["account_name"] == _EMULATOR_ACCOUNT and not arguments.get("sas_token"):
            arguments.setdefault("account_key", _EMULATOR_KEY)
        endpoint = endpoint or os.environ.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR_URL
    if arguments.pop(AZURE_FABRIC, False) and endpoint is None:
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


# --------------------------------------------------------------------------------------------------
# Translates the arguments of s3fs, gcsfs and adlfs to the settings of obstore.
#
# `to_fsspec` has made the arguments from the storage options of a user, so both file systems have
# the same options. An argument that is not in the tables here is refused: silence could make a
# table less safe or less private.
#
# Credentials are given to obstore as the answer of a function: in its settings, they would be mixed
# with those of the environment.

FSSPEC, OBSTORE = "fsspec", "obstore"
#: No limit for a whole request: a part of a file can take long.
_NO_LIMIT = "1d"
_SILENT_SECONDS = 60.0
_AWS = "https://s3.amazonaws.com"
_GOOGLE = "https://storage.googleapis.com"
#: Arguments that change nothing here: caches of fsspec, and retries, which `retry` decides.
_PASSED_OVER = frozenset(
    {"use_listings_cache", "skip_instance_cache", "default_cache_type", "default_block_size"}
)
#: A service account that sends requests without a token.
_NOBODY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
_AWS_FILES = {
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_CONFIG_FILE": "~/.aws/config",
}


@dataclass
class ObstoreConfig:
    """The settings of a store.

    - `family`: "s3", "google" or "azure".
    - `server`: URL of the server.
    - `settings`: As obstore names them.
    - `client`: Settings of the HTTP client.
    - `credentials`: As a function for obstore returns them, without expiry.
    - `profile`: Name of the profile of AWS that has the credentials; "" is the default profile.
    - `bucket_in_host`: Whether the name of the bucket is a part of the host.
    """

    family: str
    server: str
    settings: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    credentials: dict[str, Any] | None = None
    profile: str | None = None
    bucket_in_host: bool = False


def is_obstore(options: Mapping[str, Any]) -> bool:
    """Return whether storage options ask for obstore. Raises InvalidOptionError."""
    value = str(options.get(FILE_SYSTEM, FSSPEC)).lower()
    if value not in (FSSPEC, OBSTORE):
        raise InvalidOptionError(
            f"storage option {FILE_SYSTEM} must be one of {FSSPEC}, {OBSTORE}, not {value!r}"
        )
    return value == OBSTORE


def config_of(scheme: str, arguments: Mapping[str, Any]) -> ObstoreConfig:
    """Return the settings for the arguments of a file system of fsspec.

    Raises InvalidOptionError: obstore cannot honour an argument.
    """
    family = family_of(scheme)
    left = {
        name: value
        for name, value in arguments.items()
        if value is not None and name not in _PASSED_OVER
    }
    # Settings of timeouts that the functions below replace.
    client: dict[str, Any] = {
        "timeout": _NO_LIMIT,
        "connect_timeout": _duration(_SILENT_SECONDS),
        "read_timeout": _duration(_SILENT_SECONDS),
    }
    config = {"s3": _s3, "google": _google, "azure": _azure}[family or ""](left, client)
    for name in left:
        raise InvalidOptionError(
            f"storage option {name} is not supported together with {FILE_SYSTEM}={OBSTORE}: leave "
            "out one of them"
        )
    if _scheme_of(config.server) == "http":
        client["allow_http"] = True
    return config


def _scheme_of(server: str) -> str:
    """Return "http" or "https". obstore panics at the first request to any other text."""
    try:
        parts = urlsplit(server)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url:
        raise InvalidOptionError(
            "storage option endpoint must be a URL of a server that begins with http:// or https://"
        )
    return parts.scheme


def _s3(left: dict[str, Any], client: dict[str, Any]) -> ObstoreConfig:
    client_kwargs = dict(left.pop("client_kwargs", None) or {})
    kwargs = dict(left.pop("config_kwargs", None) or {})
    s3 = dict(kwargs.pop("s3", None) or {})
    given = left.pop("endpoint_url", None) or client_kwargs.pop("endpoint_url", None)
    server = given or next(
        filter(None, map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))), None
    )
    secure = left.pop("use_ssl", True) and client_kwargs.pop("use_ssl", True)
    config = ObstoreConfig("s3", server or _AWS, client=client)
    settings = config.settings
    if server:
        settings["endpoint"] = settings["aws_endpoint_url_s3"] = server
    elif not secure:
        raise InvalidOptionError("storage option use_ssl: give an endpoint that begins with http")
    region = client_kwargs.pop("region_name", None)
    _s3_credentials(left, config)
    if region is not None:
        settings["region"] = region
    style = s3.pop("addressing_style", "path" if server else "virtual")
    config.bucket_in_host = style == "virtual" and bool(server)
    settings["virtual_hosted_style_request"] = style == "virtual"
    settings["unsigned_payload"] = not s3.pop("payload_signing_enabled", True)
    if left.pop("requester_pays", False):
        settings["request_payer"] = True
    verify = client_kwargs.pop("verify", True)
    if verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        client["root_certificate"] = _content("verify", verify)
    _timeouts(kwargs, client, "connect_timeout", "read_timeout")
    proxies = kwargs.pop("proxies", None) or {}
    if proxies:
        client["proxy_url"] = next(iter(proxies.values()))
    for name in ("retries", "max_pool_connections", "signature_version"):
        kwargs.pop(name, None)
    extra = dict(left.pop("s3_additional_kwargs", None) or {})
    for name, setting in (
        ("ServerSideEncryption", "server_side_encryption"),
        ("SSEKMSKeyId", "sse_kms_key_id"),
        ("BucketKeyEnabled", "sse_bucket_key_enabled"),
    ):
        if name in extra:
            settings[setting] = extra.pop(name)
    for prefix, rest in (("client_kwargs", client_kwargs), ("config_kwargs", kwargs),
                         ("config_kwargs.s3", s3), ("s3_additional_kwargs", extra)):  # fmt: skip
        left.update({f"{prefix}.{name}": value for name, value in rest.items()})
    return config


def _s3_credentials(left: dict[str, Any], config: ObstoreConfig) -> None:
    key, secret, token = (left.pop(name, None) for name in ("key", "secret", "token"))
    profile = left.pop("profile", None)
    if left.pop("anon", False):
        config.settings["skip_signature"] = True
    elif key is not None and secret is not None:
        config.credentials = {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": token,
        }
    elif profile is not None or os.environ.get("AWS_PROFILE"):
        config.profile = profile or os.environ["AWS_PROFILE"]
    elif not os.environ.get("AWS_ACCESS_KEY_ID") and any(
        os.path.isfile(os.path.expanduser(os.environ.get(variable, path)))
        for variable, path in _AWS_FILES.items()
    ):
        # obstore does not read these files.
        config.profile = ""


def _google(left: dict[str, Any], client: dict[str, Any]) -> ObstoreConfig:
    server = left.pop("endpoint_url", None) or os.environ.get("STORAGE_EMULATOR_HOST")
    if server and "://" not in server:
        server = f"http://{server}"
    config = ObstoreConfig("google", server or _GOOGLE, client=client)
    settings = config.settings
    if server:
        settings["base_url"] = server
    token = left.pop("token", None)
    if token == "anon":  # noqa: S105 - how gcsfs spells it
        # With `skip_signature`, obstore asks for a token all the same.
        account = {**_NOBODY, "gcs_base_url": config.server}
        settings["service_account_key"] = json.dumps(account)
    elif isinstance(token, Mapping):
        settings["service_account_key"] = json.dumps(dict(token))
    elif isinstance(token, str) and os.path.isfile(token):
        content = _content("token", token)
        is_account = b'"service_account"' in content or b"private_key" in content
        settings["service_account" if is_account else "application_credentials"] = token
    elif isinstance(token, str) and token not in ("google_default", "cloud"):
        config.credentials = {"token": token}
    elif token is not None and not isinstance(token, str):
        bearer = getattr(token, "token", None)
        if bearer is None or getattr(token, "refresh_token", None) is not None:
            left["token"] = token
        config.credentials = {"token": bearer}
    _timeouts(left, client, "connect_timeout", "requests_timeout")
    return config


def _azure(left: dict[str, Any], client: dict[str, Any]) -> ObstoreConfig:
    text = left.pop("connection_string", None)
    given = dict(pair.split("=", 1) for pair in (text or "").split(";") if "=" in pair)
    name = given.get("AccountName") or left.pop("account_name", None)
    left.pop("account_name", None)
    host = left.pop("account_host", None)
    if text is None and host is not None:
        server = f"https://{host}"
    elif "BlobEndpoint" in given:
        server = given["BlobEndpoint"]
    else:
        suffix = given.get("EndpointSuffix", "core.windows.net")
        protocol = given.get("DefaultEndpointsProtocol", "https")
        server = f"{protocol}://{name}.blob.{suffix}"
    config = ObstoreConfig("azure", server.rstrip("/"), client=client)
    settings = config.settings
    settings["endpoint"] = config.server
    if name is not None:
        settings["account_name"] = name
    key = given.get("AccountKey") or left.pop("account_key", None)
    signature = given.get("SharedAccessSignature") or left.pop("sas_token", None)
    left.pop("account_key", None)
    left.pop("sas_token", None)
    anonymous = left.pop("anon", None)
    if key is not None:
        config.credentials = {"access_key": key}
    elif signature is not None:
        config.credentials = {"sas_token": signature.removeprefix("?")}
    elif "client_id" in left:
        for setting in ("client_id", "client_secret", "tenant_id"):
            if setting in left:
                settings[setting] = left.pop(setting)
    elif anonymous:
        settings["skip_signature"] = True
    for spare in ("client_id", "client_secret", "tenant_id") if config.credentials else ():
        left.pop(spare, None)
    _timeouts(left, client, "connection_timeout", "read_timeout")
    return config


def _timeouts(arguments: dict[str, Any], client: dict[str, Any], connect: str, read: str) -> None:
    for name, setting in ((connect, "connect_timeout"), (read, "read_timeout")):
        value = arguments.pop(name, None)
        if isinstance(value, int | float):
            client[setting] = _duration(value)
        elif value is not None:
            arguments[name] = value


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _content(option: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidOptionError(
            f"storage option {option} names a file that cannot be read: {error.strerror}"
        ) from error
