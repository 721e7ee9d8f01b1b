from __future__ import annotations

import pickle

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedTypeError
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file_pb2 as pb
from lance_spark.storage.local import LocalSource
from tests.file.conftest import read_manifest
from tests.file.schema.test_logical_types import KEPT, TURNED, named

NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field(
            "s",
            pa.struct(
                [
                    ("x", pa.int8()),
                    ("items", pa.list_(pa.struct([("p", pa.string()), ("q", pa.float32())]))),
                    ("y", pa.string()),
                ]
            ),
        ),
        pa.field("m", pa.map_(pa.string(), pa.struct([("v", pa.int8())]))),
        pa.field("Case", pa.int8()),
    ],
    metadata={"k": "v"},
)


def annotated() -> pa.Schema:
    key = "lance-schema:unenforced-primary-key"
    return pa.schema(
        [
            pa.field("id", pa.int64(), False, {key: "true", "mine": "x"}),
            pa.field("z", pa.string(), True, {"lance-encoding:compression": "zstd"}),
            pa.field("u", pa.uuid()),
            pa.field("t", pa.fixed_shape_tensor(pa.float32(), [2, 2])),
            pa.field("b8", pa.bool8(), metadata={"k": "v"}),
            pa.field("o", pa.opaque(pa.int32(), "ty", "ve")),
        ],
        metadata={"schema": "meta"},
    )


@pytest.mark.parametrize(
    "schema", [named(KEPT), named([dtype for dtype, _ in TURNED]), NESTED, annotated()]
)
def test_messages_are_those_of_pylance(schema, manifest_of) -> None:
    manifest = manifest_of(schema.empty_table())
    ours = Schema.from_arrow(schema)
    assert ours.to_protos() == list(manifest.fields)
    parsed = Schema.from_protos(manifest.fields, manifest.schema_metadata)
    assert parsed == ours
    assert parsed.to_protos() == list(manifest.fields)


@pytest.mark.parametrize("position", ["unenforced-primary-key", "unenforced-clustering-key"])
def test_positions_of_keys_are_those_of_pylance(position, manifest_of) -> None:
    tags = {f"lance-schema:{position}:position": "2"}
    schema = pa.schema([pa.field("a", pa.int8(), False, tags)])
    assert Schema.from_arrow(schema).to_protos() == list(manifest_of(schema.empty_table()).fields)


def test_a_position_that_is_no_number_is_refused() -> None:
    tags = {"lance-schema:unenforced-primary-key:position": "first"}
    with pytest.raises(InvalidInputError, match="first"):
        Schema.from_arrow(pa.schema([pa.field("a", pa.int8(), False, tags)])).to_protos()


def test_arrow_schema_is_that_of_pylance(manifest_of, tmp_path) -> None:
    schema = annotated()
    manifest = manifest_of(schema.empty_table())
    ours = Schema.from_protos(manifest.fields, manifest.schema_metadata).to_arrow()
    # After IPC, pyarrow finds the extension types by their names, as readers of pylance do.
    known = pa.ipc.read_schema(ours.serialize())
    theirs = lance.dataset(str(tmp_path / "t")).schema
    assert known.equals(theirs, check_metadata=True)
    assert ours.field("t").type == pa.list_(pa.float32(), 4)


def test_ids_count_depth_first_from_the_first() -> None:
    schema = Schema.from_arrow(NESTED, first_id=10)
    assert [node.id for node in schema.walk()] == list(range(10, 10 + 14))
    assert schema.max_field_id == 23
    assert schema.field("s.items.item.q").parent_id == schema.field("s.items.item").id
    assert schema.field_by_id(11) is schema.fields[1]
    assert schema.field_by_id(9) is None
    assert Schema(()).max_field_id == -1


def test_ids_in_any_order_and_with_gaps_are_kept() -> None:
    protos = [
        pb.Field(name="b", id=7, parent_id=-1, logical_type="struct"),
        pb.Field(name="a", id=2, parent_id=-1, logical_type="int8"),
        pb.Field(name="y", id=9, parent_id=7, logical_type="int8"),
        pb.Field(name="x", id=3, parent_id=7, logical_type="int8"),
    ]
    schema = Schema.from_protos(protos)
    assert [node.id for node in schema.walk()] == [7, 9, 3, 2]
    assert schema.field("b").arrow_field.type == pa.struct(
        [pa.field("y", pa.int8(), False), pa.field("x", pa.int8(), False)]
    )


def test_unknown_fields_of_a_message_are_kept() -> None:
    known = pb.Field(
        name="a", id=0, parent_id=-1, logical_type="int8", unenforced_clustering_key=True
    )
    raw = known.SerializeToString() + b"\xfa\x3f\x03new"  # field 1023, bytes
    (field,) = Schema.from_protos([pb.Field.FromString(raw)]).fields
    back = Schema((pickle.loads(pickle.dumps(field)),)).to_protos()[0]
    assert back.unenforced_clustering_key
    assert back.SerializeToString().endswith(b"\xfa\x3f\x03new")


