"""Every type x file version x encoding hint, both ways between this package and pylance, as
`docs/reference/compatibility.md` shows it.

``python -m tests.interop.compatibility`` writes the page; `test_compatibility` fails when a cell is
not what the page says. A cell is checked on one table per direction: the type with six patterns of
values, with nulls and without, 3,000 rows; 500 of blobs, each of which pylance reads by a request
of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import lance
import pyarrow as pa
from google.protobuf.message import Message

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.file.reader import FileReader
from lance_spark.proto import encodings_v2_0_pb2, encodings_v2_1_pb2, encodings_v2_3_pb2
from lance_spark.storage.store import ObjectStore
from tests.support.descriptors import is_repeated
from tests.support.interop.tables import (
    NESTED,
    PATTERNS,
    SCALARS,
    VECTORS,
    assert_same,
    column,
    for_2_0,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
ROWS = 3_000
ROWS_OF_BLOBS = 500
VERSIONS = ("0.1", "2.0", "2.1", "2.2", "2.3")
#: Types whose values version 0.1 loses, also if pylance writes them. Other versions keep them.
LOSSY = ("0.1", "2.0")

_KEY = "lance-encoding:"
_BLOB = {f"{_KEY}blob": "true"}

NO_HINT = "none said"
HINTS: dict[str, dict[str, str]] = {
    NO_HINT: {},
    "compression=none": {"compression": "none"},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd", "compression-level": "5"},
    "fsst": {"compression": "fsst"},
    "miniblock": {"structural-encoding": "miniblock"},
    "fullzip": {"structural-encoding": "fullzip"},
    "sparse": {"structural-encoding": "sparse"},
    "rle": {"rle-threshold": "1.0", "compression": "none"},
    "bss": {"bss": "on", "compression": "lz4"},
    "dict": {"dict-divisor": "1", "dict-size-ratio": "1.0", "dict-values-compression": "zstd"},
    "packed": {"packed": "true"},
}
#: Hints that pylance uses for files of a version. Other hints change nothing there.
HINTS_OF = {
    "0.1": (NO_HINT,),
    "2.0": (NO_HINT, "lz4", "zstd", "fsst", "packed"),
    "2.1": tuple(name for name in HINTS if name != "sparse"),
    "2.2": tuple(name for name in HINTS if name != "sparse"),
    "2.3": tuple(HINTS),
}
#: Hints for structs only.
STRUCTS_ONLY = ("packed",)

_ITEM = pa.field("item", pa.large_binary(), metadata=_BLOB)
TYPES: dict[str, pa.Field] = {
    **{name: pa.field(name, dtype) for name, dtype in {**SCALARS, **VECTORS, **NESTED}.items()},
    "decimal256": pa.field("decimal256", pa.decimal256(60, 3)),
    "dict_string": pa.field("dict_string", pa.dictionary(pa.int32(), pa.string())),
    "dict_int8_int64": pa.field("dict_int8_int64", pa.dictionary(pa.int8(), pa.int64())),
    "struct_fixed": pa.field(
        "struct_fixed",
        pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.float64(), False)]),
    ),
    "map": pa.field("map", pa.map_(pa.string(), pa.int32())),
    "map_struct": pa.field("map_struct", pa.map_(pa.string(), pa.struct([("u", pa.int64())]))),
    "vec_struct": pa.field(
        "vec_struct",
        pa.list_(pa.field("item", pa.struct([("v", pa.int32()), ("w", pa.float32())])), 2),
    ),
    "blob": pa.field("blob", pa.large_binary(), metadata=_BLOB),
    "struct_blob": pa.field(
        "struct_blob",
        pa.struct([pa.field("b", pa.large_binary(), metadata=_BLOB), ("n", pa.int8())]),
    ),
    "list_blob": pa.field("list_blob", pa.list_(_ITEM)),
}


class Cell(NamedTuple):
    """The result for a type, a version and a hint: how many columns of the cell were read and
    written, and how many it has.
    """

    read: int
    written: int
    columns: int

    def __str__(self) -> str:
        marks = (("r", self.read), ("w", self.written))
        shown = [m if n == self.columns else f"({m})" for m, n in marks if n]
        return "".join(shown) or "·"


class Column(NamedTuple):
    """The result for a hint of a version: a cell for each type, and the encodings of the pages."""

    cells: dict[str, Cell]
    theirs: set[str]
    ours: set[str]


def table_of(name: str, version: str, hint: str) -> pa.Table:
    """Return the table that a cell is checked on."""
    field = TYPES[name]
    marks = {f"{_KEY}{key}": value for key, value in HINTS[hint].items()}
    fields, arrays = [], []
    for pattern in PATTERNS:
        for nulls in ("none", "some"):
            seed = zlib.crc32(f"{name} {pattern} {nulls}".encode())
            rows = ROWS_OF_BLOBS if "blob" in name else ROWS
            array = _column(field.type, pattern, nulls, rows, seed)
            metadata = {
                **{k.decode(): v.decode() for k, v in (field.metadata or {}).items()},
                **marks,
            }
            fields.append(pa.field(f"{pattern}_{nulls}", field.type, metadata=metadata or None))
            arrays.append(array)
    table = pa.table(arrays, schema=pa.schema(fields))
    return for_2_0(table) if version == "2.0" else table


def _column(dtype: pa.DataType, pattern: str, nulls: str, rows: int, seed: int) -> pa.Array:
    if pa.types.is_dictionary(dtype):
        values = column(pa.int64(), pattern, nulls, rows, seed)
        small = pa.compute.bit_wise_and(values, 63)
        return small.cast(dtype.value_type).dictionary_encode().cast(dtype)
    if pa.types.is_decimal256(dtype):
        return column(pa.decimal128(38, 3), pattern, nulls, rows, seed).cast(dtype)
    return column(dtype, pattern, nulls, rows, seed)


def check(version: str, hint: str, folder: Path, names: Iterable[str] = TYPES) -> Column:
    """Check types with a hint in files of a version. Raise an error if this package and pylance
    disagree.
    """
    result = Column({}, set(), set())
    for name in names:
        field = TYPES[name]
        if hint in STRUCTS_ONLY and not pa.types.is_struct(field.type):
            continue
        table = table_of(name, version, hint)
        note = f"{name}, {version}, {hint}"
        theirs, ours = folder / f"{name}.theirs", folder / f"{name}.ours"
        read = written = 0
        # Version 0.1 can hold what pylance reads of the table.
        held = [] if version == "0.1" else [table]
        for part in _parts(
            table, lambda part, path=theirs: _pylance_values_of(part, path, version)
        ):
            expected = _pylance_values(theirs)
            assert_same(_we_read(theirs), expected, f"{note}: we read pylance")
            result.theirs.update(encodings(theirs))
            if version == "0.1":
                held.append(lance.dataset(str(theirs)).to_table(blob_handling="all_binary"))
            read += part.num_columns
        for values in held:
            for part in _parts(values, lambda part, path=ours: _we_write(part, path, version)):
                assert_same(_we_read(ours), _bare(part), f"{note}: our own")
                assert_same(_pylance_values(ours), _bare(part), f"{note}: pylance reads us")
                result.ours.update(encodings(ours))
                written += part.num_columns
        result.cells[name] = Cell(read, written, table.num_columns)
        for path in (theirs, ours):
            shutil.rmtree(path, ignore_errors=True)
    return result


def _parts(table: pa.Table, write: Callable[[pa.Table], bool]) -> Iterator[pa.Table]:
    """Yield the table after it is written. If it cannot be written, yield each of its columns that
    can.
    """
    if write(table):
        yield table
        return
    for name in table.column_names:
        part = table.select([name])
        if write(part):
            yield part


def _pylance_values_of(table: pa.Table, path: Path, version: str) -> bool:
    """Let pylance write a table; return whether it reads the same values."""
    shutil.rmtree(path, ignore_errors=True)
    with _silent():
        try:
            lance.write_dataset(table, str(path), data_storage_version=version)
            values = _pylance_values(path)
            if version not in LOSSY:
                assert_same(values, _bare(table), "")
        except BaseException as error:
            _reraise_unless_pylance(error)
            return False
    return True


def _reraise_unless_pylance(error: BaseException) -> None:
    # Panics of Rust do not derive from Exception.
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _pylance_values(path: Path) -> pa.Table:
    dataset = lance.dataset(str(path))
    dataset.validate()
    return _bare(dataset.to_table(blob_handling="all_binary"))


def _we_read(path: Path) -> pa.Table:
    return _bare(lance_spark.open_dataset(str(path)).to_table(blob_handling="all_binary"))


def _we_write(table: pa.Table, path: Path, version: str) -> bool:
    shutil.rmtree(path, ignore_errors=True)
    try:
        lance_spark.write_dataset(table, str(path), data_storage_version=version)
    except LanceError:
        return False
    return True


def _bare(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, whose order may differ."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table[index].cast(field.type.value_type))
    return table


def encodings(path: Path) -> Iterator[str]:
    """Yield the names of the encodings in the pages of a table's files."""
    store = ObjectStore.from_uri(str(path))
    for name in store.list_names("data"):
        if not name.endswith(".lance"):
            continue
        source = store.open(f"data/{name}")
        version = source.read([(source.size - 8, 4)])[0].view("<u2")
        if tuple(version) < (0, 3):
            source.close()
            return
        reader = FileReader.open(source)
        message_type = {
            (2, 0): encodings_v2_0_pb2.ArrayEncoding,
            (2, 3): encodings_v2_3_pb2.PlanarLayout,
        }.get(reader.version, encodings_v2_1_pb2.PageLayout)
        reader._load(range(len(reader._footer.column_metadata)))
        for meta in reader._columns.values():
            for page in meta.pages:
                yield from _names(message_type.FromString(page.encoding))
        reader.close()


