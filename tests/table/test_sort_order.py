"""The recorded order of a table, under the key of this release and of earlier ones."""

from __future__ import annotations

from lance_spark.proto import table_pb2
from lance_spark.table import sort_order
from lance_spark.table.sort_order import KEY, OLD_KEY, SortedColumn, order_of, record


def test_the_key_of_earlier_releases_is_read_and_replaced() -> None:
    manifest = table_pb2.Manifest()
    manifest.fields.add(id=0, name="a", parent_id=-1, logical_type="int64")
    manifest.fragments.add(id=3, physical_rows=5).files.add(path="f.lance", fields=[0])
    columns = (SortedColumn(0, "bigint"),)
    record(manifest, columns)
    assert list(manifest.config) == [KEY]
    assert not KEY.startswith("lance."), "the specification keeps this prefix to itself"
    manifest.config[OLD_KEY] = manifest.config.pop(KEY)
    assert order_of(manifest) == columns
    following = table_pb2.Manifest()
    following.CopyFrom(manifest)
    del following.fragments[:]
    sort_order.keep(manifest, following)
    assert OLD_KEY not in following.config
    record(manifest, columns)
    assert list(manifest.config) == [KEY]
