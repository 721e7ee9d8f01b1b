"""Storage options by the names of the object_store library, which Lance clients use, and the
arguments of fsspec's packages.
"""

from __future__ import annotations

import inspect
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from adlfs import AzureBlobFileSystem
from gcsfs.core import GCSFileSystem
from s3fs import S3FileSystem

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.storage.options import KNOWN, to_fsspec
from lance_spark.storage.store import ObjectStore
from tests.support.stores.aws import BUCKET, KEY, REGION, SECRET, Aws
from tests.support.stores.table_suite import rows, values

#: All names that object_store 0.13 takes: AmazonS3ConfigKey, AzureConfigKey, GoogleConfigKey and ClientConfigKey.
CLIENT = (
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_keep_alive_interval "
    "http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size http2_only pool_idle_timeout pool_max_idle_per_host "
    "proxy_url proxy_ca_certificate proxy_excludes randomize_addresses read_timeout timeout user_agent"
)
S3 = (
    "aws_access_key_id access_key_id aws_secret_access_key secret_access_key aws_default_region default_region aws_region region "
    "aws_bucket aws_bucket_name bucket_name bucket aws_endpoint_url aws_endpoint endpoint_url endpoint aws_session_token aws_token "
    "session_token token aws_virtual_hosted_style_request virtual_hosted_style_request aws_s3_express s3_express aws_imdsv1_fallback "
    "imdsv1_fallback aws_metadata_endpoint metadata_endpoint aws_unsigned_payload unsigned_payload aws_checksum_algorithm "
    "checksum_algorithm aws_container_credentials_relative_uri container_credentials_relative_uri aws_container_credentials_full_uri "
    "container_credentials_full_uri aws_container_authorization_token_file container_authorization_token_file "
    "aws_web_identity_token_file web_identity_token_file aws_role_arn role_arn aws_role_session_name role_session_name "
    "aws_endpoint_url_sts endpoint_url_sts aws_skip_signature skip_signature aws_copy_if_not_exists copy_if_not_exists "
    "aws_conditional_put conditional_put aws_disable_tagging disable_tagging aws_request_payer request_payer aws_allow_http "
    "aws_server_side_encryption server_side_encryption aws_sse_kms_key_id sse_kms_key_id aws_sse_bucket_key_enabled "
    "sse_bucket_key_enabled aws_sse_customer_key_base64 sse_customer_key_base64"
)
AZURE = (
    "azure_storage_account_key azure_storage_access_key azure_storage_master_key master_key account_key access_key "
    "azure_storage_account_name account_name azure_storage_client_id azure_client_id client_id azure_storage_client_secret "
    "azure_client_secret client_secret azure_storage_tenant_id azure_storage_authority_id azure_tenant_id azure_authority_id tenant_id "
    "authority_id azure_storage_authority_host azure_authority_host authority_host azure_storage_sas_key azure_storage_sas_token sas_key "
    "sas_token azure_storage_token bearer_token token azure_storage_use_emulator use_emulator azure_storage_endpoint azure_endpoint "
    "endpoint azure_msi_endpoint azure_identity_endpoint identity_endpoint msi_endpoint azure_object_id object_id azure_msi_resource_id "
    "msi_resource_id azure_federated_token_file federated_token_file azure_use_fabric_endpoint use_fabric_endpoint azure_use_azure_cli "
    "use_azure_cli azure_skip_signature skip_signature azure_container_name container_name azure_disable_tagging disable_tagging "
    "azure_fabric_token_service_url fabric_token_service_url azure_fabric_workload_host fabric_workload_host azure_fabric_session_token "
    "fabric_session_token azure_fabric_cluster_identifier fabric_cluster_identifier"
)
GOOGLE = (
    "google_service_account service_account google_service_account_path service_account_path google_service_account_key "
    "service_account_key google_bucket google_bucket_name bucket bucket_name google_base_url base_url google_application_credentials "
    "application_credentials google_bearer_token bearer_token google_skip_signature skip_signature"
)
PACKAGES = {"s3": S3FileSystem, "az": AzureBlobFileSystem, "gs": GCSFileSystem}
FLAGS = (
    "virtual_hosted_style_request s3_express imdsv1_fallback unsigned_payload skip_signature disable_tagging request_payer allow_http "
    "sse_bucket_key_enabled use_emulator use_fabric_endpoint use_azure_cli allow_invalid_certificates"
)