def _names(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if is_repeated(field) else [value]:
            if field.containing_oneof is not None or field.message_type.name.endswith("Layout"):
                yield field.message_type.name
            yield from _names(part)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hide the output of Rust when it panics."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


# The page


def render(columns: dict[tuple[str, str], Column]) -> str:
    """Return the page."""
    lines = [
        "# Compatibility",
        "",
        f"What was checked against pylance {lance.__version__}, for each type and encoding.",
        "`tests/interop/test_compatibility.py` fails when a cell is no longer true. `make "
        "compatibility`",
        "writes this page.",
        "",
        "- **r**: pylance wrote it, and we read the same values as pylance does.",
        "- **w**: we wrote it, pylance validated it and read the values that were written, and so "
        "did we.",
        "- **·**: neither; pylance refuses to write it, or does not read its own file.",
        "- In brackets: some of the patterns only; the others are refused, or not read back by "
        "pylance.",
        "- Empty: the hint is not for this type.",
        "",
        "Each cell is a type with six patterns of values (constant, runs, few different, "
        "increasing,",
        "random, long), with and without nulls. Columns are values of the field metadata",
        "`lance-encoding:*`; the table of encodings at the end shows which encoding each asks for.",
        "",
        "Version 0.1 keeps no nulls of numbers, and 2.0 none of structs; there, the expected "
        "values are",
        "the values that pylance reads. We refuse to write what version 0.1 would change, so that "
        "pylance",
        "reads what we write there, too. Files of version 2.3 are written with dense structures only.",
        "",
        "More is checked elsewhere: tables of old releases (`tests/interop/test_releases.py`), "
        "10,000",
        "tables of random nested types for each version (`tests/interop/files/test_random.py`, 300 "
        "of them in",
        "`make test`), pages that no writer makes (`tests/encoding`).",
    ]
    for version in VERSIONS:
        hints = [hint for hint in HINTS_OF[version] if (version, hint) in columns]
        lines += ["", f"## Version {version}", "", f"| type | {' | '.join(hints)} |"]
        lines.append(f"|---|{'---|' * len(hints)}")
        for name in TYPES:
            cells = [str(columns[version, hint].cells.get(name, "")) for hint in hints]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Encodings in the pages", ""]
    lines += [
        "| version | hint | pylance's pages, read by us | our pages, read by pylance |",
        "|---|---|---|---|",
    ]
    for (version, hint), result in columns.items():
        if version != "0.1":
            theirs, ours = (", ".join(sorted(names)) for names in (result.theirs, result.ours))
            lines.append(f"| {version} | {hint} | {theirs} | {ours} |")
    return "\n".join(lines) + "\n"


def parse(text: str) -> tuple[str, dict[tuple[str, str], dict[str, str]]]:
    """Return the release of pylance that a page is about, and its cells by version and hint."""
    match = re.search(r"against pylance ([0-9.]+),", text)
    assert match is not None
    cells: dict[tuple[str, str], dict[str, str]] = {}
    version, hints = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            version, hints = line.removeprefix("## Version "), []
        elif line.startswith("| ") and version in VERSIONS:
            name, *row = [part.strip() for part in line.strip("|").split("|")]
            if not hints:
                hints = row
                continue
            for hint, cell in zip(hints, row, strict=True):
                cells.setdefault((version, hint), {})[name] = cell
    return match.group(1), cells


def main() -> None:
    """Write the page."""
    columns = {}
    for version in VERSIONS:
        for hint in HINTS_OF[version]:
            with tempfile.TemporaryDirectory() as folder:
                columns[version, hint] = check(version, hint, Path(folder))
    PAGE.write_text(render(columns))


if __name__ == "__main__":
    main()
