"""WAL entries: bytes, shapes of rows, damaged files, the tail of a log."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError, InvalidInputError, SchemaMismatchError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.entries import (
    Entry,
    decode_entry,
    delete_rows,
    encode_entry,
    log_schema,
    put_rows,
    read_entry,
    read_tail,
    write_entry,
)
from lance_spark.mem_wal.table.shard_manifest import wal_path
from lance_spark.storage.store import ObjectStore

KEY = {"lance-schema:unenforced-primary-key": "true"}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("v", pa.float32(), nullable=False),
        pa.field("s", pa.struct([("a", pa.string()), ("l", pa.list_(pa.int32()))])),
        pa.field("m", pa.map_(pa.string(), pa.int8())),
        pa.field("j", pa.json_()),
    ],
    {"note": "kept"},
)
SCHEMA = Schema.from_arrow(ARROW)
SHARD = uuid.UUID(int=7)


def rows_of(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array([float(number) for number in ids], pa.float32()),
            "s": pa.array([{"a": "x", "l": [number]} for number in ids], ARROW.field("s").type),
            "m": pa.array([[("k", 1)] for _ in ids], ARROW.field("m").type),
            "j": pa.array(['{"a":1}' for _ in ids], pa.json_()),
        },
        schema=ARROW,
    )


def entry_of(*ids: int, position: int = 1) -> Entry:
    return Entry(position, 3, 2, rows=put_rows(SCHEMA, rows_of(*ids)), properties={"query": "q-1"})


def test_a_log_has_the_ids_of_all_fields_and_nullable_values() -> None:
    schema = log_schema(SCHEMA)
    assert schema.names == [*ARROW.names, "_tombstone"]
    assert [field.nullable for field in schema] == [False, True, True, True, True, False]
    assert schema.field("s").type.field("l").metadata[b"lance:field_id"] == b"4"
    assert schema.field("m").type.item_field.metadata[b"lance:field_id"] == b"9"
    assert schema.field("j").type == pa.large_binary()
    assert schema.metadata == {b"note": b"kept"}


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = entry_of(1, 2)
    decoded = decode_entry(encode_entry(entry), "e", 1)
    assert (decoded.writer_epoch, decoded.generation, decoded.is_sentinel) == (3, 2, False)
    assert decoded.properties == {"query": "q-1"}
    assert decoded.rows is not None
    assert entry.rows is not None
    assert decoded.rows.equals(entry.rows)
    assert decoded.rows.schema.field("v").metadata == {b"lance:field_id": b"1"}
    assert decoded.rows["_tombstone"].to_pylist() == [False, False]


def test_tombstones_have_the_key_alone() -> None:
    rows = delete_rows(SCHEMA, pa.table({"other": [0, 0], "id": [5, 6]}))
    assert rows.to_pylist()[0] == dict.fromkeys(ARROW.names) | {"id": 5, "_tombstone": True}
    assert decode_entry(encode_entry(Entry(1, 1, rows=rows)), "e", 1).rows == rows


def test_a_sentinel_has_no_rows() -> None:
    data = encode_entry(Entry(4, 9, is_sentinel=True))
    assert decode_entry(data, "e", 4) == Entry(4, 9, is_sentinel=True)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_buffers_may_be_compressed_up_to_a_limit(compression: str) -> None:
    schema = pa.schema([("id", pa.int64())], {"writer_epoch": "1"})

    def stream(count: int) -> bytes:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            batch = pa.record_batch([pa.repeat(pa.scalar(0, pa.int64()), count)], schema=schema)
            for _ in range(30):
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    decoded = decode_entry(stream(1000), "e", 1)
    assert decoded.rows is not None
    assert decoded.rows.num_rows == 30_000
    assert decoded.rows.column_names == ["id", "_tombstone"]
    if compression == "zstd":
        with pytest.raises(CorruptFileError, match="decompress to"):
            decode_entry(stream(500_000), "e", 1)


def test_an_entry_without_end_marker_is_whole() -> None:
    data = encode_entry(entry_of(1))
    assert data.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    assert decode_entry(data[:-8], "e", 1).rows == entry_of(1).rows


def _stream(metadata: dict[str, str], columns: dict[str, pa.Array]) -> bytes:
    table = pa.table(columns).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"\xff\xff\xff\xff\0\0\0\0", "cannot be read"),
        (_stream({}, {"id": pa.array([1])}), "writer_epoch must be a number"),
        (_stream({"writer_epoch": "-1"}, {"id": pa.array([1])}), "writer_epoch must be a number"),
        (_stream({"writer_epoch": "9" * 20}, {"id": pa.array([1])}), "must be a number below 2"),
        (_stream({"writer_epoch": "1", "generation": "x"}, {"id": pa.array([1])}), "generation"),
        (_stream({"writer_epoch": "1"}, {"_tombstone": pa.array([1])}), "must be bool"),
        (_stream({"writer_epoch": "1"}, {"_tombstone": pa.array([True, None])}), "1 nulls"),
    ],
)
def test_a_damaged_entry_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        decode_entry(data, "e", 1)


def test_each_truncation_is_refused_or_whole() -> None:
    data = encode_entry(entry_of(1, 2, 3))
    whole = decode_entry(data, "e", 1)
    for length in range(0, len(data) - 8, 16):
        try:
            decoded = decode_entry(data[:length], "e", 1)
        except CorruptFileError:
            continue
        # Only the schema is left, as in an entry of no rows.
        assert decoded.rows is not None
        assert decoded.rows.num_rows == 0 or decoded == whole


def test_rows_must_fit_the_table() -> None:
    with pytest.raises(SchemaMismatchError, match="does not have the column 'm'"):
        put_rows(SCHEMA, rows_of(1).drop_columns(["m"]))
    with pytest.raises(SchemaMismatchError, match="do not have the column 'id'"):
        delete_rows(SCHEMA, pa.table({"v": [1.0]}))
    with pytest.raises(InvalidInputError, match="must not be null"):
        delete_rows(SCHEMA, pa.table({"id": pa.array([None], pa.int64())}))


def test_a_log_ends_at_its_first_gap(tmp_path: Path) -> None:
    store = ObjectStore.from_uri(str(tmp_path))
    for position in (1, 2, 3, 5):
        assert write_entry(store, SHARD, entry_of(position, position=position))
    assert not write_entry(store, SHARD, entry_of(9, position=2))
    assert [entry.position for entry in read_tail(store, SHARD, 0)] == [1, 2, 3]
    assert [entry.position for entry in read_tail(store, SHARD, 2)] == [3]
    assert list(read_tail(store, SHARD, 3)) == []
    assert read_entry(store, SHARD, 4) is None
    (tmp_path / wal_path(SHARD, 4)).write_bytes(b"")
    with pytest.raises(CorruptFileError, match=wal_path(SHARD, 4)):
        list(read_tail(store, SHARD, 0))


def test_a_log_on_another_store_is_read_in_groups() -> None:
    store = ObjectStore.from_uri(f"memory://{uuid.uuid4()}")
    for position in range(1, 41):
        write_entry(store, SHARD, Entry(position, 1, is_sentinel=True))
    assert [entry.position for entry in read_tail(store, SHARD, 7)] == list(range(8, 41))
