"""The cases of the benchmark of encodings: one column for every encoding of every file version.

The values of a column and the metadata of its field make pylance choose the encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from benchmarks import page_columns as columns

#: The prefix of the metadata keys that choose an encoding.
PREFIX = "lance-encoding:"


@dataclass(frozen=True)
class Case:
    """A column, and the encoding in which pylance writes the column.

    Attributes
    ----------
    name : str
        The encoding, in the report.
    version : str
        The file version.
    page : str
        The begin of the name of pylance's first page. See `page_names`.
    make : callable
        Returns the column.
    metadata : dict of str to str
        Metadata of the field. The keys lack the prefix `lance-encoding:`.
    at_least : float
        The least speed of decoding that the project wants. 1 is the speed of pylance.
    whole_table : bool
        Whether the clients write and read a table, not a file. Blobs and version 0.1 need a table.
    """

    name: str
    version: str
    page: str
    make: Callable[[], pa.Array]
    metadata: dict[str, str] = field(default_factory=dict)
    at_least: float = 0.5
    whole_table: bool = False

    @property
    def key(self) -> str:
        """Return a name of the case for files and for the command line."""
        return f"{self.version} {self.name}".replace(" ", "_").replace(",", "").replace("/", "-")

    def table(self) -> pa.Table:
        """Return a table of the column."""
        array = self.make()
        metadata = {PREFIX + key: value for key, value in self.metadata.items()}
        dtype = array.type
        if metadata and (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)):
            dtype = pa.list_(pa.field("item", dtype.value_type, metadata=metadata))
            array = array.cast(dtype)
        schema = pa.schema([pa.field("c", dtype, metadata=metadata or None)])
        return pa.table([array], schema=schema)


_INT = pa.int64()
_RANDOM = columns.bits(60, _INT)
_FULL_ZIP = {"structural-encoding": "fullzip"}
_UNCOMPRESSED = {"compression": "none"}
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
        ("plain bool", "plain", columns.booleans, 0.5),
        ("plain vectors", "plain", columns.vectors(128), 1.0),
        ("var-binary", "var_binary", columns.texts, 0.5),
        ("dictionary", "dictionary", columns.dictionaries, 1.0),
        ("list", "plain", columns.lists(_RANDOM, 0.0), 0.5),
    ):
        yield Case(name, "0.1", page, make, {}, least, whole_table=True)


def _version_2_0() -> Iterator[Case]:
    def case(
        name: str, page: str, make: Callable[[], pa.Array], least: float = 0.5, **metadata: str
    ) -> Case:
        return Case(name, "2.0", page, make, metadata, least)

    yield case("flat", "nullable(flat:64", _RANDOM, 1.0)
    yield case("flat bool", "nullable(flat:1", columns.booleans, 1.0)
    yield case("nullable", "nullable(flat:1,flat:64", columns.nulls(_RANDOM))
    yield case("fixed-size list", "nullable(fixed_size_list:128(", columns.vectors(128), 1.0)
    yield case("list", "list(", columns.lists(_RANDOM))
    yield case("binary", "binary(", columns.texts, 0.5, **_UNCOMPRESSED)
    yield case("dictionary", "dictionary(", columns.fewer_texts, 1.0)
    yield case("FSST", "fsst(binary(", columns.texts, 0.5, **_FSST)
    yield case("zstd", "binary(", columns.texts, 0.5, **_ZSTD)
    yield case("lz4", "binary(", columns.texts, 0.5, **_LZ4)
    yield case("packed struct", "packed_struct(", columns.fixed_structs, 0.5, packed="true")


def _version_2_1(version: str) -> Iterator[Case]:
    # The divisor keeps pylance from writing a dictionary.
    no_dictionary = {"dict-divisor": "1000000"}

    def case(
        name: str,
        page: str,
        make: Callable[[], pa.Array],
        least: float = 0.5,
        metadata: dict[str, str] | None = None,
    ) -> Case:
        return Case(name, version, page, make, metadata or {}, least)

    yield case("flat float64", "mini(flat:64)", columns.floats, 1.0)
    yield case("flat int64", "mini(flat:64)", _RANDOM, 1.0, _UNCOMPRESSED)
    yield case("flat decimal", "mini(flat:128)", columns.decimals, 1.0)
    yield case("flat bool", "mini(flat:1)", columns.booleans, 1.0)
    yield case("full-zip flat", "zip(flat:64)", _RANDOM, 1.0, _FULL_ZIP)
    for width, dtype in (
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
            f"inline bit-packing, {width} of {dtype.bit_width} bits",
            f"mini(inline:{dtype.bit_width})",
            columns.bits(width, dtype),
            0.5,
            no_dictionary,
        )
    yield case(
        "inline bit-packing, mixed widths",
        "mini(inline:64)",
        columns.mixed_widths,
        0.5,
        no_dictionary,
    )
    yield case("nullable int64", "mini(inline:64) def(packed:16", columns.nulls(_RANDOM))
    yield case(
        "nullable float64", "mini(flat:64) def(packed:16", columns.nulls(columns.floats), 0.5
    )
    yield case("nullable, few nulls", "mini(inline:64) def(", columns.nulls(_RANDOM, 0.001))
    yield case("RLE", "mini(rle(", columns.runs, 1.0, no_dictionary)
    yield case(
        "RLE, short runs",
        "mini(rle(",
        columns.short_runs,
        1.0,
        {**no_dictionary, "rle-threshold": "1.0"},
    )
    yield case(
        "byte stream split + lz4",
        "mini(general:lz4(planes(",
        columns.increasing_floats,
        0.5,
        {**_LZ4, "bss": "on"},
    )
    yield case(
        "byte stream split + zstd",
        "mini(general:zstd(planes(",
        columns.increasing_floats,
        0.5,
        {**_ZSTD, "bss": "on"},
    )
    yield case("lz4", "mini(general:lz4(", columns.increasing_floats, 0.5, {**_LZ4, "bss": "off"})
    yield case(
        "zstd", "mini(general:zstd(", columns.increasing_floats, 0.5, {**_ZSTD, "bss": "off"}
    )
    yield case("variable", "mini(variable(flat:32))", columns.texts, 0.5, _UNCOMPRESSED)
    yield case(
        "variable, nulls",
        "mini(variable(flat:32)) def(",
        columns.nulls(columns.texts),
        0.5,
        _UNCOMPRESSED,
    )
    yield case("FSST", "mini(fsst(variable(", columns.texts, 0.5, _FSST)
    yield case("variable + lz4", "mini(general:lz4(variable(", columns.texts, 0.5, _LZ4)
    yield case("variable + zstd", "mini(general:zstd(variable(", columns.texts, 0.5, _ZSTD)
    yield case("dictionary, strings", "mini(inline:32) dict(", columns.few_texts, 1.0)
    yield case("dictionary, strings in runs", "mini(rle(", columns.texts_in_runs, 1.0)
    yield case("dictionary, nulls", "mini(inline:32) dict(", columns.nulls(columns.few_texts), 1.0)
    if version == "2.2":
        yield case("dictionary, int64", "mini(inline:32) dict(", columns.few_numbers, 1.0)
    yield case("dictionary type", "mini(inline:32) dict(", columns.dictionaries, 1.0)
    yield case("fixed-size list, mini-block", "mini(vector:8(", columns.vectors(8), 1.0)
    yield case(
        "fixed-size list, null items, mini-block",
        "mini(vector:8,nulls",
        columns.vectors(8, 0.2),
        1.0,
    )
    yield case("fixed-size list, full-zip", "zip(vector:256(", columns.vectors(256), 1.0)
    yield case(
        "fixed-size list, null items, full-zip",
        "zip(vector:256,nulls",
        columns.vectors(256, 0.2),
        1.0,
    )
    yield case(
        "fixed-size list, nulls, full-zip", "zip(vector:256(", columns.vectors(256, 0.0, 0.3), 1.0
    )
    yield case(
        "packed struct, fixed", "mini(struct:32+64(", columns.fixed_structs, 0.5, {"packed": "true"}
    )
    if version == "2.2":
        yield case(
            "packed struct, variable",
            "zip(rows(",
            columns.variable_structs,
            0.5,
            {"packed": "true"},
        )
    if version == "2.2":
        yield case("constant", "constant", columns.constant)
        yield case("constant, nulls", "constant", columns.constant_and_nulls)
    yield case("all null", "constant", columns.all_null)
    yield case(
        "full-zip strings", "zip(variable(", columns.documents, 0.5, {**_UNCOMPRESSED, **_FULL_ZIP}
    )
    yield case(
        "full-zip short strings",
        "zip(variable(",
        columns.texts,
        0.5,
        {**_UNCOMPRESSED, **_FULL_ZIP},
    )
    yield case("full-zip strings, FSST", "zip(fsst(variable(", columns.long_texts, 0.5, _FULL_ZIP)
    yield case(
        "full-zip strings, zstd", "zip(general:zstd", columns.documents, 0.5, {**_FULL_ZIP, **_ZSTD}
    )
    yield case("full-zip nullable", "zip(flat:64)", columns.nulls(_RANDOM), 0.5, _FULL_ZIP)
    yield case("full-zip list", "zip(flat:64)", columns.lists(_RANDOM), 0.5, _FULL_ZIP)
    yield case("list", "mini(", columns.lists(_RANDOM))
    yield case("list of list", "mini(", columns.lists_of_lists)
    yield case("list of strings", "mini(", columns.lists(columns.texts), 0.5, _UNCOMPRESSED)
    yield case("list of struct", "mini(", columns.lists_of_structs)
    if version == "2.2":
        yield case("map", "mini(", columns.maps)
    yield Case(
        "blob descriptors", version, "", columns.blobs, {"blob": "true"}, 0.5, whole_table=True
    )


def _version_2_3() -> Iterator[Case]:
    sparse = {"structural-encoding": "sparse"}
    for name, page, make, metadata, least in (
        ("flat", "dense chunked(flat:64)", columns.floats, {}, 1.0),
        ("inline bit-packing", "dense chunked(inline:64)", _RANDOM, {}, 0.5),
        ("nullable", "dense chunked(inline:64)", columns.nulls(_RANDOM), {}, 0.5),
        ("sparse nulls", "sparse ", columns.rare_values, sparse, 0.5),
        ("sparse lists", "sparse ", columns.rare_lists, sparse, 0.5),
        ("sparse full column", "sparse ", columns.nulls(_RANDOM), sparse, 0.5),
        ("sparse list", "sparse ", columns.lists(_RANDOM), sparse, 0.5),
        ("variable", "dense chunked(variable(", columns.texts, _UNCOMPRESSED, 0.5),
        (
            "offsets in a range",
            "dense chunked(variable(range",
            columns.equally_long_texts,
            _UNCOMPRESSED,
            0.5,
        ),
        (
            "offsets as differences",
            "dense chunked(variable(delta",
            columns.alternating_texts,
            _UNCOMPRESSED,
            0.5,
        ),
    ):
        yield Case(name, "2.3", page, make, metadata, least)
