"""Targets: the places at which untrusted bytes enter the package. Each has a parser, sound inputs,
and a function that damages them.

A target takes bytes and returns nothing of interest; only errors of this package may come out, see
`guard`.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.file.footer import Tail
from lance_spark.file.open import open_file
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.footer import read_legacy_footer
from lance_spark.file.v0_1.statistics import prune, read_statistics
from lance_spark.indexes.json.files import extracted
from lance_spark.inspect.pages import columns_of
from lance_spark.json import jsonb
from lance_spark.json.functions import json_value
from lance_spark.json.paths import parse_path
from lance_spark.predicates.sql import parse_predicate
from lance_spark.proto import rowids_pb2, table_pb2, transaction_pb2
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.values import json_list, json_object, moment
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.pushdown.request import PushedScan
from lance_spark.spark.streaming.plan import StreamPosition
from lance_spark.storage.uri import check_relative, parse_uri
from lance_spark.table.commit import transaction
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest import codec as manifest_file
from lance_spark.table.refs import branch_store, tags
from lance_spark.table.rows.deletions import decode_arrow, decode_bitmap, decode_offsets
from lance_spark.table.rows.sequences import (
    decode_versions,
    encode_row_ids,
    encode_versions,
    parse_row_ids,
)
from tests.encoding.v2_1.test_hostile import check as check_but_texts
from tests.file.sources import StrictSource
from tests.hostile import (
    corpus,
    deletion_files,
    index_files,
    mem_wal_files,
    mem_wal_tables,
    table_changes,
    tables,
    takes,
    texts,
    transactions,
    vector_files,
)
from tests.hostile.files import worse_fields, worse_file, worse_legacy
from tests.hostile.guard import worse_of
from tests.hostile.mutate import Mutate, bitmap_bomb, worse_bytes, worse_message, worsen

#: The number of rows in one read: it bounds memory, whatever number a file claims.
ROWS = 1_500


@dataclass(frozen=True)
class Target:
    """A place at which bytes enter.

    Attributes
    ----------
    name : str
    run : callable
        Takes the bytes.
    seeds : callable
        Gives inputs that are sound.
    mutate : callable
        Makes one of them worse.
    weight : int
        How often it is tried, in proportion.
    seconds : float or None
        Of the processor, if it may take more than others.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate = worse_bytes
    weight: int = 1
    seconds: float | None = None


def data_file(data: bytes) -> None:
    """Read a data file of any version: rows at its start, at its end, and some between, of each
    column.
    """
    reader = open_file(StrictSource(data))
    schema, rows = reader.schema, reader.num_rows
    schema.to_arrow(), repr(schema)
    failed: Exception | None = None
    choices: list[Any] = [range(min(rows, ROWS))]
    if rows > 5:
        choices.append(range(max(0, rows - 100), rows))
        choices.append(np.array([0, 3, min(90, rows - 2), rows - 1], np.int64)[: min(rows - 1, 4)])
        choices[-1] = np.unique(choices[-1])
    for field in schema.fields:
        for chosen in choices:
            try:
                (array,) = reader.read([field], chosen)
            except Exception as error:
                failed = worse_of(failed, error)
                continue
            check(array)
            assert len(array) == len(chosen), (len(array), len(chosen))
        try:
            reader.column_bytes([field]), reader.full_page_rows([field])
        except Exception as error:
            failed = worse_of(failed, error)
    columns_of(reader, schema, {})
    if failed is not None:
        raise failed


def check(array: pa.Array) -> None:
    """Check that Arrow finds faults in values only."""
    try:
        check_but_texts(array)
    except pa.ArrowInvalid as error:
        if not any(type_name in str(error) for type_name in ("date64", "time32", "time64")):
            raise


def legacy_file(data: bytes) -> None:
    """Read a data file of version 0.1, and its statistics."""
    data_file(data)
    source = StrictSource(data)
    tail = Tail(source)
    footer = read_legacy_footer(tail)
    for field in footer.schema.fields if footer.schema else ():
        result = read_statistics(source, tail, footer, field.id)
        if result is not None:
            for value in (3, "x", b"x", 1.5, None):
                prune(result, "<", value)


def manifest(data: bytes) -> None:
    """Parse a manifest file, and all its parts."""
    result = manifest_file.decode(data, "m")
    failed: Exception | None = None
    for look in (
        lambda: result.schema.to_arrow(),  # noqa: PLW0108 - the schema is parsed there
        lambda: [(fragment.num_rows, repr(fragment)) for fragment in result.fragments],
        lambda: result.num_rows,
        lambda: result.timestamp,
        lambda: result.data_storage_version,
        lambda: (result.max_fragment_id, result.first_new_field_id, result.flags, result.config),
        lambda: result.branch,
        lambda: index_section(result.index_section or b""),
        lambda: transaction.decode(result.transaction_section or b"", "t"),
        lambda: result.base_paths,
    ):
        try:
            look()
        except Exception as error:
            failed = worse_of(failed, error)
    if failed is not None:
        raise failed


