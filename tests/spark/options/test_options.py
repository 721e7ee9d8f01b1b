"""Options: names in any case, checked values, unknown options refused with the nearest name,
secrets never shown.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from lance_spark.errors import InvalidOptionError, LanceError
from lance_spark.spark.datasource import options_of, with_options
from lance_spark.spark.options.declared import (
    FILTER_TREE,
    INTERNAL_NAMES,
    SHOWN_NAMES,
    STATE_NAMES,
    VIEW_NAMES,
    ReadFields,
)
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions, with_offsets
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.types.mapping import to_spark_schema

SECRET = "hunter2-very-secret"


def read(**options: str) -> ReadOptions:
    return ReadOptions.parse(CaseInsensitiveDict({"path": "/t.lance", **options}))


def write(**options: str) -> WriteOptions:
    return WriteOptions.parse(CaseInsensitiveDict({"path": "/t.lance", **options}))


def test_read_options_are_typed() -> None:
    parsed = read(
        Version="3", COLUMNS="id, point.x", batch_size="100", target_rows_per_partition="5"
    )
    assert parsed == ReadOptions(
        path="/t.lance",
        version=3,
        columns=("id", "point.x"),
        batch_size=100,
        target_rows_per_partition=5,
    )


def test_options_that_choose_a_version() -> None:
    """Reads with the other options read the same version: of a query, or that it changes."""
    assert {*ReadFields.declared} - {*VIEW_NAMES} == {
        "version",
        "tag",
        "branch",
        "timestamp",
        "fresh",
    }
    columns = {"columns", "blob_handling", "full_text_query", "fulltextquery", "nearest"}
    columns |= {"with_row_id", "with_row_address", "read_change_feed", "readchangefeed"}
    columns |= {"readchangedata"}
    versions = {"version", "versionasof", "snapshot-id", "tag", "branch"}
    versions |= {"timestamp", "timestampasof", "asof", "ending_version", "endingversion"}
    versions |= {"ending_timestamp", "endingtimestamp"}
    assert {*STATE_NAMES} == columns | versions


def test_names_of_versions_in_other_formats() -> None:
    for name in ("versionAsOf", "snapshot-id", "VERSION"):
        assert read(**{name: "3"}).version == 3
        assert read(**{name: "gold-2"}) == read(tag="gold-2")
    assert read(timestampAsOf="2026-01-31T00:00:00Z") == read(timestamp="2026-01-31T00:00:00Z")
    assert write(overwriteSchema="true").overwrite == {"overwrite_schema": "true"}
    with pytest.raises(InvalidOptionError, match="two names and two values"):
        read(versionAsOf="1", version="2")
    with pytest.raises(InvalidOptionError, match="exclude each other"):
        read(versionAsOf="1", timestampAsOf="2026-01-31T00:00:00Z")
    with pytest.raises(InvalidOptionError, match="use timestamp, with a time such as"):
        read(**{"as-of-timestamp": "1"})


def test_an_unknown_option_lists_all_others_the_most_similar_first() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        read(batchsizes="1")
    listed = str(caught.value).partition("first, ")[2].partition(", and settings")[0].split(", ")
    assert listed[0] == "batch_size"
    assert set(listed) == set(SHOWN_NAMES)


def test_column_names_with_commas_need_a_json_list() -> None:
    assert read(columns='["a,b", "c"]').columns == ("a,b", "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31", dt.datetime(2026, 1, 31, tzinfo=dt.UTC)),
        ("2026-01-31 12:00:00", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("2026-01-31T12:00:00+02:00", dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
        # A form of Spark that Python lacks.
        ("2026-1-31 12:00:00 +02:00", dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
    ],
)
def test_timestamps_have_an_offset_or_a_zone(text: str, expected: dt.datetime) -> None:
    assert read(timestamp=text, timezone="UTC").timestamp == expected
    assert read(asOf=text, timezone="UTC").timestamp == expected
    zoned = with_offsets({"asOf": text, "x": "1"}, "Europe/Berlin")
    if "+" not in text:
        expected -= dt.timedelta(hours=1)
        # The planning process does not know the zone of the session.
        with pytest.raises(InvalidOptionError, match="has no offset"):
            read(timestamp=text)
    assert read(asOf=zoned["asOf"]).timestamp == expected
    assert zoned["x"] == "1"


def test_write_options_are_typed_and_have_the_names_of_other_connectors() -> None:
    ours = write(
        data_storage_version="2.1",
        max_rows_per_file="10",
        max_bytes_per_file="99",
        enable_stable_row_ids="true",
    )
    theirs = write(
        file_format_version="2.1",
        max_row_per_file="10",
        max_bytes_per_file="99",
        enable_stable_row_ids="TRUE",
    )
    assert ours == theirs
    assert (ours.data_storage_version, ours.max_rows_per_file) == ("2.1", 10)
    assert (ours.max_bytes_per_file, ours.enable_stable_row_ids) == (99, True)


def test_options_of_columns_become_metadata() -> None:
    options = {"Vec.arrow.fixed-size-list.size": "8", "a.b.lance.compression": "zstd"}
    assert write(**options).column_metadata == {
        "vec": {"arrow.fixed-size-list.size": "8"},
        "a.b": {"lance-encoding:compression": "zstd"},
    }


def test_storage_options_are_passed_on_unchanged() -> None:
    parsed = read(
        aws_access_key_id="k",
        AWS_SECRET_ACCESS_KEY=SECRET,
        region="eu-1",
        **{"storage_options.endpoint": "http://x", "storage.anon": "true", "allow_http": "true"},
        storage_options='{"config_kwargs": {"retries": 3}}',
    )
    assert parsed.storage_options == {
        "aws_access_key_id": "k",
        "aws_secret_access_key": SECRET,
        "region": "eu-1",
        "endpoint": "http://x",
        "anon": "true",
        "allow_http": "true",
        "config_kwargs": {"retries": 3},
    }


@pytest.mark.parametrize("parse", [read, write])
def test_repr_and_errors_show_no_secret(parse: Any) -> None:
    assert SECRET not in repr(parse(aws_secret_access_key=SECRET))
    for bad in (
        {"aws_secret_acess_key": SECRET},
        {"storage_options": f'{{"secret": "{SECRET}"'},
        {"skip_signature": SECRET, "path": "s3://bucket/t"},
    ):
        with pytest.raises(InvalidOptionError) as caught:
            parse(**bad)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("versoin", "version"),
        ("batchsize", "batch_size"),
        ("max_rows_pr_file", "max_rows_per_file"),
        ("aws_acces_key_id", "aws_access_key_id"),
        ("vec.arrow.fixed-size-list.sise", "vec.arrow.fixed-size-list.size"),
        ("nearst", "nearest"),
        ("location", "path"),
    ],
)
def test_unknown_options_are_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    for parse in (read, write):
        with pytest.raises(InvalidOptionError, match=name) as caught:
            parse(**{name: "1"})
        assert nearest in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nonsense", "xyz"])
def test_no_message_names_an_option_that_only_this_package_sets(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=name) as caught:
        read(**{name: "1"})
    assert not [hidden for hidden in (*INTERNAL_NAMES, FILTER_TREE) if hidden in str(caught.value)]


@pytest.mark.parametrize(
    "value", ["NaN", "-1", "0", "1.5", "1e6", "", "ten", "9" * 30, "inf", "0x10"]
)
@pytest.mark.parametrize(
    "name",
    [
        "version",
        "batch_size",
        "target_rows_per_partition",
        "max_rows_per_file",
        "max_bytes_per_file",
    ],
)
def test_invalid_sizes_are_refused(name: str, value: str) -> None:
    if name == "version" and any(character.isalpha() for character in value):
        pytest.skip("names a tag")
    parse = write if name.endswith("_file") else read
    with pytest.raises(InvalidOptionError, match=f"option {name} must be a whole number") as caught:
        parse(**{name: value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id, a b ,s.x", ("id", "a b", "s.x")),
        ("`id`,`a, b`, s.`x y`,`t``u`.v", ("id", "a, b", "s.x y", "t`u.v")),
        ('["`id`", "a, b", "s`t"]', ("id", "a, b", "s`t")),
    ],
)
def test_names_of_columns(text: str, columns: tuple[str, ...]) -> None:
    assert read(columns=text).columns == columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1", "tag": "a"}, "version and tag exclude"),
        ({"timestamp": "2026-01-01", "tag": "a"}, "tag and timestamp exclude"),
        ({"timestamp": "yesterday"}, "yesterday"),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, "option timestamp must be a time"),
        ({"timestamp": "9999-12-31T23:59:59-14:00"}, "option timestamp must be a time"),
        ({"tag": " "}, "tag is empty"),
        ({"columns": "a,,b"}, "columns"),
        ({"columns": "a,a"}, "more than once"),
        ({"columns": "[1]"}, "columns"),
        ({"path": ""}, "path is empty"),
        ({"storage_options": "[]"}, "storage_options"),
        ({"paths": '["/a", "/b"]'}, "one table"),
    ],
)
def test_invalid_read_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        read(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1"}, "version applies to reads only"),
        ({"columns": "a"}, "columns applies to reads only"),
        ({"data_storage_version": "2.3"}, "must be one of stable, .* not '2.3'"),
        ({"data_storage_version": "nan"}, "must be one of stable, .* not 'nan'"),
        ({"enable_stable_row_ids": "maybe"}, "enable_stable_row_ids: give true or false"),
        ({"max_rows_per_file": "1", "max_row_per_file": "2"}, "twice"),
    ],
)
def test_invalid_write_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        write(**options)


def test_one_path_in_a_list_is_a_path() -> None:
    assert ReadOptions.parse({"paths": '["/a"]'}).path == "/a"


def test_a_view_accepts_options_of_reads_and_writes() -> None:
    assert read(max_rows_per_file="5", **{"v.arrow.fixed-size-list.size": "2"}).path == "/t.lance"
    assert write(batch_size="5", target_rows_per_partition="7").path == "/t.lance"


def test_tuning_options_of_other_connectors_are_ignored() -> None:
    for parse in (read, write):
        parse(index_cache_size="100", use_queued_write_buffer="true", pushDownFilters="false")


def test_without_a_path_the_error_says_what_to_do() -> None:
    with pytest.raises(InvalidOptionError, match=r"load\(") as caught:
        ReadOptions.parse({})
    assert "CREATE TABLE" in str(caught.value)
    with pytest.raises(InvalidOptionError, match="saveAsTable, insertInto or writeTo"):
        WriteOptions.parse({})


CATALOG = {
    "location": "file:/t.lance",
    "path": "file:/t.lance",
    "provider": "lance",
    "owner": "me",
    "comment": "hi",
    "some.property": "1",
    "version": "1",
    "option.version": "1",
}


def test_properties_of_catalog_tables_are_ignored_but_unknown_options_refused() -> None:
    assert ReadOptions.parse(CATALOG).version == 1
    with pytest.raises(InvalidOptionError, match="versoin"):
        ReadOptions.parse({**CATALOG, "versoin": "1", "option.versoin": "1"})
    with pytest.raises(InvalidOptionError, match="owner"):
        read(owner="me")


def test_the_schema_of_a_catalog_table_has_its_location() -> None:
    import pyarrow as pa

    schema = with_options(to_spark_schema(pa.schema([("a", pa.int8()), ("b", pa.int8())])), CATALOG)
    assert ReadOptions.parse(options_of(schema.fields[0], {})) == ReadOptions(
        path="file:/t.lance", version=1
    )
    assert options_of(schema.fields[0], {"version": "2"})["version"] == "2"
    assert options_of(schema.fields[0], {"path": "/other"}) == {"path": "/other"}


@pytest.mark.parametrize(
    "more", [{"aws_secret_access_key": SECRET}, {"path": f"sftp://me:{SECRET}@b/t"}]
)
def test_no_secret_goes_into_the_catalog(more: dict[str, str]) -> None:
    import pyarrow as pa

    with pytest.raises(LanceError, match="cannot store storage options") as caught:
        with_options(to_spark_schema(pa.schema([("a", pa.int8())])), {**CATALOG, **more})
    assert SECRET not in str(caught.value)


def test_number_of_commit_retries() -> None:
    parse = WriteOptions.parse
    assert parse({"path": "/t"}).commit_retries is None
    assert parse({"path": "/t", "commit_retries": "0"}).commit_retries == 0
    assert parse({"path": "/t", "commit_retries": "50"}).commit_retries == 50
    with pytest.raises(InvalidOptionError, match="from 0 to"):
        parse({"path": "/t", "commit_retries": "-1"})


def test_streams_refuse_what_is_not_for_them() -> None:
    given = {
        "fragment_ids": "1",
        "whole_fragments": "true",
        "full_text_query": "word",
        "nearest": '{"column": "v", "q": [1.0], "k": 1}',
        "fresh": "true",
    }
    declared = ReadOptions.declared.items()
    assert given.keys() == {name for name, option in declared if not option.for_streams}
    for name, text in given.items():
        options = ReadOptions.parse({"path": "t", name: text})
        with pytest.raises(InvalidOptionError, match=f"option {name} applies to reads of one"):
            FeedOptions.parse(options).of_stream(options)