def test_select() -> None:
    schema = Schema.from_arrow(NESTED)
    chosen = schema.select(["Case", "s.y", "s.items.item.q"])
    assert chosen.names == ["Case", "s"]
    assert chosen.to_arrow().field("s").type == pa.struct(
        [("items", pa.list_(pa.struct([("q", pa.float32())]))), ("y", pa.string())]
    )
    assert chosen.field("s").id == schema.field("s").id
    assert chosen.metadata == schema.metadata
    assert schema.select(["s.x", "s"]).field("s") == schema.field("s")
    assert schema.select(["m.entries.value"]).field("m") == schema.field("m")
    assert schema.select([]).fields == ()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("case", "'Case'"), ("ID", "'id'"), ("s.items.item.Q", "'q'"), ("s.itens", "'items'"), ("qqq", "'m'")],
)  # fmt: skip
def test_errors_of_unknown_names_suggest_near_names(name, nearest) -> None:
    with pytest.raises(InvalidInputError, match=nearest):
        Schema.from_arrow(NESTED).select([name])


def test_a_name_twice_is_refused() -> None:
    schema = Schema.from_arrow(NESTED)
    with pytest.raises(InvalidInputError, match="twice"):
        schema.select(["id", "id"])
    with pytest.raises(InvalidInputError, match="two fields named 'a'"):
        Schema.from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


def test_dots_in_names(tmp_path) -> None:
    arrow = pa.schema([("a.b", pa.int8())])
    with pytest.raises(InvalidInputError, match=r"a\.b"):
        Schema.from_arrow(arrow)
    with pytest.raises(OSError, match=r"a\.b"):
        lance.write_dataset(arrow.empty_table(), str(tmp_path / "t"))
    # The columns of an existing file can still be selected.
    protos = [
        pb.Field(name="a.b", id=0, parent_id=-1, logical_type="int8"),
        pb.Field(name="a", id=1, parent_id=-1, logical_type="struct"),
        pb.Field(name="b", id=2, parent_id=1, logical_type="int8"),
    ]
    assert Schema.from_protos(protos).field("a.b").id == 0


@pytest.mark.parametrize(
    "field",
    [
        pa.field("j", pa.json_()),
        pa.field("j", pa.json_(pa.large_string())),
        pa.field("j", pa.json_(pa.string_view())),
        pa.field("j", pa.string(), metadata={"ARROW:extension:name": "arrow.json"}),
        pa.field("j", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"}),
    ],
    ids=lambda field: f"{field.type} {field.metadata}",
)
def test_json_is_text_to_readers_and_has_a_type_of_its_own(field: pa.Field) -> None:
    (node,) = Schema.from_arrow(pa.schema([field])).fields
    assert node.logical_type == "json"
    assert node.to_proto().extension_name == "lance.json"
    assert node.arrow_field.type == pa.string()
    assert node.arrow_field.metadata[b"ARROW:extension:name"] == b"arrow.json"


def test_json_of_other_types_is_refused() -> None:
    field = pa.field("j", pa.int64(), metadata={"ARROW:extension:name": "arrow.json"})
    with pytest.raises(UnsupportedTypeError, match=r"'j'.*strings, not of int64"):
        Schema.from_arrow(pa.schema([field]))


def test_pickles_have_no_caches() -> None:
    schema = Schema.from_arrow(NESTED)
    before = pickle.dumps(schema)
    schema.to_arrow()
    schema.field_by_id(0)
    assert len(pickle.dumps(schema)) == len(before) < 2500
    assert pickle.loads(before) == schema
    assert hash(pickle.loads(before)) == hash(schema)


def chain(length: int) -> list[pb.Field]:
    return [pb.Field(name="s", id=i, parent_id=i - 1, logical_type="struct") for i in range(length)]


@pytest.mark.parametrize(
    "protos",
    [
        [pb.Field(name="a", id=1, parent_id=0, logical_type="int8")],
        [pb.Field(name="a", id=1, parent_id=1, logical_type="int8")],
        [pb.Field(name="a", id=1, parent_id=-1), pb.Field(name="b", id=1, parent_id=-1)],
        chain(10_000),
    ],
    ids=["orphan", "own parent", "same id", "deep"],
)
def test_lists_that_are_no_tree_are_refused(protos) -> None:
    with pytest.raises(CorruptFileError):
        Schema.from_protos(protos)


def test_blobs_are_what_a_scan_of_pylance_gives(file_of, tmp_path) -> None:
    data = pa.table(
        [lance.blob_array([b"x", None]), pa.array([1, 2])],
        schema=pa.schema([lance.blob_field("b"), pa.field("a", pa.int8())]),
    )
    file = file_of(data, "2.2")
    table = file.parent.parent
    manifest = read_manifest(table)
    scanned = lance.dataset(str(table)).to_table().schema
    ours = Schema.from_protos(manifest.fields)
    assert [child.name for child in ours.field("b").children][:2] == ["data", "uri"]
    assert ours.to_arrow().equals(scanned, check_metadata=True)
    assert ours.to_protos() == list(manifest.fields)
    # In the schema of the file, the parts of the descriptor have neither id nor parent.
    reader = FileReader.open(LocalSource(str(file)))
    assert reader.schema.names == ["b", "a"]
    assert reader.schema.to_arrow().equals(scanned, check_metadata=True)


def test_field_metadata_is_kept_in_arrow() -> None:
    field = Field.from_arrow(pa.field("a", pa.int8(), metadata={"lance-encoding:bss": "on"}), 0)
    assert field.arrow_field.metadata == {b"lance-encoding:bss": b"on"}
    assert field.to_arrow() is field.arrow_field


def test_ids_that_are_used_up() -> None:
    columns = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    schema = Schema.from_arrow(columns, 2**31 - 2)
    assert [proto.id for proto in schema.to_protos()] == [2**31 - 2, 2**31 - 1]
    with pytest.raises(InvalidInputError, match="field 'b' would have the id 2147483648"):
        Schema.from_arrow(columns, 2**31 - 1).to_protos()
