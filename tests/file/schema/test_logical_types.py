from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.schema.field import field_parts
from lance_spark.file.schema.types import arrow_type, logical_type

UNITS = ["s", "ms", "us", "ns"]
STRUCT = pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
#: Types that pylance reads as they were written.
KEPT = [
    pa.null(),
    pa.bool_(),
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(1),
    pa.binary(16),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.timestamp(unit) for unit in UNITS),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "+02:00"),
    pa.timestamp("ms", "Europe/Berlin"),
    *(pa.duration(unit) for unit in UNITS),
    pa.decimal128(1, 0),
    pa.decimal128(38, 38),
    pa.decimal128(10, -2),
    pa.decimal256(76, 10),
    pa.list_(pa.int32()),
    pa.list_(pa.field("element", pa.int32(), nullable=False)),
    pa.list_(STRUCT),
    pa.list_(pa.list_(pa.list_(pa.int8()))),
    pa.large_list(pa.string()),
    pa.large_list(STRUCT),
    pa.list_(pa.large_list(STRUCT)),
    STRUCT,
    pa.struct([]),
    pa.struct([("deep", pa.struct([("er", pa.list_(STRUCT))]))]),
    pa.list_(pa.float32(), 4),
    pa.list_(pa.list_(pa.int8(), 3), 2),
    pa.list_(pa.bool_(), 8),
    pa.list_(pa.binary(3), 2),
    pa.list_(pa.timestamp("us", "+01:00"), 2),
    pa.list_(pa.decimal128(5, 1), 2),
    pa.list_(STRUCT, 2),
    pa.list_(pa.list_(pa.float32(), 4)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary()),
    pa.dictionary(pa.int64(), pa.float64()),
    pa.list_(pa.dictionary(pa.int16(), pa.string())),
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.int64(), STRUCT),
    pa.list_(pa.map_(pa.string(), pa.list_(pa.int8()))),
]
#: Types that pylance stores as another type.
TURNED = [
    (pa.string_view(), pa.string()),
    (pa.binary_view(), pa.binary()),
    (pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.dictionary(pa.int8(), pa.string())),
    (pa.list_(pa.field("vec", pa.float32(), nullable=False), 4), pa.list_(pa.float32(), 4)),
]
REFUSED = [
    pa.month_day_nano_interval(),
    pa.decimal32(5, 1),
    pa.decimal64(10, 2),
    pa.run_end_encoded(pa.int32(), pa.int32()),
    pa.list_view(pa.int32()),
    pa.map_(pa.string(), pa.int32(), keys_sorted=True),
    pa.dictionary(pa.int8(), pa.timestamp("us", "UTC")),
    pa.dictionary(pa.int8(), pa.binary(4)),
    pa.dictionary(pa.int8(), pa.date32()),
    pa.list_(pa.list_(pa.int8()), 2),
    pa.list_(pa.list_(STRUCT, 2), 2),
]


def named(types: list[pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(f"c{i}", dtype) for i, dtype in enumerate(types)])


def test_pylance_gives_every_type_the_same_string_and_reads_it_as_the_same_type(
    manifest_of, tmp_path
) -> None:
    sent = named(KEPT + [dtype for dtype, _ in TURNED])
    protos = manifest_of(sent.empty_table()).fields
    schema_read = lance.dataset(str(tmp_path / "t")).schema
    for field, read, expected in zip(
        sent, schema_read, KEPT + [dtype for _, dtype in TURNED], strict=True
    ):
        (proto,) = (p for p in protos if p.name == field.name and p.parent_id == -1)
        assert logical_type(field.type, field.name) == proto.logical_type
        children = field_parts(field).children
        assert arrow_type(proto.logical_type, children, field.name) == expected == read.type


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_types_that_pylance_refuses_are_refused_by_column_name(dtype, tmp_path) -> None:
    with pytest.raises(UnsupportedTypeError, match="'col'"):
        logical_type(dtype, "col")
    with pytest.raises(Exception, match=r"(?i)not supported|unsupported|cannot|not implemented"):
        lance.write_dataset(pa.schema([("col", dtype)]).empty_table(), str(tmp_path / "t"))


def test_names_of_the_specification_are_read() -> None:
    """Other clients write and read only the longer ones."""
    names = {
        "time:s": pa.time32("s"),
        "time:ms": pa.time32("ms"),
        "time:us": pa.time64("us"),
        "time:ns": pa.time64("ns"),
        "timestamp:ms": pa.timestamp("ms"),
    }
    for text, dtype in names.items():
        assert arrow_type(text, (), "col") == dtype
        assert logical_type(dtype, "col") != text


@pytest.mark.parametrize(
    "text",
    [
        "", "int128", "INT8", "fixed_size_list", "fixed_size_list:float", "fixed_size_list:float:0",
        "fixed_size_list:float:-1", "fixed_size_list:float:99999999999", "fixed_size_list:nope:4",
        "fixed_size_list:list:4", "fixed_size_binary:", "fixed_size_binary:-1",
        "fixed_size_binary:4294967296", "timestamp", "time:h", "timestamp:us:",
        "timestamp:h:-",
        "decimal:128:10", "decimal:128:0:0", "decimal:128:39:0", "decimal:64:3:0",
        "decimal:128:x:0",
        "dict:string:int8", "dict:string:string:false", "dict:string:int8:maybe",
        "dict::int8:false",
        "fixed_size_list:" * 5000 + "int8" + ":2" * 5000,
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_unknown_strings_are_refused_by_name(text) -> None:
    with pytest.raises(UnsupportedTypeError, match="'col'"):
        arrow_type(text, (), "col")


@pytest.mark.parametrize("text", ["list", "large_list", "map", "fixed_size_list:struct:2"])
def test_children_must_fit(text) -> None:
    two = [pa.field("x", pa.int8()), pa.field("y", pa.int8())]
    for children in ([], two):
        with pytest.raises(UnsupportedTypeError, match="child fields"):
            arrow_type(text, children, "col")


def test_a_map_without_a_struct_of_two_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="entries"):
        arrow_type("map", [pa.field("entries", pa.int8())], "col")


def test_strings_of_old_writers() -> None:
    assert arrow_type("blob", (), "col") == pa.large_binary()
    assert arrow_type("json", (), "col") == pa.string()
    dtype = arrow_type("fixed_size_list:lance.bfloat16:3", (), "col")
    assert dtype == pa.list_(pa.binary(2), 3)
    assert dtype.value_field.metadata[b"ARROW:extension:name"] == b"lance.bfloat16"
    assert logical_type(dtype, "col") == "fixed_size_list:lance.bfloat16:3"
