"""JSON columns in Spark: strings, which Spark's own functions parse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

MARK = {"ARROW:extension:name": "arrow.json"}


def test_tables_of_pylance_are_read_appended_to_and_copied(
    spark: Any, read: Callable[..., Any], write: Callable[..., None], tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    texts = ['{"b": {"c": 5}, "a": [1]}', None, '"x"']
    table = pa.table({"i": [1, 2, 3], "j": pa.array(texts, pa.json_())})
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    frame = read()
    assert frame.schema["j"].metadata == MARK
    result = frame.select("i", F.get_json_object("j", "$.b.c").alias("c")).orderBy("i").collect()
    assert [row.c for row in result] == ["5", None, None]

    copy = str(tmp_path / "copy.lance")
    write(frame, path=copy)
    assert lance.dataset(copy).schema.field("j").type == pa.json_()
    write(spark.createDataFrame([(4, '{"z": 1, "y": 2}')], "i int, j string"))
    for path, rows in ((copy, 3), (str(tmp_path / "t.lance"), 4)):
        values = lance.dataset(path).to_table().sort_by("i")["j"].to_pylist()
        assert values == ['{"a":[1],"b":{"c":5}}', None, '"x"', '{"y":2,"z":1}'][:rows]


def test_marked_strings_become_json(spark: Any, write: Callable[..., None], tmp_path: Path) -> None:
    frame = spark.createDataFrame([("[1, 2]", "{}", "{}")], "j string, k string, t string")
    write(frame.withMetadata("j", MARK), **{"k.arrow.json": True})
    schema = lance.dataset(str(tmp_path / "t.lance")).schema
    assert schema.types == [pa.json_(), pa.json_(), pa.string()]


def test_text_that_is_not_json_fails_the_write(
    spark: Any, write: Callable[..., None], tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("nil",)], "j string")
    with pytest.raises(Exception, match="column 'j', row 0: 'nil' cannot be stored as JSON"):
        write(frame, **{"j.arrow.json": True})
    assert not (tmp_path / "t.lance" / "_versions").exists()
