"""Base paths in stores with other keys than the table's: their settings reach executors, and no
message shows them.
"""

from __future__ import annotations

import json
from typing import Any

import lance
import pytest

from lance_spark.spark.table import LanceTable
from tests.support.stores import keyed_s3


def test_servers_with_different_keys(spark: Any) -> None:
    with keyed_s3.serving("AKIAONE", "one") as one, keyed_s3.serving("AKIATWO", "two") as two:
        uri, base = "s3://one/spark", "s3://two/spark"
        options = {
            **{f"storage_options.{name}": value for name, value in one.options.items()},
            "base_store_params": json.dumps({base: two.options}),
        }
        writer = spark.range(0, 40, 1, 4).write.format("lance").mode("append")
        bases = json.dumps([{"path": base, "name": "b"}])
        writer.options(**options, initial_bases=bases, target_all_bases=True).save(uri)
        assert len(two.names("two", "spark/")) == 2
        frame = spark.read.format("lance").options(**options).load(uri)
        assert sorted(row.id for row in frame.where("id > 3").collect()) == list(range(4, 40))
        table = LanceTable.forPath(spark, uri, **options)
        table.update("id = 7", {"id": "70"}, mode="rows")
        table.moveFragments("b")
        theirs = lance.dataset(
            uri, storage_options=one.options, base_store_params={base: two.options}
        )
        assert sorted(theirs.to_table()["id"].to_pylist()) == [*range(7), *range(8, 40), 70]
        scoped = {f"storage_options.base_1.{name}": value for name, value in two.options.items()}
        frame = spark.read.format("lance").options(
            **{name: text for name, text in options.items() if name != "base_store_params"},
            **scoped,
        )
        assert frame.load(uri).count() == 40
        wrong = {**two.options, "aws_access_key_id": "AKIAOTHER"}
        options["base_store_params"] = json.dumps({base: wrong})
        with pytest.raises(Exception, match=r"(?i)denied|forbidden|InvalidAccessKeyId") as raised:
            spark.read.format("lance").options(**options).load(uri).collect()
        assert keyed_s3.SECRET not in str(raised.value)
