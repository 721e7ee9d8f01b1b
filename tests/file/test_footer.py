from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from google.protobuf import any_pb2
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.errors import CorruptFileError, UnsupportedEncodingError, UnsupportedFeatureError
from lance_spark.file.footer import (
    Tail,
    add_page,
    encode_tail,
    new_column,
    parse_descriptor,
    read_columns,
    read_footer,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file2_pb2, file_pb2
from tests.file.sources import MemorySource

VERSIONS = {"2.0": (2, 0), "2.1": (2, 1), "2.2": (2, 2)}


@pytest.fixture(scope="module")
def data() -> pa.Table:
    return pa.table(
        {
            "a": list(range(500)),
            "s": [{"x": i, "y": f"value {i}"} for i in range(500)],
            "l": [[i] * (i % 3) for i in range(500)],
        }
    )


@pytest.fixture(scope="module", params=VERSIONS)
def version(request) -> str:
    return request.param


def test_facts_are_those_that_pylance_reads(path, raw, version) -> None:
    theirs = LanceFileReader(str(path)).metadata()
    tail = Tail(MemorySource(raw))
    footer = read_footer(tail)
    assert footer.version == VERSIONS[version]
    assert parse_descriptor(footer.descriptor).length == theirs.num_rows == 500
    columns = read_columns(tail, footer, range(len(footer.column_metadata)))
    assert len(columns) == len(theirs.columns) == (6 if version == "2.0" else 4)
    for ours, their in zip(columns, theirs.columns, strict=True):
        result = [[(b.offset, b.length) for b in page.buffers] for page in ours.pages]
        expected = [[(b.position, b.size) for b in page.buffers] for page in their.pages]
        assert result == expected
        assert all(page.encoding for page in ours.pages)
        assert ours.encoding == b"\n\x00"


def test_the_end_of_a_file_is_written_byte_for_byte_as_pylance_does(raw, version) -> None:
    tail = Tail(MemorySource(raw))
    footer = read_footer(tail)
    columns = read_columns(tail, footer, range(len(footer.column_metadata)))
    descriptor = parse_descriptor(footer.descriptor)
    schema = Schema.from_arrow(Schema.from_protos(descriptor.schema.fields).to_arrow())
    ours = file_pb2.FileDescriptor(
        schema=file_pb2.Schema(fields=schema.to_protos()), length=descriptor.length
    )
    protos = []
    for column in columns:
        protos.append(new_column())
        for page in column.pages:
            add_page(
                protos[-1],
                footer.version,
                page.buffers,
                page.num_rows,
                page.priority,
                page.encoding,
            )
    start = footer.global_buffers[0].offset
    parts = encode_tail(footer.version, ours, [p.SerializeToString() for p in protos], start)
    assert b"".join(parts) == raw[start:]


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (0, 4), (1, 0), (2, 4), (3, 0), (65535, 1)])
def test_other_versions_are_refused_by_name(raw, numbers) -> None:
    patched = raw[:-8] + struct.pack("<HH4s", *numbers, b"LANC")
    name = r"0\.1 have another container" if numbers < (0, 3) else r"{}\.{}".format(*numbers)
    with pytest.raises(UnsupportedFeatureError, match=name):
        read_footer(Tail(MemorySource(patched)))


@pytest.mark.parametrize("junk", [b"", b"x", b"LANC", b"PAR1" * 20, b"\0" * 100_000])
def test_other_files_than_lance_files_are_refused(junk) -> None:
    with pytest.raises(CorruptFileError, match=r"memory\.lance"):
        read_footer(Tail(MemorySource(junk)))


@pytest.mark.parametrize("place", [8, 16, 24, 28])
@pytest.mark.parametrize("value", [2**32 - 1, 10**6])
def test_tables_outside_the_file_are_refused(raw, place, value) -> None:
    at = len(raw) - 40 + place
    with pytest.raises(CorruptFileError, match="table"):
        read_footer(Tail(MemorySource(raw[:at] + struct.pack("<I", value) + raw[at + 4 :])))


@pytest.mark.parametrize("entry", [(2**64 - 1, 2), (2**63, 2**63), (0, 2**64 - 1), (10**6, 1)])
def test_entries_outside_the_file_are_refused(raw, entry) -> None:
    columns_at, buffers_at = struct.unpack_from("<QQ", raw, len(raw) - 32)
    for at, part_name in ((columns_at, "column metadata 0"), (buffers_at, "global buffer 0")):
        patched = raw[:at] + struct.pack("<QQ", *entry) + raw[at + 16 :]
        with pytest.raises(CorruptFileError, match=part_name):
            read_footer(Tail(MemorySource(patched)))


def test_a_file_without_a_schema_is_refused(raw) -> None:
    at = len(raw) - 16
    tail = Tail(MemorySource(raw[:at] + struct.pack("<I", 0) + raw[at + 4 :]))
    with pytest.raises(CorruptFileError, match="schema"):
        read_footer(tail)


