"""Translates the arguments of s3fs, gcsfs and adlfs to the settings of obstore.

`to_fsspec` has made the arguments from the storage options of a user, so both file systems have the
same options. An argument that is not in the tables here is refused: silence could make a table less
safe or less private.

Credentials are given to obstore as the answer of a function: in its settings, they would be mixed
with those of the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lance_spark.errors import InvalidOptionError
from lance_spark.storage.options.fsspec_options import FILE_SYSTEM, family_of

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
