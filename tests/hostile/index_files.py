"""Tables with one damaged file of an index.

A scan must leave a damaged index out, and has no other rows than a scan without indexes. It may
lose rows, because files have no checksums; then a check of the index must find the damage.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter

import lance_spark
from lance_spark import query as q
from lance_spark.dataset.files import LanceFileReader
from lance_spark.errors import CorruptError, LanceError, MissingFileError, UnsupportedError
from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, encode
from tests.hostile import corpus
from tests.hostile.mutate import NUMBERS, TEXTS, Mutate, worse_bytes, worse_message
from tests.hostile.tables import Session, Step, TableTarget, look, older, tried

#: A damaged file can claim any number of rows, which all have one value.
_MOST_ROWS = 100_000
#: Index types of the columns of the table `searched`, and filters on each.
TYPES = {
    "few": "BITMAP",
    "labels": "LABEL_LIST",
    "text": "NGRAM",
    "word": "BTREE",
    "number": "ZONEMAP",
    "key": "BLOOMFILTER",
}
FILTERS = {
    "few": ["few = 3", "few IS NULL", "few IN (1, 2)", "few BETWEEN 5 AND 6", "few > 7"],
    "labels": ["array_has_any(labels, ['t3', 't5'])", "array_has_all(labels, ['t3', 't7'])"],
    "text": ["contains(text, 'ord 11')", "text LIKE '%word%'", "contains(text, '17')"],
    "word": ["word = 'w17'", "word IS NULL", "word IN ('w1', 'w55')", "word LIKE 'w6%'"],
    "number": ["number > 590", "number IS NULL", "number = 17", "isnan(number)"],
    "key": ["key = 'k17'", "key IN ('k1', 'k2')", "key IS NULL"],
}
QUERIES = [
    q.MatchQuery("w1 w2 w17", "s"),
    q.MatchQuery("w1 w3", "s", operator="and"),
    q.PhraseQuery("w1 w2", "s", slop=2),
    q.MatchQuery("w11", "s", fuzziness=1),
]
_MOST_CHECKED = 12
#: How often rows were lost, and a check found the damage.
LOST: Counter[str] = Counter()


def rows(count: int) -> pa.Table:
    """Return rows with a column for each type of index."""
    ids = np.arange(count)
    every = ids % 7 == 0
    numbers = ids * 1.0
    numbers[ids % 50 == 3] = np.nan
    return pa.table(
        {
            "i": ids,
            "few": pa.array(ids % 9, mask=every),
            "labels": pa.array(
                [
                    None if n % 11 == 0 else [f"t{n % 5}", f"t{n % 8}", None][: n % 4]
                    for n in ids.tolist()
                ]
            ),
            "text": pa.array([f"a word {n % 400}" for n in ids.tolist()], mask=every),
            "word": pa.array([f"w{n * 7 % count}" for n in ids.tolist()], mask=every),
            "number": pa.array(numbers, mask=ids % 90 == 5),
            "key": pa.array([f"k{n}" for n in ids.tolist()], mask=ids % 200 == 7),
        }
    )


def write_searched(path: Path) -> None:
    """Write a table with an index of each type, one on each column."""
    lance.write_dataset(rows(600), str(path), max_rows_per_file=250)
    lance_spark.open_dataset(str(path)).delete("i % 20 = 4")
    options: dict[str, dict[str, Any]] = {
        "word": {"zone_size": 100},
        "number": {"rows_per_zone": 60},
        "key": {"number_of_items": 60, "probability": 0.1},
    }
    for column, index_type in TYPES.items():
        lance_spark.open_dataset(str(path)).create_scalar_index(
            column, index_type, **options.get(column, {})
        )


def write_text(path: Path, version: int) -> None:
    """Write a table with an INVERTED index: 0 stands for an index of this package."""
    rng = random.Random(version)
    texts = [
        " ".join(f"w{min(int(rng.paretovariate(0.7)), 60)}" for _ in range(rng.randrange(12)))
        for _ in range(400)
    ]
    texts[7] = "w1 w2 " * 140
    data = pa.table({"i": range(400), "s": texts})
    dataset = lance.write_dataset(
        data, str(path), max_rows_per_file=150, enable_stable_row_ids=version == 3
    )
    if version:
        dataset.create_scalar_index(
            "s",
            "INVERTED",
            with_position=True,
            format_version=version,
            block_size=256 if version == 3 else 128,
            stem=False,
        )
    else:
        lance_spark.open_dataset(str(path)).create_scalar_index("s", "INVERTED", with_position=True)
    lance_spark.open_dataset(str(path)).delete("i % 20 = 4")


@functools.cache
def _expected(root: str, text: str) -> frozenset[int]:
    dataset = lance_spark.open_dataset(root)
    table = dataset.to_table(["i"], filter=text, use_scalar_index=False)
    return frozenset(table["i"].to_pylist())


def searched(column: str) -> Step:
    """Return a step that compares filters on a column with those of a scan."""

    def run(root: str) -> None:
        dataset = lance_spark.open_dataset(root)
        lost = None
        for text in FILTERS[column]:
            ids = dataset.to_table(["i"], filter=text)["i"].to_pylist()
            expected = _expected(root, text)
            assert len(ids) == len(set(ids)), text
            assert expected.issuperset(ids), text
            lost = text if len(ids) < len(expected) else lost
        check = dataset.check_index(f"{column}_idx")
        if lost is not None:
            LOST[column] += 1
            assert not check.is_valid, f"{lost!r} lost rows, and the check finds nothing"

    return _without_errors(run)


def compared(root: str) -> None:
    """Compare filters with those of a scan. The manifest is damaged, so that errors are right."""
    dataset = lance_spark.open_dataset(root)
    for texts in FILTERS.values():
        for text in texts:
            ids = dataset.to_table(["i"], filter=text)["i"].to_pylist()
            scanned = dataset.to_table(["i"], filter=text, use_scalar_index=False)["i"]
            assert set(scanned.to_pylist()).issuperset(ids), text
    segments = dataset.list_indices()
    # A check takes as long as a scan for each segment.
    for name in {segment["name"] for segment in segments if len(segments) < _MOST_CHECKED}:
        tried(functools.partial(dataset.check_index, name))


def _without_errors(step: Step) -> Step:
    """Return a step that fails if an error comes of the damage to an index."""

    def run(root: str) -> None:
        try:
            step(root)
        except (CorruptError, MissingFileError, UnsupportedError) as error:
            if isinstance(error.__cause__ or error.__context__, MemoryError):
                raise
            raise AssertionError(f"the index is not left out: {error}") from error

    return run


def queried(root: str) -> None:
    """Run full-text queries, which may be refused."""
    dataset = lance_spark.open_dataset(root)
    failed: LanceError | None = None
    for query, limit in itertools.product(QUERIES, (3, None)):
        try:
            table = dataset.to_table(["i", "_score"], full_text_query=query, limit=limit)
            ids = table["i"].to_pylist()
        except LanceError as error:
            failed = error
        else:
            assert len(ids) == len(set(ids))
            assert all(number % 20 != 4 for number in ids)
    if failed is not None:
        raise failed


def index_file(index: str, name: str) -> Callable[[Path], Path]:
    """Return a function that finds a file of an index."""

    def find(root: Path) -> Path:
        return root / "_indices" / _folder(str(root), index) / name

    return find


@functools.cache
def _folder(root: str, index: str) -> str:
    segments = lance_spark.open_dataset(root).list_indices()
    (folder,) = [segment["uuid"] for segment in segments if segment["name"] == index]
    return str(folder)


def worse_index(data: bytes, rng: random.Random, worse_buffer: Mutate = worse_bytes) -> bytes:
    """Damage a file of an index: its bytes, or its values, parameters and global buffers."""
    if rng.random() < 0.4:
        return older(data, rng)
    try:
        return _with_worse_values(data, rng, worse_buffer)
    except BaseException as error:
        # pylance can panic when it writes damaged values, and panics are no exceptions.
        if type(error).__name__ != "PanicException":
            raise
        return worse_bytes(data, rng)


def _with_worse_values(data: bytes, rng: random.Random, worse_buffer: Mutate) -> bytes:
    path = corpus.folder() / "index.lance"
    path.write_bytes(data)
    # Not by pylance, which can take any memory for a damaged file.
    reader = LanceFileReader(str(path))
    if reader.num_rows() > _MOST_ROWS:
        return worse_bytes(data, rng)
    table = reader.read_all().to_table()
    schema = reader.metadata().schema
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    buffers = [
        reader.read_global_buffer(number)
        for number in range(1, len(reader.metadata().global_buffers))
    ]
    for _ in range(rng.choice((1, 1, 2))):
        draw = rng.random()
        if draw < 0.2 and metadata:
            key = rng.choice(sorted(metadata))
            metadata[key] = _worse_text(metadata[key], rng)
        elif draw < 0.35 and buffers:
            number = rng.randrange(len(buffers))
            buffers[number] = worse_buffer(buffers[number], rng)
        else:
            table = _worse_table(table, rng)
    path.unlink()
    with LanceFileWriter(str(path), table.schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
        for content in buffers:
            writer.add_global_buffer(content)
        for key, text in metadata.items():
            writer.add_schema_metadata(key, text)
    return path.read_bytes()


def worse_section(data: bytes, rng: random.Random) -> bytes:
    """Damage the index section of a manifest."""
    result = decode(data, "m")
    section = worse_message(table_pb2.IndexSection)(result.index_section or b"", rng)
    return encode(result.to_proto(), section, result.transaction_section)


def _worse_text(text: str, rng: random.Random) -> str:
    """Return another value of a parameter; numbers in JSON are changed too."""
    draw = rng.random()
    if draw < 0.3:
        return str(rng.choice(NUMBERS))
    if draw < 0.4:
        return rng.choice([item for item in TEXTS if "\0" not in item])
    try:
        value = json.loads(text)
    except ValueError:
        return text[: rng.randrange(len(text) + 1)]
    number = rng.choice((*NUMBERS, None, True, "x", -1))
    if isinstance(value, dict) and value:
        value[rng.choice(sorted(value))] = number
    elif isinstance(value, list) and value and isinstance(value[0], str) and rng.random() < 0.8:
        # Text of JSON in JSON.
        value = [_worse_text(value[0], rng), *value[1:]]
    elif isinstance(value, list):
        value = rng.choice(([], [number], value * 2, value * 2_000, [value]))
    else:
        value = number
    return json.dumps(value)


def _worse_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """Change a value, or the order and number of rows."""
    count = len(table)
    if not count:
        return table
    at, other = rng.randrange(count), rng.randrange(count)
    draw = rng.random()
    if draw < 0.3:
        order = list(range(count))
        if draw < 0.1:
            order[at], order[other] = order[other], order[at]
        elif draw < 0.15:
            del order[at]
        elif draw < 0.2:
            order.insert(other, at)
        else:
            order[at] = other
        if draw < 0.27:
            return table.take(pa.array(order, pa.int64()))
        number = rng.randrange(table.num_columns)
        column = table.column(number).take(pa.array(order, pa.int64()))
        # Without a row, the columns would have different lengths.
        if len(column) == count:
            return table.set_column(number, table.schema.field(number), column)
        return table
    number = rng.randrange(table.num_columns)
    field = table.schema.field(number)
    values = table.column(number).to_pylist()
    values[at] = _worse_value(values[at], values[other], field, rng)
    try:
        return table.set_column(number, field, pa.array(values, field.type))
    except (pa.ArrowException, OverflowError, TypeError):
        return table


def _worse_value(value: Any, other: Any, field: pa.Field, rng: random.Random) -> Any:
    if rng.random() < 0.1:
        return None if field.nullable else value
    if isinstance(value, bytes) and value:
        return worse_bytes(value, rng) if rng.random() < 0.8 else worse_words(value, rng)
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        draw = rng.random()
        if draw < 0.2:
            return value[:place]
        if draw < 0.3:
            return [*value, *value]
        return [
            *value[:place],
            _worse_value(value[place], value[0], field.type.value_field, rng),
            *value[place + 1 :],
        ]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, value * 2, other, *NUMBERS))
    if isinstance(value, float):
        return rng.choice((value + 1, -value, 0.0, float("nan"), float("inf"), other))
    if isinstance(value, str):
        return rng.choice((other, value + "x", value[:-1], "", "\U0010ffff"))
    return other


def worse_words(value: bytes, rng: random.Random) -> bytes:
    """Put a number in the place of 4 or 8 bytes."""
    changed = bytearray(value)
    width, form = rng.choice(((4, "<I"), (8, "<Q")))
    at = 4 * rng.randrange(-(-len(changed) // 4))
    changed[at : at + width] = struct.pack(form, rng.choice(NUMBERS) % (1 << 8 * width))
    return bytes(changed)


def targets() -> Iterator[TableTarget]:
    """Yield a target for each file of each type of index."""
    files = {
        "few": ["bitmap_page_lookup"],
        "labels": ["bitmap_page_lookup"],
        "text": ["ngram_postings"],
        "word": ["page_lookup", "page_data"],
        "number": ["zonemap"],
        "key": ["bloomfilter"],
    }
    for column, names in files.items():
        for name in names:
            target = TYPES[column].lower() + (f"_{name}" if len(names) > 1 else "")
            yield _made(target, "searched", f"{column}_idx", name, searched(column))
    for name in ("searched", "text_2"):
        step = compared if name == "searched" else queried
        session = Session(name, corpus.newest, (step, look))
        yield TableTarget(f"index_details_{name}", session.run, session.seeds, worse_section, 2)
    for version in range(4):
        for name in ("metadata", "part_0_docs", "part_0_tokens", "part_0_invert"):
            target = f"inverted_{version}_{name.removeprefix('part_0_')}"
            yield _made(target, f"text_{version}", "s_idx", name, queried)


def _made(target: str, table: str, index: str, name: str, step: Step) -> TableTarget:
    session = Session(table, index_file(index, f"{name}.lance"), (step,))
    return TableTarget(f"index_{target}", session.run, session.seeds, worse_index, 1)


#: The tables, and what writes them.
TABLES: Mapping[str, Callable[[Path], None]] = {
    "searched": write_searched,
    **{f"text_{version}": functools.partial(write_text, version=version) for version in range(4)},
}
