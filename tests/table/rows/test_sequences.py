"""Row id and row version sequences: exchanged with pylance, and damaged."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2 as pb
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.sequences import (
    concatenate,
    decode_versions,
    encode_row_ids,
    encode_versions,
    parse_row_ids,
    parse_runs,
    without_deleted,
)
from lance_spark.table.rows.u64_segments import UInt64Array
from tests.support.cells import number_of
from tests.support.tables.lineage import lived_in, versions_of

MAX = 2**64 - 1


def words(values: object) -> UInt64Array:
    return np.array(values, dtype=np.uint64)


def encodings_of(data: bytes) -> list[str]:
    return [segment.WhichOneof("segment") for segment in pb.RowIdSequence.FromString(data).segments]


def array(width: int, base: int, offsets: list[int]) -> pb.EncodedU64Array:
    data = np.array(offsets, dtype=f"<u{width}").tobytes()
    if width == 8:
        return pb.EncodedU64Array(u64_array={"values": data})
    return pb.EncodedU64Array(**{f"u{8 * width}_array": {"base": base, "offsets": data}})


def sequence(*segments: dict[str, object]) -> bytes:
    data: bytes = pb.RowIdSequence(segments=segments).SerializeToString()
    return data


@st.composite
def ids(draw: st.DrawFn) -> UInt64Array:
    """Unique ids: parts of ranges, with gaps or shuffled, near to or far from each other."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    parts: list[UInt64Array] = []
    start = 0
    for _ in range(draw(st.integers(0, 5))):
        start += draw(st.sampled_from([0, 1, 5, 300, 2**17, 2**33]))
        count = draw(st.integers(1, 400))
        share = draw(st.sampled_from([1.0, 0.99, 0.5, 0.01]))
        piece = start + np.flatnonzero(rng.random(count) < share)
        start += count
        parts.append(rng.permutation(piece) if draw(st.booleans()) else piece)
    if draw(st.booleans()):
        parts.reverse()
    result = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.uint64)
    return result + np.uint64(draw(st.sampled_from([0, 7, MAX - start])))


@settings(max_examples=number_of(120, 300), deadline=None, derandomize=True)
@given(ids(), st.randoms(use_true_random=False))
def test_row_ids_survive_encoding(values: UInt64Array, random: object) -> None:
    data = encode_row_ids(values)
    assert np.array_equal(parse_row_ids(data, "t", len(values)).to_array(), values)
    parsed = parse_row_ids(data, "t")
    assert parsed.num_rows == len(values)
    start, stop = sorted((random.randint(0, len(values)), random.randint(0, len(values))))  # type: ignore[attr-defined]
    assert np.array_equal(parsed.slice(start, stop), values[start:stop])
    picked = np.array([i for i in range(len(values)) if i % 3 == 1][::-1], dtype=np.int64)
    assert np.array_equal(parsed.take(picked), values[picked])
    firsts, offsets, counts = parsed.runs()
    spelled = [
        first + i
        for first, n in zip(firsts.tolist(), counts.tolist(), strict=True)
        for i in range(n)
    ]
    assert spelled == values.tolist()
    assert offsets.tolist() == [0, *np.cumsum(counts).tolist()][: len(counts)]
    # The encoding is never larger than the plain numbers and a small message.
    assert len(data) <= 8 * len(values) + 24
    assert not {"range_with_holes", "range_with_bitmap"} & set(encodings_of(data)[1:])


@settings(max_examples=number_of(40, 100), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, MAX), st.integers(1, 50)), max_size=20))
def test_versions_survive_encoding(runs: list[tuple[int, int]]) -> None:
    values = words([version for version, count in runs for _ in range(count)])
    assert np.array_equal(decode_versions(encode_versions(values), len(values), "t"), values)


