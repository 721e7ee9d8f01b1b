"""Options for partial overwrites, new columns and idempotent writes, through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.sql import functions as F


def content(path: str) -> dict[int, str]:
    dataset = lance.dataset(path)
    dataset.validate()
    found = dataset.to_table(columns=["id", "word"]).to_pydict()
    return dict(zip(found["id"], found["word"], strict=True))


def test_options_of_writes(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")

    def frame(first: int, last: int, word: str) -> Any:
        return spark.range(first, last, 1, 2).select(
            "id",
            (F.col("id") % 4).cast("int").alias("g"),
            F.date_add(F.lit("2026-01-01").cast("date"), (F.col("id") / 10).cast("int")).alias(
                "day"
            ),
            F.when(F.col("id") >= 0, F.lit(word)).alias("word"),
        )

    def write(given: Any, mode: str = "overwrite", **options: Any) -> None:
        given.write.format("lance").mode(mode).options(**options).save(path)

    write(frame(0, 100, "old"), max_rows_per_file=20)
    expected = dict.fromkeys(range(100), "old")
    assert content(path) == expected
    write(frame(20, 25, "new"), replaceWhere="day = DATE '2026-01-03'")
    expected = {k: v for k, v in expected.items() if not 20 <= k < 30}
    expected |= dict.fromkeys(range(20, 25), "new")
    assert content(path) == expected
    with pytest.raises(
        Exception, match=r"InvalidInputError: \S*t\.lance: option replaceWhere: a row"
    ):
        write(frame(20, 31, "bad"), replaceWhere="day = DATE '2026-01-03'")
    write(
        frame(40, 42, "dynamic").unionByName(frame(91, 92, "dynamic")),
        partitionOverwriteMode="dynamic",
        partitionBy="day,g",
        txnAppId="job",
        txnVersion=1,
    )
    gone = [k for k in expected if (k // 10, k % 4) in {(4, 0), (4, 1), (9, 3)}]
    for one in gone:
        del expected[one]
    expected |= dict.fromkeys((40, 41, 91), "dynamic")
    assert content(path) == expected
    write(frame(0, 10, "again"), "append", txnAppId="job", txnVersion=1)
    assert content(path) == expected
    assert lance.dataset(path).version == 3
    more = frame(100, 110, "more").withColumn("score", F.col("id") / 2).drop("g")
    write(more, "append", mergeSchema=True, txnAppId="job", txnVersion=2)
    expected |= dict.fromkeys(range(100, 110), "more")
    assert content(path) == expected
    scores = lance.dataset(path).to_table(filter="score is not null", columns=["id", "score", "g"])
    assert sorted(scores["score"].to_pylist()) == [k / 2 for k in range(100, 110)]
    assert scores["g"].null_count == 10
    assert spark.read.format("lance").load(path).where("score > 54").count() == 1