def sample(name: str) -> str:
    if name.endswith(tuple(FLAGS.split())):
        return "true"
    if name.endswith(("timeout", "interval")):
        return "30s"
    if name.endswith("service_account_key"):
        return '{"type": "service_account"}'
    if name.endswith("server_side_encryption"):
        return "AES256"
    if name.endswith("conditional_put"):
        return "etag"
    return "https://example.org" if "endpoint" in name or name.endswith("url") else "text"


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (scheme, name)
        for scheme, names in (("s3", S3), ("az", AZURE), ("gs", GOOGLE))
        for name in f"{names} {CLIENT}".split()
    ],
)
def test_every_name_is_understood_or_refused(scheme: str, name: str) -> None:
    assert name in KNOWN
    problem, result = "", {}
    try:
        result = to_fsspec(scheme, {name.upper(): sample(name)}, {})
    except InvalidOptionError as error:
        problem = str(error)
    assert problem == "" or problem.startswith("storage option")
    assert "text" not in problem
    # Options that no package knows would be accepted and ignored.
    assert set(result) <= set(inspect.signature(PACKAGES[scheme].__init__).parameters)
    assert to_fsspec(scheme, result, {}) == result


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        (
            "s3",
            {"aws_access_key_id": "k", "secret_access_key": "s", "AWS_SESSION_TOKEN": "t", "region": "r"},
            {"key": "k", "secret": "s", "token": "t", "client_kwargs": {"region_name": "r"}},
        ),
        ("s3a", {"endpoint": "http://x", "allow_http": "true"}, {"endpoint_url": "http://x"}),
        (
            "s3a",
            {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.endpoint": "h:1", "fs.s3a.connection.ssl.enabled": "false"},
            {"key": "k", "secret": "s", "endpoint_url": "http://h:1", "use_ssl": False},
        ),
        (
            "s3",
            {"fs.s3a.endpoint": "https://h", "fs.s3a.endpoint.region": "r", "fs.s3a.path.style.access": "true", "region": "r"},
            {
                "endpoint_url": "https://h",
                "client_kwargs": {"region_name": "r"},
                "config_kwargs": {"s3": {"addressing_style": "path"}},
            },
        ),
        ("s3", {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anon": True}),
        ("file", {"fs.s3a.access.key": "k"}, {}),
        ("s3", {"default_region": "d", "region": "r"}, {"client_kwargs": {"region_name": "r"}}),
        ("s3", {"default_region": "d"}, {"client_kwargs": {"region_name": "d"}}),
        ("s3", {"skip_signature": True}, {"anon": True}),
        ("s3", {"anon": "false"}, {"anon": False}),
        (
            "s3",
            {"virtual_hosted_style_request": "true", "timeout": "1500ms", "config_kwargs": {"a": 1}},
            {"config_kwargs": {"a": 1, "s3": {"addressing_style": "virtual"}, "read_timeout": 1.5}},
        ),
        ("s3", {"azure_storage_account_key": "k", "google_bearer_token": "t"}, {}),
        ("s3", {"endpoint_url": "http://x", "use_ssl": False, "client_max_retries": "3"}, {"endpoint_url": "http://x", "use_ssl": False}),
        ("gs", {"token": "anon", "google_service_account": "/no/a.json"}, {"token": "/no/a.json"}),
        ("gs", {"bearer_token": "t", "aws_token": "x"}, {"token": "t"}),
        ("gs", {"skip_signature": "true", "base_url": "http://x"}, {"token": "anon", "endpoint_url": "http://x"}),
        (
            "gs",
            {"service_account_key": '{"gcs_base_url": "http://x", "disable_oauth": true}'},
            {"token": "anon", "endpoint_url": "http://x"},
        ),
        (
            "abfss",
            {"azure_storage_account_name": "n", "azure_storage_access_key": "k"},
            {"account_name": "n", "account_key": "k"},
        ),
        ("az", {"azure_storage_sas_key": "?a=b", "account_name": "n"}, {"sas_token": "?a=b", "account_name": "n"}),
        (
            "az",
            {"account_name": "n", "account_key": "k", "endpoint": "https://n.blob.core.chinacloudapi.cn"},
            {"account_name": "n", "account_key": "k", "account_host": "n.blob.core.chinacloudapi.cn"},
        ),
        ("az", {"account_name": "onelake", "use_fabric_endpoint": "true"}, {"account_name": "onelake", "account_host": "onelake.blob.fabric.microsoft.com"}),
        ("az", {"use_azure_cli": "true", "account_name": "n"}, {"anon": False, "account_name": "n"}),
        ("ftp", {"host": "h", "region": "r", "aws_region": "r", "commit_lock": "m:f"}, {"host": "h", "region": "r", "commit_lock": "m:f"}),
    ],
)  # fmt: skip
def test_options_are_translated_for_fsspec(
    scheme: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = json.dumps(options)
    assert to_fsspec(scheme, options, {}) == expected
    assert json.dumps(options) == before


def test_endpoints_of_azure_without_tls_become_connection_strings() -> None:
    common = {"account_name": "n", "azure_storage_endpoint": "http://h:1/n/"}
    result = to_fsspec("az", {**common, "account_key": "a+/=="}, {})
    assert result["connection_string"] == (
        "DefaultEndpointsProtocol=http;AccountName=n;AccountKey=a+/==;BlobEndpoint=http://h:1/n;"
    )
    result = to_fsspec("az", {**common, "sas_token": "?sv=1&sig=x"}, {})
    assert "SharedAccessSignature=sv=1&sig=x;" in result["connection_string"]
    with pytest.raises(InvalidOptionError, match="needs account_name and account_key"):
        to_fsspec("az", {**common, "client_secret": "s"}, {})


@pytest.mark.parametrize(
    ("scheme", "options", "word"),
    [
        ("s3", {"conditional_put": "disabled"}, "commit_lock"),
        ("s3", {"endpoint": "http://x", "allow_http": "false"}, "https"),
        ("gs", {"endpoint": "http://x", "allow_http": False}, "https"),
        ("az", {"endpoint": "http://x/a", "allow_http": "false"}, "https"),
        ("s3", {"aws_role_arn": "arn:x"}, "AWS_ROLE_ARN"),
        ("s3", {"sse_customer_key_base64": "hunter2hunter2"}, "KMS"),
        ("s3", {"server_side_encryption": "sse-c"}, "SSE-C"),
        ("s3", {"request_payer": "hunter2hunter2"}, "true or false"),
        ("s3", {"aws_ca_bundle": "/no/such/file"}, "ca_bundle.*must be a file"),
        ("gs", {"allow_invalid_certificates": "true"}, "always checks"),
        ("gs", {"service_account_key": "hunter2hunter2"}, "JSON"),
        ("az", {"azure_federated_token_file": "/x"}, "AZURE_FEDERATED_TOKEN_FILE"),
        ("az", {"proxy_url": "http://hunter2hunter2@h"}, "HTTPS_PROXY"),
        ("az", {"timeout": "hunter2hunter2"}, "30s"),
        ("s3", {"config_kwargs": "hunter2hunter2"}, "must be a mapping"),
        ("s3", {"client_kwargs": '{"region_name": "hunter2"}'}, "must be a mapping"),
        (
            "s3",
            {"s3_additional_kwargs": "hunter2", "server_side_encryption": "AES256"},
            "must be a mapping",
        ),
        ("s3", {1: "hunter2"}, "its name must be a text"),
    ],
)
def test_less_safe_options_are_refused(scheme: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidOptionError, match=word) as caught:
        to_fsspec(scheme, options, {})
    assert "hunter2" not in str(caught.value)


def test_the_environment_of_other_clients() -> None:
    assert to_fsspec("s3", {}, {"AWS_REGION": "r", "AWS_ENDPOINT": "http://x", "REGION": "no"}) == {
        "client_kwargs": {"region_name": "r"},
        "endpoint_url": "http://x",
    }
    azure = {
        "AZURE_STORAGE_ACCOUNT_NAME": "n",
        "AZURE_STORAGE_SAS_KEY": "s",
        "AZURE_TENANT_ID": "t",
    }
    assert to_fsspec("az", {}, azure) == {"account_name": "n", "sas_token": "s", "tenant_id": "t"}
    assert to_fsspec("gs", {}, {"GOOGLE_SERVICE_ACCOUNT": "/a", "GOOGLE_BASE_URL": "http://x"}) == {
        "token": "/a",
        "endpoint_url": "http://x",
    }


def test_options_count_before_the_environment() -> None:
    environment = {"AWS_REGION": "e", "AWS_SKIP_SIGNATURE": "true", "AWS_ENDPOINT": "http://e"}
    result = to_fsspec("s3", {"region": "o", "aws_access_key_id": "k"}, environment)
    assert result == {
        "client_kwargs": {"region_name": "o"},
        "key": "k",
        "endpoint_url": "http://e",
    }
    # A credential of an account is not used for another account.
    azure = {"AZURE_STORAGE_SAS_TOKEN": "e", "AZURE_STORAGE_ACCOUNT_NAME": "e"}
    assert to_fsspec("az", {"account_name": "o", "account_key": "k"}, azure) == {
        "account_name": "o",
        "account_key": "k",
    }
    assert to_fsspec("gs", {"token": "anon"}, {"GOOGLE_BEARER_TOKEN": "e"}) == {"token": "anon"}


def test_a_connection_string_of_the_environment_is_for_its_own_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection_string = (
        "AccountName=other;AccountKey=b3RoZXI=;BlobEndpoint=https://other.blob.core.windows.net"
    )
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
    options = {"account_name": "mine", "account_key": "bWluZQ=="}
    store = ObjectStore.from_uri("az://container/t", options)
    assert store._fs.service_client.primary_hostname == "mine.blob.core.windows.net"
    plain = ObjectStore.from_uri("az://container/t")
    assert plain._fs.service_client.primary_hostname == "other.blob.core.windows.net"


def test_files_of_service_accounts_can_name_a_server(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"gcs_base_url": "http://x", "disable_oauth": true}')
    result = to_fsspec("gs", {"google_application_credentials": str(path)}, {})
    assert result == {"token": "anon", "endpoint_url": "http://x"}
    path.write_text("no json")
    assert to_fsspec("gs", {"service_account": str(path)}, {}) == {"token": str(path)}


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def test_options_that_pylance_accepts_are_accepted(aws: Aws, uri: str) -> None:
    lance_spark.write_dataset(rows(1), uri, storage_options=aws.theirs)
    for options in (aws.ours, {**aws.theirs, "aws_virtual_hosted_style_request": False}):
        dataset = lance_spark.open_dataset(uri, storage_options=options)
        assert values(dataset.to_table()) == [1]


def test_the_environment_alone(aws: Aws, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT", aws.endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ):
        monkeypatch.setenv(name, text)
    lance_spark.write_dataset(rows(1), uri)
    assert values(lance_spark.open_dataset(uri).to_table()) == [1]


def test_files_are_encrypted_as_asked_for(aws: Aws, uri: str) -> None:
    options = {
        **aws.theirs,
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "some-key",
    }
    lance_spark.write_dataset(rows(1), uri, storage_options=options)
    prefix = uri.removeprefix(f"s3://{BUCKET}/")
    names = aws.names(f"{prefix}/")
    assert {name.partition("/")[0] for name in names} == {"_transactions", "_versions", "data"}
    for name in names:
        head = aws.s3.head_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
        assert head["ServerSideEncryption"] == "aws:kms", name
        assert head["SSEKMSKeyId"].endswith("some-key"), name
