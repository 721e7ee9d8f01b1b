"""Maps each option of the object_store library to arguments of an fsspec file system.

There is one table for each kind of store. Names have no prefix (`aws_`, `azure_storage_`,
`google_`) and are in lower case. A setter receives the arguments and the value. Special setters:
`ignore` for what packages of fsspec do anyway, `from_environment` for what only the environment
can set, and `refused` for options that cannot be honoured, where silence would make a table less
safe or less private.

Values may be secrets, so no error contains a value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

from lance_spark.errors import InvalidOptionError

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