def index_section(data: bytes) -> None:
    """Parse an index section, with the fragment reuse index in it."""
    proto = table_pb2.Manifest()
    section = indexes.section_of(manifest_file.Manifest(proto, "m", index_section=data))
    for index in section.indices:
        indexes.type_of_index(index), indexes.uuid_of(index), indexes.holds_addresses(index, True)
    entry = fragment_reuse.find_entry(section)
    if entry is not None:
        content = fragment_reuse.inline_content(entry)
        for index in section.indices:
            bitmap = indexes.fragment_bitmap(index)
            if bitmap is not None and content is not None:
                fragment_reuse.remap_fragments(bitmap, content)


def row_ids(data: bytes) -> None:
    """Decode row ids, with a known and with an unknown number of rows."""
    parse_row_ids(data, "f", 300).to_array()


def sections(data: bytes, name: str) -> bytes | None:
    """Return a section of a manifest."""
    result: bytes | None = getattr(manifest_file.decode(data, "m"), f"{name}_section")
    return result


def _manifests() -> list[bytes]:
    places = [corpus.table(name) for name in ("plain", "stable", "moved")]
    return [
        manifest_path.read_bytes()
        for path in places
        for manifest_path in sorted((path / "_versions").glob("*.manifest"))
    ]


def _index_sections() -> list[bytes]:
    return [held for item in _manifests() if (held := sections(item, "index"))]


def worse_manifest(data: bytes, rng: random.Random) -> bytes:
    """Damage a manifest, its index section or its transaction; base paths stay."""
    if rng.random() < 0.1:
        return worse_bytes(data, rng)
    result = manifest_file.decode(data, "m")
    proto, index, done = result.to_proto(), result.index_section, result.transaction_section
    draw = rng.random()
    if draw < 0.2 and index:
        index = worse_message(table_pb2.IndexSection)(index, rng)
    elif draw < 0.35 and done:
        done = worse_message(transaction_pb2.Transaction)(done, rng)
    elif draw < 0.5:
        worse_fields(proto.fields, rng)
    else:
        for _ in range(rng.choice((1, 1, 2))):
            worsen(proto, rng, ("base_paths",))
    written = manifest_file.encode(proto, index, done)
    return worse_bytes(written, rng) if rng.random() < 0.05 else written


def _deletions(suffix: str) -> list[bytes]:
    folder = corpus.table("plain") / "_deletions"
    result = [path.read_bytes() for path in folder.glob(f"*.{suffix}")]
    if suffix == "bin":
        return [*result, bitmap_bomb(70_000), bitmap_bomb(2**26), bitmap_bomb(2**32)]
    return [*result, *deletion_files.deletions()]


def _sequences() -> list[bytes]:
    some = np.arange(300, dtype=np.uint64)
    return [
        encode_row_ids(values)
        for values in (
            some,
            np.delete(np.arange(303, dtype=np.uint64), [5, 9, 40]),
            some * 3,
            some[::-1] * 1_000,
            np.append(some[:299], np.uint64(2**60)),
            np.concatenate([some[:100], some[100:] + np.uint64(2**40)]),
        )
    ]