def test_columns_that_are_not_there(raw) -> None:
    tail = Tail(MemorySource(raw))
    for index in (-1, 6):
        with pytest.raises(CorruptFileError, match=str(index)):
            read_columns(tail, read_footer(tail), [index])


def rewritten(column: file2_pb2.ColumnMetadata, payload: bytes = b"") -> MemorySource:
    """A file of one column, whose first bytes are `payload`."""
    payload += b"H" * (-len(payload) % 64)
    tail = encode_tail(
        (2, 2), file_pb2.FileDescriptor(), [column.SerializeToString()], len(payload)
    )
    return MemorySource(payload + b"".join(tail))


def parsed(column: file2_pb2.ColumnMetadata, payload: bytes = b""):
    tail = Tail(rewritten(column, payload))
    return read_columns(tail, read_footer(tail), [0])[0]


def page_of(url: str) -> file2_pb2.ColumnMetadata.Page:
    wrapped = any_pb2.Any(type_url=url, value=b"\n\x00")
    direct = file2_pb2.DirectEncoding(encoding=wrapped.SerializeToString())
    return file2_pb2.ColumnMetadata.Page(encoding=file2_pb2.Encoding(direct=direct), length=3)


@pytest.mark.parametrize("prefix", ["/", "type.googleapis.com/"])
def test_encodings_are_known_by_the_name_of_their_message(prefix) -> None:
    column = file2_pb2.ColumnMetadata(pages=[page_of(prefix + "lance.encodings21.PageLayout")])
    assert parsed(column).pages[0].encoding == b"\n\x00"


@pytest.mark.parametrize(
    "name", ["/lance.encodings.ArrayEncoding", "/lance.encodings23.PlanarLayout", ""]
)
def test_encodings_of_other_versions_are_refused(name) -> None:
    with pytest.raises(UnsupportedEncodingError, match=r"memory\.lance, column 0, page 0"):
        parsed(file2_pb2.ColumnMetadata(pages=[page_of(name)]))


def test_encodings_may_lie_elsewhere_in_the_file() -> None:
    direct = page_of("/lance.encodings21.PageLayout").encoding.direct.encoding
    deferred = file2_pb2.DeferredEncoding(buffer_location=64, buffer_length=len(direct))
    page = file2_pb2.ColumnMetadata.Page(encoding=file2_pb2.Encoding(indirect=deferred))
    column = file2_pb2.ColumnMetadata(pages=[page])
    assert parsed(column, b"\0" * 64 + direct).pages[0].encoding == b"\n\x00"
    deferred.buffer_length = 2**40
    page.encoding.indirect.CopyFrom(deferred)
    with pytest.raises(CorruptFileError, match="outside"):
        parsed(file2_pb2.ColumnMetadata(pages=[page]))


@pytest.mark.parametrize(
    "page",
    [
        file2_pb2.ColumnMetadata.Page(buffer_offsets=[0, 64], buffer_sizes=[1]),
        file2_pb2.ColumnMetadata.Page(buffer_offsets=[0], buffer_sizes=[2**40]),
        file2_pb2.ColumnMetadata.Page(buffer_offsets=[2**64 - 1], buffer_sizes=[2]),
        file2_pb2.ColumnMetadata.Page(length=2**63),
        file2_pb2.ColumnMetadata.Page(priority=2**64 - 1),
    ],
    ids=["unpaired", "long", "far", "rows", "priority"],
)
def test_pages_that_cannot_be_are_refused(page) -> None:
    with pytest.raises(CorruptFileError, match="column 0, page 0"):
        parsed(file2_pb2.ColumnMetadata(pages=[page]))


@pytest.mark.parametrize("count", [1500, 5000])
def test_a_wide_file_is_opened_with_two_reads_and_columns_on_demand(tmp_path, count) -> None:
    wide = pa.table({f"column_{i}": pa.array([i], pa.int32()) for i in range(count)})
    with LanceFileWriter(str(tmp_path / "f.lance"), version="2.2") as writer:
        writer.write_batch(wide)
    source = MemorySource((tmp_path / "f.lance").read_bytes())
    tail = Tail(source)
    footer = read_footer(tail)
    assert parse_descriptor(footer.descriptor).length == 1
    assert len(source.calls) == 2
    read_columns(tail, footer, [5, 170])
    assert len(source.calls) == 3
    assert sum(r.length for r in source.calls[-1]) < 1000


def test_a_small_file_is_opened_with_one_read(raw) -> None:
    source = MemorySource(raw)
    tail = Tail(source)
    footer = read_footer(tail)
    parse_descriptor(footer.descriptor)
    read_columns(tail, footer, range(len(footer.column_metadata)))
    assert source.calls == [[(max(0, len(raw) - 65536), min(len(raw), 65536))]]
