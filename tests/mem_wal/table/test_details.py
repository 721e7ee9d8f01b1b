"""The details of a MemWAL, as its index has them."""

from __future__ import annotations

from dataclasses import replace

from lance_spark.mem_wal.table.details import (
    MemWalDetails,
    ShardingField,
    ShardingSpec,
    decode,
    encode,
    new_index,
)
from lance_spark.proto import table_pb2

#: Field 903, which no release knows.
UNKNOWN = b"\xba\x38\x03abc"


def test_unknown_fields_of_sharding_specs_are_carried() -> None:
    spec = ShardingSpec(1, (ShardingField("a", (0,), "bucket", parameters={"num_buckets": "2"}),))
    index = new_index(MemWalDetails(2, (spec,)), 1)
    message = table_pb2.MemWalIndexDetails.FromString(index.index_details.value)
    message.sharding_specs[0].MergeFromString(UNKNOWN)
    message.sharding_specs[0].fields[0].MergeFromString(UNKNOWN)
    index.index_details.value = message.SerializeToString()
    details = decode(index, "the manifest")
    assert encode(replace(details, maintained_indexes=("i",))).count(UNKNOWN) == 2
    assert encode(replace(details, sharding_specs=())).count(UNKNOWN) == 0