def _versions() -> list[bytes]:
    some = np.arange(300, dtype=np.uint64)
    return [encode_versions(values) for values in (some // 299, some // 7, some % 2)]


SCHEMA = Schema.from_arrow(
    pa.schema(
        {
            "i": pa.int32(),
            "s": pa.string(),
            "f": pa.float64(),
            "d": pa.date32(),
            "t": pa.timestamp("us", "UTC"),
            "m": pa.decimal128(10, 2),
            "b": pa.binary(),
            "flag": pa.bool_(),
            "r": pa.struct({"a": pa.int64(), "b": pa.string()}),
        }
    )
)


def text_of(data: bytes) -> str:
    """Return bytes as text, as Spark would pass them."""
    return data.decode("utf-8", "replace")


def options(data: bytes) -> None:
    """Parse options of Spark: lines of name and value."""
    parsed = dict(line.split("=", 1) for line in text_of(data).split("\n") if "=" in line)
    failed: Exception | None = None
    for parse in (ReadOptions.parse, WriteOptions.parse):
        try:
            parse(parsed)
        except Exception as error:
            failed = worse_of(failed, error)
    if failed is not None:
        raise failed


def values(data: bytes) -> None:
    """Parse values of options that are lists, objects and times."""
    text = text_of(data)
    failed: Exception | None = None
    time = functools.partial(moment, zone="Europe/Berlin")
    for parse in (json_list, json_object, time, PushedScan.parse, parse_uri, check_relative):
        try:
            parse(text)
        except Exception as error:
            failed = worse_of(failed, error)
    if failed is not None:
        raise failed


def json_search(data: bytes) -> None:
    """Find values in JSONB, and values to index."""
    documents = pa.array([data, None, data], pa.large_binary())
    failed: Exception | None = None
    for path in ("a", "$[1]", "$.a[1].b", "$"):
        for detail, dtype in (
            ("text", pa.string()),
            ("length", pa.int64()),
            ("exists", pa.bool_()),
        ):
            try:
                json_value([documents], (detail, (), parse_path(path), None), dtype)
            except Exception as error:
                failed = worse_of(failed, error)
        try:
            extracted(documents, path)
        except Exception as error:
            failed = worse_of(failed, error)
    if failed is not None:
        raise failed


def offsets(data: bytes) -> None:
    """Parse the position of a stream, after Spark has parsed its JSON."""
    try:
        value = json.loads(text_of(data))
    except (ValueError, RecursionError):
        return
    StreamPosition.parse(value)


def _file_target(version: str, weight: int) -> Target:
    seeds = functools.partial(corpus.files, version)
    if version == "0.1":
        return Target("file_0_1", legacy_file, seeds, worse_legacy, weight)
    return Target(f"file_{version.replace('.', '_')}", data_file, seeds, worse_file, weight)


def _array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


_EVERY = (
    _file_target("0.1", 6),
    _file_target("2.0", 10),
    _file_target("2.1", 10),
    _file_target("2.2", 20),
    _file_target("2.3", 14),
    Target("manifest", manifest, _manifests, worse_manifest, 6),
    Target(
        "transaction",
        transactions.run,
        transactions.seeds,
        worse_message(transaction_pb2.Transaction),
        4,
    ),
    Target(
        "index_section",
        index_section,
        _index_sections,
        worse_message(table_pb2.IndexSection),
        4,
    ),
    Target(
        "deletion_arrow",
        lambda data: decode_arrow(_array(data), "d", 20_000),
        lambda: _deletions("arrow"),
        weight=2,
    ),
    Target(
        "deletion_bitmap",
        lambda data: decode_bitmap(_array(data), "d", 0, 20_000),
        lambda: _deletions("bin"),
        weight=2,
    ),
    Target(
        "deletion_inline",
        lambda data: decode_offsets(data, 20_000, "d"),
        lambda: _deletions("bin"),
    ),
    Target(
        "row_ids",
        row_ids,
        _sequences,
        worse_message(rowids_pb2.RowIdSequence),
        3,
    ),
    Target(
        "row_versions",
        lambda data: decode_versions(data, 300, "f"),
        _versions,
        worse_message(rowids_pb2.RowDatasetVersionSequence),
        2,
    ),
    Target("tag", lambda data: tags.TAGS.decode(data, "t"), texts.references, texts.worse_json, 2),
    Target(
        "branch",
        lambda data: branch_store.BRANCHES.decode(data, "b"),
        texts.references,
        texts.worse_json,
        2,
    ),
    Target("wal_entry", mem_wal_files.entry, mem_wal_files.entries, worse_bytes, 2),
    Target(
        "shard_manifest",
        mem_wal_files.shard_manifest,
        mem_wal_files.manifests,
        worse_message(table_pb2.ShardManifest),
        2,
    ),
    Target(
        "mem_wal_details",
        mem_wal_files.mem_wal_details,
        mem_wal_files.all_details,
        worse_message(table_pb2.MemWalIndexDetails),
        2,
    ),
    Target("staged_rows", mem_wal_files.staged, mem_wal_files.staged_rows, worse_bytes),
    Target("key_filter", mem_wal_files.key_filter, mem_wal_files.key_filters, worse_bytes),
    Target("key_index", mem_wal_files.key_index, mem_wal_files.key_indexes, worse_file),
    Target("jsonb", jsonb.decode, corpus.json_values, worse_bytes, 3),
    Target("json_search", json_search, corpus.json_values, worse_bytes, 2),
    Target("json", lambda data: jsonb.encode(text_of(data)), texts.json_texts, texts.worse_json, 2),
    Target(
        "sql",
        lambda data: parse_predicate(text_of(data), SCHEMA),
        texts.predicates,
        texts.worse_predicate,
        2,
    ),
    Target("options", options, texts.option_lines, texts.worse_text, 2),
    Target("values", values, texts.option_values, texts.worse_json, 2),
    Target("stream_offset", offsets, texts.positions, texts.worse_json),
    Target("cleanups", table_changes.cleanups, table_changes.configurations, texts.worse_text),
    *(
        Target(item.name, item.run, item.seeds, item.mutate, item.weight, item.seconds)
        for item in (
            *tables.targets(),
            *table_changes.targets(),
            *mem_wal_tables.targets(),
            *index_files.targets(),
            *vector_files.targets(),
            *takes.targets(),
        )
    ),
)
TARGETS: dict[str, Target] = {target.name: target for target in _EVERY}
