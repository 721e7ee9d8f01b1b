"""Stores through Spark: settings of base paths reach executors, manifests can be in a database, and
names of secrets are redacted.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.spark.jvm import enable
from lance_spark.spark.table import LanceTable
from lance_spark.storage.errors import is_secret
from lance_spark.storage.options import KNOWN
from tests.storage.test_steps import steps
from tests.support.cells import ALL_CELLS
from tests.support.stores import keyed_s3, s3_products
from tests.support.stores.aws import BUCKET, KEY, REGION, SECRET, Aws, serving
from tests.support.stores.proxy import ALL, Fault, spoiling
from tests.table.manifest.test_external import NAMED, InSqlite

#: Such a request has no answer for a long time.
LATE = Fault(delay=2.0 if ALL_CELLS else 0.3)
ROOT = Path(__file__).parents[2]


def test_servers_with_different_keys(spark: Any) -> None:
    with keyed_s3.serving("AKIAONE", "one") as first, keyed_s3.serving("AKIATWO", "two") as second:
        uri, base = "s3://one/spark", "s3://two/spark"
        options = {
            **{f"storage_options.{name}": value for name, value in first.options.items()},
            "base_store_params": json.dumps({base: second.options}),
        }
        writer = spark.range(0, 40, 1, 4).write.format("lance").mode("append")
        bases = json.dumps([{"path": base, "name": "b"}])
        writer.options(**options, initial_bases=bases, target_all_bases=True).save(uri)
        assert len(second.names("two", "spark/")) == 2
        frame = spark.read.format("lance").options(**options).load(uri)
        assert sorted(row.id for row in frame.where("id > 3").collect()) == list(range(4, 40))
        table = LanceTable.forPath(spark, uri, **options)
        table.update("id = 7", {"id": "70"}, mode="rows")
        table.move_fragments("b")
        theirs = lance.dataset(
            uri, storage_options=first.options, base_store_params={base: second.options}
        )
        assert sorted(theirs.to_table()["id"].to_pylist()) == [*range(7), *range(8, 40), 70]
        scoped = {f"storage_options.base_1.{name}": value for name, value in second.options.items()}
        frame = spark.read.format("lance").options(
            **{name: text for name, text in options.items() if name != "base_store_params"},
            **scoped,
        )
        assert frame.load(uri).count() == 40
        wrong = {**second.options, "aws_access_key_id": "AKIAOTHER"}
        options["base_store_params"] = json.dumps({base: wrong})
        with pytest.raises(Exception, match=r"(?i)denied|forbidden|InvalidAccessKeyId") as raised:
            spark.read.format("lance").options(**options).load(uri).collect()
        assert keyed_s3.SECRET not in str(raised.value)


@pytest.mark.parametrize("file_system", ["fsspec", "obstore"])
def test_a_server_that_is_not_amazons(spark: Any, tmp_path: Path, file_system: str) -> None:
    """Its answer 412 does not name the condition. For obstore, it has a certificate of its own."""
    is_obstore = file_system == "obstore"
    certificate = s3_products.certificate(tmp_path) if is_obstore else None
    with s3_products.serving(s3_products.PRODUCTS["MinIO"], certificate) as server:
        uri = f"s3://{s3_products.BUCKET}/a b+ü/t"
        store_options = {**server.options, "file_system": file_system}
        if is_obstore:
            store_options["aws_ca_bundle"] = str(tmp_path / s3_products.AUTHORITY)
        options = {f"storage_options.{name}": text for name, text in store_options.items()}
        first = spark.range(0, 8, 1, 2).write.format("lance").mode("append")
        first.options(**options).save(uri)
        for start in (8, 10):
            later = spark.range(start, start + 2, 1, 1).write.format("lance").mode("append")
            later.options(**options).save(uri)
        source = spark.read.format("lance").options(**options).load(uri)
        batches = spark.readStream.format("lance").options(**options).load(uri)
        stream = (
            batches.writeStream.format("lance")
            .options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(f"{uri}2")
        )
        assert stream.awaitTermination(120)
        copied = spark.read.format("lance").options(**options).load(f"{uri}2")
        assert source.count() == copied.count() == 12
        table = LanceTable.forPath(spark, uri, **options)
        table.delete("id < 4")
        (
            table.alias("t")
            .merge(spark.range(10, 14).alias("s"), "t.id = s.id")
            .whenNotMatchedInsertAll()
            .execute()
        )
        # No process has used obstore before it forks another, which would have to use s3fs.
        agents = {headers["user-agent"].partition("/")[0] for headers in server.headers}
        assert agents == {"object_store" if is_obstore else "lance-spark"}
        any_certificate = {**server.options, "allow_invalid_certificates": "true"}
        theirs = lance.dataset(uri, storage_options=any_certificate)
        assert sorted(theirs.to_table()["id"].to_pylist()) == list(range(4, 14))
        if is_obstore:
            del options["storage_options.aws_ca_bundle"]
            anyone = {**options, "storage_options.allow_invalid_certificates": "true"}
            assert spark.read.format("lance").options(**anyone).load(uri).count() == 10
            options["storage_options.client_max_retries"] = "0"
            with pytest.raises(Exception, match="the certificate of the server is not accepted"):
                spark.read.format("lance").options(**options).load(uri).count()


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        server.create_table("manifests")
        yield server


@pytest.mark.parametrize("seed", range(10 if ALL_CELLS else 1))
@pytest.mark.parametrize("file_system", ["fsspec", "obstore"])
def test_faults(spark: Any, aws: Aws, file_system: str, seed: int) -> None:
    """Some requests get an error, lose their connection or their answer, or come late."""
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    with spoiling(aws.endpoint) as proxy:
        store_options = {**aws.theirs, "aws_endpoint": proxy.endpoint, "file_system": file_system}
        options = {f"storage_options.{name}": text for name, text in store_options.items()}
        writer = spark.range(0, 4000, 1, 4).selectExpr("id", "id % 7 AS g").write.format("lance")
        # The test whether commits are safe takes no answer for granted.
        writer.options(**options).mode("append").save(uri)
        proxy.schedule(seed, 0.1, (*ALL, LATE))
        more = spark.range(4000, 4400, 1, 4).selectExpr("id", "id % 7 AS g").write.format("lance")
        more.options(**options).mode("append").save(uri)
        table = LanceTable.forPath(spark, uri, **options)
        table.delete("id % 10 = 3")
        table.update("id < 50", {"g": "100"})
        source = spark.range(4390, 4500).selectExpr("id", "200L AS g")
        merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        expected = {n: n % 7 for n in range(4400) if n % 10 != 3}
        expected |= {n: 100 for n in range(50) if n % 10 != 3}
        expected |= dict.fromkeys(range(4390, 4500), 200)
        frame = spark.read.format("lance").options(**options).load(uri)
        assert {row.id: row.g for row in frame.collect()} == expected
        assert frame.count() == len(expected)
        assert sorted(row.id for row in frame.where("g = 200").collect()) == [*range(4390, 4500)]
        assert len(frame.limit(5).collect()) == 5
    theirs = lance.dataset(uri, storage_options=aws.theirs).to_table()
    assert theirs.num_rows == len(expected)
    assert dict(zip(theirs["id"].to_pylist(), theirs["g"].to_pylist(), strict=True)) == expected


def test_a_query_lists_its_tables_together(
    spark: Any, aws: Aws, pushdown: Callable[..., None]
) -> None:
    """Also if Spark plans the scans one after the other."""
    pushdown(True, True)
    uris = [f"s3://{BUCKET}/together{number}" for number in range(2)]
    for uri in uris:
        lance.write_dataset(pa.table({"x": range(3)}), uri, storage_options=aws.theirs)
    with spoiling(aws.endpoint) as slow:
        options = {
            f"storage_options.{name}": value
            for name, value in {**aws.theirs, "aws_endpoint": slow.endpoint}.items()
        }
        reader = spark.read.format("lance").options(**options)
        first, second = (reader.load(uri).groupBy().count() for uri in uris)
        counts = []
        for _ in range(5):
            slow.clear()
            slow.delay(0.2)
            assert [tuple(row) for row in first.crossJoin(second).collect()] == [(3, 3)]
            counts.append(steps(slow.spans))
            if counts[-1] == 1:
                return
    pytest.fail(f"{counts} steps")


def test_dynamodb(spark: Any, aws: Aws) -> None:
    uri = f"s3+ddb://{BUCKET}/spark?ddbTableName=manifests"
    options = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": REGION,
        "aws_endpoint": aws.endpoint,
        "dynamodb_endpoint": aws.endpoint,
    }
    lance.write_dataset(pa.table({"x": [1, 2]}), uri, storage_options=aws.theirs)
    rows = spark.createDataFrame([(3,), (4,)], "x long")
    rows.write.format("lance").options(**options).mode("append").save(uri)
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    assert sorted(theirs.to_table()["x"].to_pylist()) == [1, 2, 3, 4]
    assert theirs.version == 2
    frame = spark.read.format("lance").options(**options).load(uri)
    assert sorted(row.x for row in frame.collect()) == [1, 2, 3, 4]
    old = spark.read.format("lance").options(**options, version="1").load(uri)
    assert sorted(row.x for row in old.collect()) == [1, 2]


def test_a_store_of_a_user(spark: Any, tmp_path: Path) -> None:
    uri, database = str(tmp_path / "t"), str(tmp_path / "manifests.db")
    options = {"manifest_store": NAMED, "storage_options.database": database}
    rows = spark.createDataFrame([(1,), (2,)], "x long")
    rows.write.format("lance").options(**options).mode("append").save(uri)
    rows.write.format("lance").options(**options).mode("append").save(uri)
    newest = InSqlite(database).latest(uri)
    assert newest is not None
    assert newest.version == 2
    frame = spark.read.format("lance").options(**options).load(uri)
    assert sorted(row.x for row in frame.collect()) == [1, 1, 2, 2]
    store_options = {"manifest_store": NAMED, "database": database}
    assert lance_spark.open_dataset(uri, storage_options=store_options).count_rows() == 4


def test_the_cluster_configuration_has_the_same_pattern() -> None:
    """Java reads them in this form: a backslash would be lost."""
    lines = (ROOT / "spark-conf/spark-defaults.conf").read_text().splitlines()
    for name, pattern in (
        (enable.REDACTION_CONF, enable.REDACTION_FOR_CLUSTERS),
        (enable.JOB_REDACTION_CONF, enable.JOB_REDACTION_FOR_CLUSTERS),
    ):
        (line,) = [line for line in lines if line.startswith(name)]
        assert line.split(None, 1)[1] == pattern
        assert "\\" not in line
    assert f"(?i)url|{enable.REDACTION_PATTERN}" == enable.REDACTION_FOR_CLUSTERS


def test_spark_redacts_the_same_options() -> None:
    """Spark's own pattern is included. The remaining values are not secrets: names of hosts and
    files.
    """
    patterns = re.compile(f"{enable.REDACTION_PATTERN}|(?i:secret|password|token|access[.]?key)")
    left = {name for name in KNOWN if is_secret(name) and not patterns.search(name)}
    assert {name.rpartition("_")[2] for name in left} == {"host", "id"}, left
    for name in ("base_store_params", "storage_options.base_1.account_key", "base_2.secret"):
        assert patterns.search(name), name
    for name in ("passphrase", "auth", "private", "sas", "pass", "connection", "x-api-key"):
        assert patterns.search(f"storage.{name}"), name
    catalog = "spark.sql.catalog.my-cat"
    for name in ("headers.x-api", "storage.sas", "storage.x-api-key", "x-token"):
        assert patterns.search(f"{catalog}.{name}"), name
        assert re.search(enable.JOB_REDACTION_FOR_CLUSTERS, f"{catalog}.{name}"), name
    for shown in (f"{catalog}.root", "spark.sql.catalog.my-auth"):
        assert not patterns.search(shown), shown
    for shown in ("storage.region", "storage.endpoint", "/data/storage.auth/t", "s3://bucket/key"):
        assert not patterns.search(shown), shown
    assert patterns.search("sftp://me:p@hunter2@host/t")