@settings(max_examples=number_of(60, 150), deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 64), st.integers(0, 10**9), st.integers(0, 255))
def test_many_version_runs_are_parsed_by_numpy(seed: int, bits: int, at: int, byte: int) -> None:
    """The vectorised codec of runs produces the bytes of the protobuf message."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, 400)
    each = rng.integers(0, 2**bits, 400, dtype=np.uint64, endpoint=False) if bits < 64 else None
    each = rng.integers(0, MAX, 400, dtype=np.uint64) if each is None else each
    values = np.repeat(each, counts)
    data = encode_versions(values)
    message = pb.RowDatasetVersionSequence.FromString(data)
    assert message.SerializeToString() == data
    runs = [run.span.range.end - run.span.range.start for run in message.runs]
    assert np.array_equal(np.repeat(words([run.version for run in message.runs]), runs), values)
    assert np.array_equal(decode_versions(data, len(values), "t"), values)
    assert parse_runs(data) is not None
    # Other encodings of the same values are read value by value.
    message.runs[7].span.array.u16_array.offsets = bytes(2 * runs[7])
    other_message = message.SerializeToString()
    assert parse_runs(other_message) is None
    assert np.array_equal(decode_versions(other_message, len(values), "t"), values)
    for wrong in (len(values) - 1, len(values) + 1, 2, 2**32):
        with pytest.raises(CorruptTableError, match=r"^t: "):
            decode_versions(data, wrong, "t")
    flipped = bytearray(data)
    flipped[at % len(data)] = byte
    with contextlib.suppress(CorruptTableError):
        result = decode_versions(bytes(flipped), len(values), "t")
        expected = pb.RowDatasetVersionSequence.FromString(bytes(flipped)).runs
        assert len(result) == len(values)
        if all(run.span.WhichOneof("segment") == "range" for run in expected):
            runs = [run.span.range.end - run.span.range.start for run in expected]
            assert np.array_equal(np.repeat(words([run.version for run in expected]), runs), result)


def test_the_smallest_encoding_is_chosen() -> None:
    every = np.arange(100_000)
    half = every[np.random.default_rng(5).random(len(every)) < 0.5]
    for values, encoding_names in [
        (every[:0], ["range"]),
        (every + 2**40, ["range"]),
        (np.delete(every, [5, 777]), ["range_with_holes"]),
        (half, ["range_with_bitmap"]),
        (every[::1000], ["sorted_array"]),
        (every[::-1], ["array"]),
        (np.concatenate([every + 10**6, every]), ["range", "range"]),
        (np.concatenate([every[:50_000], half[:500][::-1] + 10**6, every[50_000:]]), None),
    ]:
        data = encode_row_ids(words(values))
        assert encodings_of(data) == (encoding_names or ["range", "array", "range"])
    assert len(encode_row_ids(words(every[::-1]))) < 400_040
    assert len(encode_row_ids(words(half))) < 12_540


def test_only_the_first_segment_has_holes() -> None:
    """Old releases of pylance read other sequences wrongly, see `encode_row_ids`."""
    run, holey = np.arange(20_000), np.delete(np.arange(1_000), np.arange(7, 1_000, 8))
    every_other = np.arange(0, 1_000, 2)
    for values, encoding_names in [
        (np.concatenate([every_other, run + 1_000]), ["range_with_bitmap", "range"]),
        (np.concatenate([run, every_other + 20_001]), ["range_with_holes"]),
        (np.concatenate([run + 1_000, holey]), ["range", "sorted_array"]),
        (np.concatenate([run[500:], every_other[:250]]), ["range", "sorted_array"]),
    ]:
        data = encode_row_ids(words(values))
        assert encodings_of(data) == encoding_names
        assert np.array_equal(parse_row_ids(data, "t").to_array(), words(values))


def test_examples_of_every_encoding() -> None:
    data = sequence(
        {"range": {"start": 3, "end": 6}},
        {"range": {"start": 9, "end": 9}},
        {"range_with_holes": {"start": 10, "end": 16, "holes": array(2, 10, [4, 1])}},
        {"range_with_bitmap": {"start": 20, "end": 31, "bitmap": bytes([0b10000101, 0b11111100])}},
        {"sorted_array": array(2, 1000, [1, 65535])},
        {"array": array(4, 2**40, [2**32 - 1, 0])},
        {"array": array(8, 0, [MAX, 2])},
    )
    expected = [3, 4, 5, 10, 12, 13, 15, 20, 22, 27, 30, 1001, 66535]
    expected += [2**40 + 2**32 - 1, 2**40, MAX, 2]
    assert parse_row_ids(data, "t", 17).to_array().tolist() == expected
    assert parse_row_ids(data, "t").to_array().dtype == np.uint64
    parsed = parse_row_ids(data, "t", 17)
    assert parsed.slice(2, 9).tolist() == expected[2:9]
    assert parsed.take(np.array([16, 0, 8, 8])).tolist() == [2, 3, 22, 22]
    for rows in (lambda: parsed.slice(3, 18), lambda: parsed.take(np.array([-1]))):
        with pytest.raises(InvalidInputError, match="17 rows"):
            rows()
    runs = [
        {"span": {"range": {"start": 90, "end": 92}}, "version": 7},
        {"span": {"range_with_bitmap": {"start": 0, "end": 4, "bitmap": b"\x0a"}}, "version": 9},
        {"span": {"array": array(4, 0, [9, 1])}, "version": 1},
    ]
    versions = pb.RowDatasetVersionSequence(runs=runs).SerializeToString()
    assert decode_versions(versions, 6, "t").tolist() == [7, 7, 9, 9, 1, 1]
    assert without_deleted(words([4, 5, 6]), np.array([1])).tolist() == [4, 6]
    assert concatenate([words([1]), words([]), words([0])]).tolist() == [1, 0]
    assert concatenate([]).dtype == np.uint64


BROKEN = {
    "no message": (b"\xff\xff\xff", "cannot be parsed"),
    "cut": (encode_row_ids(words([1, 5, 900, 3]))[:-3], "cannot be parsed"),
    "unknown kind": (sequence({}), "unknown encoding"),
    "unknown array": (sequence({"array": {}}), "unknown encoding"),
    "too few": (sequence({"range": {"start": 0, "end": 9}}), "9 row ids for 10"),
    "too many": (sequence({"range": {"start": 0, "end": 2**60}}), "only 10 rows"),
    "many": (sequence(*[{"range": {"start": 0, "end": 6}}] * 2), "only 4 rows"),
    "backwards": (sequence({"range": {"start": 10, "end": 0}}), "from 10 to 0"),
    "odd bytes": (sequence({"array": {"u32_array": {"offsets": b"abc"}}}), "multiple of 4"),
    "past the end": (sequence({"array": array(2, MAX, [1])}), "greater than"),
    "short bitmap": (
        sequence({"range_with_bitmap": {"start": 0, "end": 2**62, "bitmap": b"\xff"}}),
        "a bitmap of row ids has 1 bytes",
    ),
    "full bitmap": (
        sequence({"range_with_bitmap": {"start": 0, "end": 800, "bitmap": b"\xff" * 100}}),
        "800 row ids",
    ),
    "hole outside": (
        sequence({"range_with_holes": {"start": 0, "end": 11, "holes": array(2, 0, [11])}}),
        "out of range",
    ),
    "hole twice": (
        sequence({"range_with_holes": {"start": 0, "end": 12, "holes": array(2, 0, [3, 3])}}),
        "repeat",
    ),
    "many with holes": (
        sequence({"range_with_holes": {"start": 0, "end": 2**50, "holes": array(2, 0, [3])}}),
        "only 10 rows",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_damage_is_refused_before_memory_is_allocated(name: str) -> None:
    data, message = BROKEN[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptTableError, match=f"^m.manifest: .*{message}"):
        parse_row_ids(data, "m.manifest", 10).to_array()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_wrong_numbers_of_versions_are_refused() -> None:
    huge = {"span": {"range": {"start": 0, "end": 2**60}}, "version": 1}
    three = {"span": {"range": {"start": 0, "end": 3}}, "version": 1}
    back = {"span": {"range": {"start": 3, "end": 0}}, "version": 1}
    for runs in ([huge], [three, huge], [three], [three, three], [back, three], [{"version": 1}]):
        data = pb.RowDatasetVersionSequence(runs=runs).SerializeToString()
        with pytest.raises(CorruptTableError, match=r"m\.manifest"):
            decode_versions(data, 4, "m.manifest")
    with pytest.raises(CorruptTableError, match="cannot be parsed"):
        decode_versions(b"\xff\xff", 4, "m.manifest")


@settings(max_examples=number_of(120, 300), deadline=None, derandomize=True)
@given(ids(), st.integers(0, 10**9), st.integers(0, 255))
def test_flipped_bytes_are_refused_or_decoded(values: UInt64Array, at: int, byte: int) -> None:
    data = bytearray(encode_row_ids(values))
    data[at % len(data)] = byte
    with contextlib.suppress(CorruptTableError):
        assert len(parse_row_ids(bytes(data), "t", len(values)).to_array()) == len(values)


def change_fragment(path: Path, **lineage: UInt64Array) -> None:
    """Rewrite the newest manifest with other lineage of its only fragment."""
    store = ObjectStore.from_uri(path)
    location = list_manifests(store)[0]
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    row_ids.store_lineage(proto.fragments[0], **lineage)
    proto.next_row_id = 2**63
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    (path / location.path).write_bytes(data)


@pytest.mark.parametrize("case", range(9))
def test_pylance_reads_encoded_row_ids(tmp_path: Path, case: int) -> None:
    rng = np.random.default_rng(case)
    count = 600
    thin = np.flatnonzero(rng.random(1200) < 0.5)
    values = words(
        [
            lambda: np.arange(count) + 2**40,
            lambda: np.delete(np.arange(count + 2), [3, 500]),
            lambda: thin,
            lambda: np.arange(count) * 50,
            lambda: rng.permutation(count),
            lambda: rng.permutation(count) * 2**20,
            lambda: rng.permutation(count) * 2**40,
            lambda: np.concatenate([np.arange(300) + 10**6, np.arange(300)]),
            lambda: np.concatenate([np.arange(9000, 9290), thin[:50], np.arange(8000, 8300)]),
        ][case]()
    )
    count = len(values)
    created = words(np.sort(rng.integers(1, 9, count)))
    updated = words(rng.integers(1, 2**40, count))
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"i": range(count)}), str(path), enable_stable_row_ids=True)
    change_fragment(path, row_ids=values, created=created, updated=updated)
    dataset = lance.dataset(str(path))
    columns = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    table = dataset.to_table(columns=columns)
    for column, expected in zip(columns, (values, created, updated), strict=True):
        assert np.array_equal(table[column].to_numpy(), expected)
    places = rng.permutation(count)[:40]
    taken = dataset._take_rows(values[places].tolist(), columns=["i"])
    assert taken["i"].to_pylist() == places.tolist()
    assert not len(dataset._take_rows([2**62], columns=["i"]))
    # pylance must find the ids, and also continue with them.
    dataset.delete("i % 2 = 0")
    lance.dataset(str(path)).optimize.compact_files()
    table = lance.dataset(str(path)).to_table(columns=columns)
    for column, expected in zip(columns, (values, created, updated), strict=True):
        assert np.array_equal(table[column].to_numpy(), expected[1::2])


@pytest.mark.parametrize("spill", [False, True], ids=["inline", "hidden columns"])
def test_sequences_of_pylance_are_read(tmp_path: Path, spill: bool) -> None:
    path = tmp_path / "t.lance"
    lived_in(path, spill=spill, step=400)
    readers = {
        "_rowid": row_ids.row_ids_of,
        "_row_created_at_version": row_ids.created_versions_of,
        "_row_last_updated_at_version": row_ids.updated_versions_of,
    }
    hidden = 0
    for version in versions_of(path):
        ours, theirs = open_dataset(str(path), version), lance.dataset(str(path), version=version)
        paths = TablePaths.open(str(path))
        for fragment in ours.fragments:
            hidden += fragment.to_proto().HasField("column_row_ids")
            deleted = read_deletions(paths, fragment)
            expected = theirs.get_fragment(fragment.id).to_table(columns=list(readers))
            for column, read in readers.items():
                result = read(fragment, paths)
                assert result is not None
                assert len(result) == fragment.physical_rows
                assert np.array_equal(without_deleted(result, deleted), expected[column].to_numpy())
    assert bool(hidden) == spill


def test_a_table_without_stable_row_ids(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"i": [1]}), str(tmp_path / "t"))
    (fragment,) = open_dataset(str(tmp_path / "t")).fragments
    paths = TablePaths.open(str(tmp_path / "t"))
    assert row_ids.row_ids_of(fragment, paths) is None
    assert row_ids.created_versions_of(fragment, paths) is None
    assert row_ids.updated_versions_of(fragment, paths) is None


def test_carry_refuses_wrong_numbers_of_values() -> None:
    message = table_pb2.DataFragment(id=4, physical_rows=3)
    with pytest.raises(InvalidInputError, match=r"fragment 4: 2 .* for 3 rows"):
        row_ids.store_lineage(message, row_ids=words([1, 2]))
    row_ids.store_lineage(message, updated=words([1, 2, 2]))
    assert not message.inline_row_ids
    assert not message.inline_created_at_versions
