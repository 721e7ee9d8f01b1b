from __future__ import annotations

import os

import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative, parse_uri


@pytest.mark.parametrize(
    ("text", "scheme", "uri"),
    [
        ("/a/b.lance", "file", "/a/b.lance"),
        ("/a/b.lance/", "file", "/a/b.lance"),
        ("/a/x%20y", "file", "/a/x%20y"),
        ("file:///a/x%20y", "file", "/a/x y"),
        ("file:/a/b", "file", "/a/b"),
        ("file://localhost/a/b", "file", "/a/b"),
        ("rel/t.lance", "file", os.path.abspath("rel/t.lance")),
        ("S3://bucket/t.lance/", "s3", "s3://bucket/t.lance"),
        ("s3://b/x%20y%C3%BC/", "s3", "s3://b/x yü"),
        ("s3://b/x%2541", "s3", "s3://b/x%2541"),
        ("s3://b/100%", "s3", "s3://b/100%25"),
        ("s3://b/x%3Fy%23z", "s3", "s3://b/x%3Fy%23z"),
        ("gs://b/x#y", "gs", "gs://b/x%23y"),
        ("az://b/x%20%20/", "az", "az://b/x%20%20"),
        ("memory://t", "memory", "memory://t"),
        ("memory://t%20", "memory", "memory://t%20"),
        ("a:b", "file", os.path.abspath("a:b")),
    ],
)
def test_schemes(text: str, scheme: str, uri: str) -> None:
    location = parse_uri(text)
    assert (location.scheme, location.uri) == (scheme, uri)
    assert parse_uri(location.uri) == location
    below = location.below("tree/ü")
    assert parse_uri(below.uri) == below
    assert below.above("tree/ü") == location
    assert below.objects.uri == f"{location.objects.uri}/tree/ü"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://b/t?x=secret", "must not have a query"),
        ("gs://b/t?versionId=secret", "must not have a query"),
        ("az://b/t#x", "must not have a fragment"),
        ("s3+ddb://b/t#x?ddbTableName=n", "must not have a fragment"),
        ("s3://b/./t", "no step"),
        ("s3://b/u/../t", "no step"),
        ("s3://b/u/%2E%2e/t", "no step"),
        ("s3+ddb://b/u/../t?ddbTableName=n", "no step"),
        ("s3://b/t ", "white space at the end"),
        ("s3://b/t\n", "white space at the end"),
        ("s3://b/t\tu", "control characters"),
        ("s3://b/t%09u", "control characters"),
        (" s3://b/t", "must not begin with white space"),
        ("\nhdfs://b/t", "must not begin with white space"),
        (" file:/b/t", "must not begin with white space"),
    ],
)
def test_roots_that_other_clients_take_for_other_places_are_refused(uri: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        ObjectStore.from_uri(uri, {"anon": "true"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://b/a//t", "s3://b//t", "gs://b/a%2F%2Ft"])
def test_no_table_is_created_at_a_path_with_an_empty_step(uri: str) -> None:
    options = {"skip_signature": "true"}
    store = ObjectStore.from_uri(uri, options)
    with pytest.raises(InvalidInputError, match="write one slash"):
        store.check_new_table()
    for other in ("s3://b", "s3://b/", "s3://b/a/t/", "gs://b/%2520"):
        ObjectStore.from_uri(other, options).check_new_table()


def test_no_uri() -> None:
    for bad in ("", "a\0b"):
        with pytest.raises(InvalidInputError):
            parse_uri(bad)


def test_display_hides_user_info_and_query() -> None:
    assert parse_uri("sftp://me:pw@host/t").display == "sftp://***@host/t"
    assert parse_uri("ftp://host/t?pw=abc").display == "ftp://host/t?***"
    assert parse_uri("sftp://me:pw@host/t").secrets.keys() == {"secret user", "secret password"}
    assert parse_uri("ftp://host/t?pw=abc").secrets == {"secret query": "pw=abc"}


def test_containers_of_azure_are_no_users() -> None:
    location = parse_uri("abfss://box@acc.dfs.core.windows.net/a/t%20x")
    assert location.display == "abfss://box@acc.dfs.core.windows.net/a/t x"
    assert location.secrets == {}
    assert location.azure_account == ("acc", "core.windows.net")
    assert parse_uri("abfss://box@a.blob.x.y").azure_account == ("a", "x.y")
    for uri in ("az://box/a", "sftp://box@acc.dfs.core.windows.net/a", "abfss://box@acc/a"):
        assert parse_uri(uri).azure_account is None


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:hunter2@bucket/t",
        "s3://AKIA:abc%2Fhunter2@bucket/t",
        "s3a://AKIA:abc/hunter2@bucket/t",
        "s3a://AKIA:ab%40hunter2%40bucket/t",
        "gs://hunter2@bucket/t",
        "s3+ddb://AKIA:hunter2@bucket/t?ddbTableName=x",
    ],
)
def test_keys_before_a_bucket_are_refused(uri: str) -> None:
    with pytest.raises(InvalidInputError, match="give keys as storage options") as caught:
        parse_uri(uri)
    assert "hunter2" not in str(caught.value)


def test_an_at_sign_further_on_is_none_of_a_user() -> None:
    arn = "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/x/a@b"
    for uri in ("s3://bucket/a@b", arn, "memory://a:b@c/d"):
        assert parse_uri(uri).uri == uri
    shown = parse_uri("sftp://me:p@hunter2@host/a@b")
    assert shown.display == "sftp://***@host/a@b"
    assert shown.secrets["secret password"] == "p@hunter2"


@pytest.mark.parametrize(
    ("table_uri", "blob_uri", "trusted"),
    [
        ("s3://a/t", "s3://b/u", True),
        ("s3://a/t", "gs://a/t", False),
        ("memory://a/t", "memory://b/u", True),
        ("https://a.example/t", "https://a.example/u", True),
        ("https://a.example/t", "https://b.example/t", False),
        ("sftp://me:pw@host/t", "sftp://you@host/u", True),
        ("sftp://me:pw@host/t", "sftp://me@host.example/t", False),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@b.dfs.core.windows.net/t", True),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c/t", True),
        ("abfss://c/t", "abfss://c@a.dfs.example.org/t", False),
        ("abfss://c@a.dfs.example.org/t", "abfss://d@a.dfs.example.org/u", True),
        ("abfss://c@a.dfs.example.org/t", "abfss://c@b.dfs.example.org/t", False),
    ],
)
def test_credentials_are_passed_only_to_the_server_of_the_table(
    table_uri: str, blob_uri: str, trusted: bool
) -> None:
    assert parse_uri(blob_uri).is_served_as(parse_uri(table_uri)) == trusted


def test_a_signature_in_the_uri_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="sas_token") as caught:
        parse_uri("az://box/t?sv=1&sig=abcdef")
    assert "abcdef" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "s3://b/x",
        "a\\b",
        "a\0",
        "a/",
        "%2e%2e/x",
        "a/%2E./%2e%2e/x",
        "%252e%252e/x",
        "%2Fetc/passwd",
        "a%2f..%2f..%2fx",
        "a%5Cb",
        "%25252525252e",
    ],
)
def test_paths_stay_below_the_root(path: str) -> None:
    with pytest.raises(InvalidInputError):
        check_relative(path)


def test_sub_folders_and_dots_in_names_are_fine() -> None:
    for path in ("data/x/y..lance", "data/100%/a%20b%2Fc.lance", "a%zz"):
        assert check_relative(path) == path
