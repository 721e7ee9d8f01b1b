"""One column for every encoding of every file version, and the field metadata that makes pylance
choose it.

Columns have 16 MiB of Arrow bytes, which are two pages. The names of pages are those of
`tests/interop/files/test_forced.py`: ``mini(general:zstd(flat:64))`` is a mini-block page of values
that were compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from lance_spark.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    file_pb2,
    table_pb2,
)

BYTES = 16 << 20
#: Rows of columns of numbers of 64 bits, and of strings of about 50 bytes.
ROWS = BYTES // 8
TEXTS = BYTES // 50
_KEY = "lance-encoding:"


@dataclass(frozen=True)
class Case:
    """A column for one encoding.

    Attributes
    ----------
    name : str
        Of the encoding.
    version : str
        Of the file.
    page : str
        What the name of pylance's first page begins with.
    make : callable
        Returns the column.
    metadata : dict of str to str
        Of the field, without the prefix of the keys.
    at_least : float
        The least speed of decoding that is wanted, as a part of pylance's.
    whole : bool
        Whether a table is written and read, not a file: descriptors of blobs, and version 0.1.
    """

    name: str
    version: str
    page: str
    make: Callable[[], pa.Array]
    metadata: dict[str, str] = field(default_factory=dict)
    at_least: float = 0.5
    whole: bool = False

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.version} {self.name}".replace(" ", "_").replace(",", "").replace("/", "-")

    def table(self) -> pa.Table:
        """Return the column in a table of its own."""
        array = self.make()
        metadata = {_KEY + key: value for key, value in self.metadata.items()}
        kind = array.type
        if metadata and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            kind = pa.list_(pa.field("item", kind.value_type, metadata=metadata))
            array = array.cast(kind)
        schema = pa.schema([pa.field("c", kind, metadata=metadata or None)])
        return pa.table([array], schema=schema)


# Columns


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def bits(width: int, kind: pa.DataType) -> Callable[[], pa.Array]:
    """Random numbers of some bits."""

    def make() -> pa.Array:
        values = _rng().integers(0, 1 << width, BYTES * 8 // kind.bit_width, dtype=np.int64)
        return pa.array(values.astype(kind.to_pandas_dtype()), kind)

    return make


def mixed_widths() -> pa.Array:
    """Numbers whose largest differs from chunk to chunk."""
    most = np.repeat(1 << _rng().integers(1, 60, ROWS // 1024), 1024)
    return pa.array(_rng().integers(0, most))


def floats() -> pa.Array:
    return pa.array(_rng().normal(0, 1, ROWS))


def steps() -> pa.Array:
    """Floats whose bytes are alike."""
    return pa.array(np.cumsum(_rng().integers(0, 100, ROWS)) / 4)


def runs() -> pa.Array:
    return pa.array(np.repeat(_rng().integers(0, 1 << 40, ROWS // 32), 32))


def short_runs() -> pa.Array:
    lengths = _rng().integers(1, 12, ROWS // 4)
    return pa.array(np.repeat(_rng().integers(0, 1 << 40, ROWS // 4), lengths)[:ROWS])


def few() -> pa.Array:
    return pa.array(_rng().integers(0, 200, ROWS) * 1_000_003)


def sequence() -> pa.Array:
    return pa.array(np.arange(ROWS))


def nulls(make: Callable[[], pa.Array], share: float = 0.3) -> Callable[[], pa.Array]:
    """A column with nulls at random."""

    def with_nulls() -> pa.Array:
        array = make()
        valid = pa.array(np.random.default_rng(9).random(len(array)) >= share)
        return pc.if_else(valid, array, pa.scalar(None, array.type))

    return with_nulls


def booleans() -> pa.Array:
    return pa.array(_rng().random(BYTES * 2) < 0.5)


def decimals() -> pa.Array:
    data = _rng().integers(0, 1 << 60, BYTES // 8)
    data[1::2] = 0
    return pa.Array.from_buffers(pa.decimal128(30, 4), BYTES // 16, [None, pa.py_buffer(data)])


def texts() -> pa.Array:
    """Sentences of eight of 160 words."""
    rng = _rng()
    known = pa.array([f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta") for b in range(40)])
    parts = [known.take(pa.array(rng.integers(0, 160, TEXTS))) for _ in range(8)]
    return pc.binary_join_element_wise(*parts, " ")


def few_texts() -> pa.Array:
    return texts()[:200].take(pa.array(_rng().integers(0, 200, TEXTS)))


def equal_texts() -> pa.Array:
    return pc.utf8_slice_codeunits(texts(), 0, 30)


def alternating_texts() -> pa.Array:
    """Nine digits, and nothing, by turns."""
    digits = pa.array(_rng().integers(10**8, 10**9, ROWS)).cast(pa.string())
    return pc.if_else(pa.array(np.arange(ROWS) % 2 == 0), digits, "")


def fewer_texts() -> pa.Array:
    return texts()[:50].take(pa.array(_rng().integers(0, 50, TEXTS)))


def dictionaries() -> pa.Array:
    """Indices of 32 bits into a dictionary of strings."""
    indices = pa.array(_rng().integers(0, 200, BYTES // 4, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, texts()[:200])


def texts_of_runs() -> pa.Array:
    return texts()[:200].take(pa.array(np.repeat(_rng().integers(0, 200, TEXTS // 32), 32)))


def long_texts() -> pa.Array:
    """Texts of some hundreds of bytes."""
    array = texts()
    parts = [array[i::8][: TEXTS // 8] for i in range(8)]
    return pc.binary_join_element_wise(*parts, " ")


def documents() -> pa.Array:
    """Texts of some thousands of bytes."""
    array = long_texts()
    parts = [array[i::16][: len(array) // 16] for i in range(16)]
    return pc.binary_join_element_wise(*parts, " ")


def lists(items: Callable[[], pa.Array], share: float = 0.1) -> Callable[[], pa.Array]:
    """Lists of none to six items, some of them null."""

    def make() -> pa.Array:
        values = items()
        rng = np.random.default_rng(3)
        ends = np.cumsum(rng.integers(0, 7, len(values) // 3))
        ends = ends[ends <= len(values)]
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        mask = pa.array(rng.random(len(ends)) < share)
        return pa.ListArray.from_arrays(offsets, values, mask=mask if share else None)

    return make


def lists_of_lists() -> pa.Array:
    inner = lists(bits(60, pa.int64()))()
    ends = np.arange(0, len(inner) + 1, 3)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner[: int(ends[-1])])


def lists_of_structs() -> pa.Array:
    count = ROWS // 2
    items = pa.StructArray.from_arrays(
        [bits(60, pa.int64())()[:count], floats()[:count]], ["a", "b"]
    )
    return lists(lambda: items)()


def maps() -> pa.Array:
    keys = few_texts()[: TEXTS // 2]
    ends = np.arange(0, len(keys) + 1, 4)
    values = bits(30, pa.int32())()[: len(keys)]
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values)


def vectors(
    size: int, item_nulls: float = 0.0, vector_nulls: float = 0.0
) -> Callable[[], pa.Array]:
    """Vectors of floats."""

    def make() -> pa.Array:
        values = pa.array(_rng().normal(0, 1, BYTES // 4 // size * size).astype(np.float32))
        if item_nulls:
            values = nulls(lambda: values, item_nulls)()
        mask = pa.array(np.random.default_rng(4).random(len(values) // size) < vector_nulls)
        return pa.FixedSizeListArray.from_arrays(values, size, mask=mask if vector_nulls else None)

    return make


def fixed_structs() -> pa.Array:
    count = BYTES // 12
    fields = [pa.field("a", pa.int32(), False), pa.field("b", pa.float64(), False)]
    a = pa.array(_rng().integers(0, 1 << 30, count, dtype=np.int32))
    return pa.StructArray.from_arrays([a, pa.array(_rng().normal(0, 1, count))], fields=fields)


def variable_structs() -> pa.Array:
    fields = [pa.field("a", pa.int64(), False), pa.field("s", pa.string(), False)]
    return pa.StructArray.from_arrays([bits(60, pa.int64())()[:TEXTS], texts()], fields=fields)


def constant() -> pa.Array:
    return pa.array(np.full(ROWS, 12_345))


def constant_and_nulls() -> pa.Array:
    return nulls(constant)()


def all_null() -> pa.Array:
    return pa.nulls(ROWS, pa.int64())


def blobs() -> pa.Array:
    data = _rng().bytes(BYTES)
    return pa.array([data[i : i + 1024] for i in range(0, BYTES, 1024)], pa.large_binary())


def rare() -> pa.Array:
    """Nulls but for one value of fifty."""
    return nulls(bits(60, pa.int64()), 0.98)()


def rare_lists() -> pa.Array:
    """Lists that are null but for one of fifty."""
    count = ROWS
    rng = _rng()
    there = rng.random(count) < 0.02
    offsets = pa.array(np.concatenate([[0], np.cumsum(there * 5)]), pa.int32())
    values = pa.array(rng.integers(0, 1 << 60, int(there.sum()) * 5))
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~there))


# Cases

_INT = pa.int64()
_RANDOM = bits(60, _INT)
_FULL_ZIP = {"structural-encoding": "fullzip"}
_NOTHING = {"compression": "none"}
_FSST = {"compression": "fsst"}
_ZSTD = {"compression": "zstd"}
_LZ4 = {"compression": "lz4"}


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield from _version_0_1()
    yield from _version_2_0()
    for version in ("2.1", "2.2"):
        yield from _version_2_1(version)
    yield from _version_2_3()


def _version_0_1() -> Iterator[Case]:
    for name, page, make, least in (
        ("plain int64", "plain", _RANDOM, 1.0),
        ("plain bool", "plain", booleans, 0.5),
        ("plain vectors", "plain", vectors(128), 1.0),
        ("var-binary", "var_binary", texts, 0.5),
        ("dictionary", "dictionary", dictionaries, 1.0),
        ("list", "plain", lists(_RANDOM, 0.0), 0.5),
    ):
        yield Case(name, "0.1", page, make, {}, least, whole=True)


def _version_2_0() -> Iterator[Case]:
    def case(
        name: str, page: str, make: Callable[[], pa.Array], least: float = 0.5, **metadata: str
    ) -> Case:
        return Case(name, "2.0", page, make, metadata, least)

    yield case("flat", "nullable(flat:64", _RANDOM, 1.0)
    yield case("flat bool", "nullable(flat:1", booleans, 1.0)
    yield case("nullable", "nullable(flat:1,flat:64", nulls(_RANDOM))
    yield case("fixed-size list", "nullable(fixed_size_list:128(", vectors(128), 1.0)
    yield case("list", "list(", lists(_RANDOM))
    yield case("binary", "binary(", texts, 0.5, **_NOTHING)
    yield case("dictionary", "dictionary(", fewer_texts, 1.0)
    yield case("FSST", "fsst(binary(", texts, 0.5, **_FSST)
    yield case("zstd", "binary(", texts, 0.5, **_ZSTD)
    yield case("lz4", "binary(", texts, 0.5, **_LZ4)
    yield case("packed struct", "packed_struct(", fixed_structs, 0.5, packed="true")


def _version_2_1(version: str) -> Iterator[Case]:
    newer = version == "2.2"
    plain = {"dict-divisor": "1000000"}

    def case(
        name: str,
        page: str,
        make: Callable[[], pa.Array],
        least: float = 0.5,
        metadata: dict[str, str] | None = None,
    ) -> Case:
        return Case(name, version, page, make, metadata or {}, least)

    yield case("flat float64", "mini(flat:64)", floats, 1.0)
    yield case("flat int64", "mini(flat:64)", _RANDOM, 1.0, _NOTHING)
    yield case("flat decimal", "mini(flat:128)", decimals, 1.0)
    yield case("flat bool", "mini(flat:1)", booleans, 1.0)
    yield case("full-zip flat", "zip(flat:64)", _RANDOM, 1.0, _FULL_ZIP)
    for width, kind in (
        (4, pa.int8()),
        (5, pa.int16()),
        (12, pa.int16()),
        (3, pa.int32()),
        (17, pa.int32()),
        (27, pa.int32()),
        (8, _INT),
        (20, _INT),
        (33, _INT),
        (48, _INT),
        (60, _INT),
    ):
        yield case(
            f"inline bit-packing, {width} of {kind.bit_width} bits",
            f"mini(inline:{kind.bit_width})",
            bits(width, kind),
            0.5,
            plain,
        )
    yield case(
        "inline bit-packing, mixed widths",
        "mini(inline:64)",
        mixed_widths,
        0.5,
        plain,
    )
    yield case("nullable int64", "mini(inline:64) def(packed:16", nulls(_RANDOM))
    yield case("nullable float64", "mini(flat:64) def(packed:16", nulls(floats), 0.5)
    yield case("nullable, few nulls", "mini(inline:64) def(", nulls(_RANDOM, 0.001))
    yield case("RLE", "mini(rle(", runs, 1.0, plain)
    yield case("RLE, short runs", "mini(rle(", short_runs, 1.0, {**plain, "rle-threshold": "1.0"})
    yield case(
        "byte stream split + lz4", "mini(general:lz4(planes(", steps, 0.5, {**_LZ4, "bss": "on"}
    )
    yield case(
        "byte stream split + zstd", "mini(general:zstd(planes(", steps, 0.5, {**_ZSTD, "bss": "on"}
    )
    yield case("lz4", "mini(general:lz4(", steps, 0.5, {**_LZ4, "bss": "off"})
    yield case("zstd", "mini(general:zstd(", steps, 0.5, {**_ZSTD, "bss": "off"})
    yield case("variable", "mini(variable(flat:32))", texts, 0.5, _NOTHING)
    yield case("variable, nulls", "mini(variable(flat:32)) def(", nulls(texts), 0.5, _NOTHING)
    yield case("FSST", "mini(fsst(variable(", texts, 0.5, _FSST)
    yield case("variable + lz4", "mini(general:lz4(variable(", texts, 0.5, _LZ4)
    yield case("variable + zstd", "mini(general:zstd(variable(", texts, 0.5, _ZSTD)
    yield case("dictionary, strings", "mini(inline:32) dict(", few_texts, 1.0)
    yield case("dictionary, strings in runs", "mini(rle(", texts_of_runs, 1.0)
    yield case("dictionary, nulls", "mini(inline:32) dict(", nulls(few_texts), 1.0)
    if newer:
        yield case("dictionary, int64", "mini(inline:32) dict(", few, 1.0)
    yield case("dictionary type", "mini(inline:32) dict(", dictionaries, 1.0)
    yield case("fixed-size list, mini-block", "mini(vector:8(", vectors(8), 1.0)
    yield case(
        "fixed-size list, null items, mini-block", "mini(vector:8,nulls", vectors(8, 0.2), 1.0
    )
    yield case("fixed-size list, full-zip", "zip(vector:256(", vectors(256), 1.0)
    yield case(
        "fixed-size list, null items, full-zip", "zip(vector:256,nulls", vectors(256, 0.2), 1.0
    )
    yield case("fixed-size list, nulls, full-zip", "zip(vector:256(", vectors(256, 0.0, 0.3), 1.0)
    yield case("packed struct, fixed", "mini(struct:32+64(", fixed_structs, 0.5, {"packed": "true"})
    if newer:
        yield case(
            "packed struct, variable", "zip(rows(", variable_structs, 0.5, {"packed": "true"}
        )
    if newer:
        yield case("constant", "constant", constant)
        yield case("constant, nulls", "constant", constant_and_nulls)
    yield case("all null", "constant", all_null)
    yield case("full-zip strings", "zip(variable(", documents, 0.5, {**_NOTHING, **_FULL_ZIP})
    yield case("full-zip short strings", "zip(variable(", texts, 0.5, {**_NOTHING, **_FULL_ZIP})
    yield case("full-zip strings, FSST", "zip(fsst(variable(", long_texts, 0.5, _FULL_ZIP)
    yield case("full-zip strings, zstd", "zip(general:zstd", documents, 0.5, {**_FULL_ZIP, **_ZSTD})
    yield case("full-zip nullable", "zip(flat:64)", nulls(_RANDOM), 0.5, _FULL_ZIP)
    yield case("full-zip list", "zip(flat:64)", lists(_RANDOM), 0.5, _FULL_ZIP)
    yield case("list", "mini(", lists(_RANDOM))
    yield case("list of list", "mini(", lists_of_lists)
    yield case("list of strings", "mini(", lists(texts), 0.5, _NOTHING)
    yield case("list of struct", "mini(", lists_of_structs)
    if newer:
        yield case("map", "mini(", maps)
    yield Case("blob descriptors", version, "", blobs, {"blob": "true"}, 0.5, whole=True)


def _version_2_3() -> Iterator[Case]:
    sparse = {"structural-encoding": "sparse"}
    for name, page, make, metadata, least in (
        ("flat", "dense chunked(flat:64)", floats, {}, 1.0),
        ("inline bit-packing", "dense chunked(inline:64)", _RANDOM, {}, 0.5),
        ("nullable", "dense chunked(inline:64)", nulls(_RANDOM), {}, 0.5),
        ("sparse nulls", "sparse ", rare, sparse, 0.5),
        ("sparse lists", "sparse ", rare_lists, sparse, 0.5),
        ("sparse full column", "sparse ", nulls(_RANDOM), sparse, 0.5),
        ("sparse list", "sparse ", lists(_RANDOM), sparse, 0.5),
        ("variable", "dense chunked(variable(", texts, _NOTHING, 0.5),
        ("offsets in a range", "dense chunked(variable(range", equal_texts, _NOTHING, 0.5),
        (
            "offsets as differences",
            "dense chunked(variable(delta",
            alternating_texts,
            _NOTHING,
            0.5,
        ),
    ):
        yield Case(name, "2.3", page, make, metadata, least)


# Names of pages


def page_name(path: Path, version: str) -> str:
    """Return the name of the encoding of the first page of a file, or of the first file of a
    table.
    """
    if version == "0.1":
        return _name_0_1(path)
    if path.is_dir():
        path = next((path / "data").glob("*.lance"))
    file = path.read_bytes()
    table = struct.unpack_from("<QQQIIHH4s", file, len(file) - 40)[1]
    at, size = struct.unpack_from("<QQ", file, table)
    pages = file2_pb2.ColumnMetadata.FromString(file[at : at + size]).pages
    message = Any.FromString(pages[0].encoding.direct.encoding).value
    if version == "2.0":
        return _name_2_0(encodings_v2_0_pb2.ArrayEncoding.FromString(message))
    if version == "2.3":
        return _name_2_3(encodings_v2_3_pb2.PlanarLayout.FromString(message))
    from tests.interop.files.test_forced import page_told

    return page_told(encodings_v2_1_pb2.PageLayout.FromString(message))


def _name_0_1(path: Path) -> str:
    (manifest,) = (path / "_versions").glob("*.manifest")
    data = manifest.read_bytes()
    (at,) = struct.unpack_from("<Q", data, len(data) - 16)
    (size,) = struct.unpack_from("<I", data, at)
    fields = table_pb2.Manifest.FromString(data[at + 4 : at + 4 + size]).fields
    return ",".join(file_pb2.Encoding.Name(field.encoding).lower() for field in fields)


def _name_2_0(encoding: encodings_v2_0_pb2.ArrayEncoding) -> str:
    kind = encoding.WhichOneof("array_encoding")
    message = getattr(encoding, kind)
    name = str(kind)
    if kind == "flat":
        name += f":{message.bits_per_value}"
        if message.compression.scheme:
            name += f":{message.compression.scheme}"
    if kind == "fixed_size_list":
        name += f":{message.dimension}"
    inner = ",".join(_name_2_0(part) for part in _parts_2_0(message))
    return f"{name}({inner})" if inner else name


def _parts_2_0(message: Message) -> Iterator[encodings_v2_0_pb2.ArrayEncoding]:
    for of, value in message.ListFields():
        if of.message_type is None:
            continue
        for part in value if of.is_repeated else [value]:
            if isinstance(part, encodings_v2_0_pb2.ArrayEncoding):
                yield part
            else:
                yield from _parts_2_0(part)


def _name_2_3(layout: encodings_v2_3_pb2.PlanarLayout) -> str:
    from tests.interop.files.test_forced import told

    values = layout.values.WhichOneof("codec")
    found = f"{layout.structure.WhichOneof('codec')} {values}"
    message = getattr(layout.values, values)
    if "compression" in {of.name for of in message.DESCRIPTOR.fields}:
        found += f"({told(message.compression)})"
    return found
