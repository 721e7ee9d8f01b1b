"""Files of vector indexes: those of pylance and of its old releases give the distances that pylance
finds in them, and pylance finds the same in files of this package.

`tests/fixtures/build_indexes.py` made the tables of old releases.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.vectors.columns import Ivf, Metric
from lance_spark.indexes.vectors.distances import normalized
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer
from lance_spark.indexes.vectors.quantizers.product import ProductQuantizer
from lance_spark.indexes.vectors.quantizers.quantizer import Quantizer, matrix
from lance_spark.indexes.vectors.quantizers.scalar import ScalarQuantizer
from lance_spark.indexes.vectors.segment import (
    VectorModel,
    VectorSegment,
    VectorWriter,
    open_segment,
)
from lance_spark.mutations.indexes.create import commit_segments
from lance_spark.proto import table_pb2
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes import sections
from tests.fixtures.tables import VECTORS, unpack

Array = npt.NDArray[Any]
Unpacked = Callable[[str], Path]

ROWS, DIMENSION, PARTITIONS = 900, 16, 3
PQ = {"num_sub_vectors": 4}
NOTES: dict[str, Any] = json.loads((VECTORS / "index.json").read_text())
#: Release, table, and the version after each change.
TABLES = [
    (release, table, facts["versions"])
    for release, notes in NOTES.items()
    for table, facts in notes["tables"].items()
    if facts.get("versions")
]
#: Index type, metric, type of items, options.
KINDS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("IVF_FLAT", "l2", "float32", {}),
    ("IVF_FLAT", "l2", "float16", {}),
    ("IVF_FLAT", "cosine", "float64", {}),
    ("IVF_FLAT", "dot", "float32", {}),
    ("IVF_FLAT", "hamming", "uint8", {}),
    ("IVF_SQ", "l2", "float32", {}),
    ("IVF_SQ", "cosine", "float16", {}),
    ("IVF_SQ", "dot", "float64", {}),
    ("IVF_PQ", "l2", "float32", PQ),
    ("IVF_PQ", "l2", "float16", PQ),
    ("IVF_PQ", "cosine", "float32", PQ),
    ("IVF_PQ", "cosine", "float64", PQ),
    ("IVF_PQ", "dot", "float32", PQ),
    ("IVF_PQ", "l2", "float32", {"num_bits": 4, **PQ}),
    ("IVF_PQ", "dot", "float64", {"num_bits": 4, **PQ}),
    ("IVF_HNSW_SQ", "l2", "float32", {}),
]
#: Tables that are searched without their indexes: pylance fails in the first, finds no rows by the
#: second, and rows without vectors by the third. RQ codes of several bits had another form.
REFUSED = {
    ("0.20.0", "pq_4_bits"),
    ("0.20.0", "hnsw_pq_l2"),
    ("0.20.0", "hnsw_sq_l2"),
    ("1.0.4", "rq_5_bits"),
    ("4.0.2", "rq_5_bits"),
}
each_kind = pytest.mark.parametrize(
    ("index_type", "metric", "dtype", "options"),
    KINDS,
    ids=[
        " ".join([*index[:3], *(["4 bits"] if "num_bits" in index[3] else [])]) for index in KINDS
    ],
)


def vectors_of(dtype: str, count: int = ROWS) -> Array:
    rng = np.random.default_rng(1)
    if dtype == "uint8":
        return rng.integers(0, 256, (count, DIMENSION)).astype(np.uint8)
    return (rng.normal(size=(count, DIMENSION)) * 2 + 0.3).astype(dtype)


def query_of(dtype: str) -> Array:
    if dtype == "uint8":
        return np.arange(DIMENSION, dtype=np.uint8) * 13
    return (np.arange(DIMENSION) / 5 - 1).astype(dtype)


def write_table(path: Path, vectors: Array, **options: Any) -> Any:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    data = pa.table({"i": range(len(vectors)), "v": column})
    return lance.write_dataset(data, str(path), max_rows_per_file=500, **options)


def segments_of(path: str, version: int | None = None) -> list[VectorSegment | None]:
    """Return the segments of the index of a table."""
    table = lance_spark.open_dataset(path, version)._table
    indices = sections.section_of(table.manifest).indices
    return [open_segment(IndexFiles(table.paths, index)) for index in indices]


def our_distances(segments: list[VectorSegment | None], query: Array) -> dict[int, float]:
    """Return the distance of each row id, deleted rows included."""
    distance_of: dict[int, float] = {}
    for segment in segments:
        assert segment is not None
        vectors = normalized(query[None]) if segment.metric is Metric.COSINE else query[None]
        for ids, partition in segment.partitions(range(segment.ivf.num_partitions)):
            distances = partition.distances(vectors.astype(query.dtype))[0]
            distance_of.update(zip(ids.tolist(), distances.tolist(), strict=True))
    return distance_of


def their_distances(dataset: Any, query: Array, num_partitions: int) -> dict[int, float]:
    """Return the distance of each row id that pylance finds by the index."""
    nearest = {"column": "v", "q": query, "k": 2_000, "nprobes": num_partitions, "ef": 2_000}
    table = dataset.to_table(
        columns=["_distance"], nearest=nearest, with_row_id=True, fast_search=True
    )
    return dict(zip(table["_rowid"].to_pylist(), table["_distance"].to_pylist(), strict=True))


def assert_equal(ours: dict[int, float], theirs: dict[int, float], tolerance: float = 1e-3) -> None:
    rows = sorted(theirs)
    assert set(rows) <= set(ours)
    np.testing.assert_allclose(
        [ours[row] for row in rows],
        [theirs[row] for row in rows],
        rtol=tolerance,
        # Differences of large products, which releases round in other orders.
        atol=tolerance * max(map(abs, theirs.values()), default=0),
    )


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Return the folder of a release's tables, which is unpacked once."""
    return cache(lambda release: unpack(release, tmp_path_factory.mktemp(release), VECTORS))


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("release", "table", "versions"), TABLES, ids=[" ".join(t[:2]) for t in TABLES]
)
def test_files_of_old_releases(
    release: str, table: str, versions: dict[str, int], unpacked: Unpacked
) -> None:
    path = str(unpacked(release) / table / "table.lance")
    query = np.arange(8, dtype=np.float32) - 3.3
    nearest: dict[str, Any] = {"column": "v", "q": query, "k": 9, "nprobes": 3}
    for state, version in versions.items():
        segments = segments_of(path, version)
        assert segments
        if (release, table) in REFUSED:
            assert set(segments) == {None}, state
            ours_read = lance_spark.open_dataset(path, version)
            exact = ours_read.to_table(["id"], nearest={**nearest, "use_index": False})
            assert ours_read.to_table(["id"], nearest=nearest).equals(exact)
            continue
        ours = our_distances(segments, query)
        dataset = lance.dataset(path, version=version)
        theirs = their_distances(dataset, query, 3)
        live = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
        if table.startswith("rq"):
            # They are estimates, which pylance rounds to bytes.
            assert set(theirs) == set(ours) & set(live)
            continue
        assert_equal(ours, theirs)
        if table.startswith("hnsw"):
            continue
        assert set(theirs) == set(ours) & set(live)
        result = lance_spark.open_dataset(path, version).to_table(["id"], nearest=nearest)
        expected = dataset.to_table(columns=["id", "_distance"], nearest=nearest)
        # Rows of equal distances are in any order.
        np.testing.assert_allclose(result["_distance"], expected["_distance"], rtol=1e-3)


@pytest.mark.sample(2)
@each_kind
def test_files_of_pylance(
    index_type: str, metric: str, dtype: str, options: dict[str, Any], tmp_path: Path
) -> None:
    dataset = write_table(tmp_path / "t", vectors_of(dtype), enable_stable_row_ids=dtype != "uint8")
    dataset = dataset.create_index(
        "v", index_type, metric=metric, num_partitions=PARTITIONS, **options
    )
    query = query_of(dtype)
    segments = segments_of(dataset.uri)
    ours = our_distances(segments, query)
    theirs = their_distances(dataset, query, PARTITIONS)
    # pylance computes distances of 16-bit floats with fewer digits.
    assert_equal(ours, theirs, 1e-2 if dtype == "float16" else 1e-4)
    assert len(ours) == ROWS
    (segment,) = segments
    assert segment is not None
    assert (segment.index_type, segment.metric.value) == (index_type, metric)
    assert segment.ivf.centroids.shape == (PARTITIONS, DIMENSION)
    assert segment.has_graphs is ("HNSW" in index_type)


@pytest.mark.sample(2)
@each_kind
def test_pylance_finds_the_same_in_our_files(
    index_type: str, metric: str, dtype: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if "HNSW" in index_type:
        pytest.skip("graphs have tests of their own")
    vectors, query = vectors_of(dtype), query_of(dtype)
    dataset = write_table(tmp_path / "t", vectors)
    dataset = dataset.create_index(
        "v", index_type, metric=metric, num_partitions=PARTITIONS, **options
    )
    expected = their_distances(dataset, query, PARTITIONS)
    (segment,) = segments_of(dataset.uri)
    assert segment is not None
    stored = normalized(vectors).astype(dtype) if metric == "cosine" else vectors
    ids_of, codes_of = [], []
    for number in range(PARTITIONS):
        ids, theirs = segment.stored(number)
        places = (ids >> 32) * 500 + (ids & 0xFFFFFFFF)
        part = stored[places.astype(np.int64)]
        centroids = np.broadcast_to(segment.ivf.centroids[number], part.shape)
        codes = segment.quantizer.encode(part, centroids)
        if index_type == "IVF_FLAT" and metric == "cosine":
            # The last digit of a length differs.
            ours = matrix(codes.column(0))
            np.testing.assert_allclose(ours, matrix(theirs.column(0)), rtol=1e-3)
        else:
            assert segment.quantizer.stored(codes).equals(theirs)
            assert segment.quantizer.unstored(theirs).equals(codes)
        ids_of.append(ids)
        codes_of.append(codes)
    replace_index(dataset.uri, segment, segment.quantizer, segment.ivf.centroids, ids_of, codes_of)
    distances = their_distances(lance.dataset(dataset.uri), query, PARTITIONS)
    assert set(distances) == set(expected)
    assert_equal(distances, expected, 1e-6)


def replace_index(
    path: str,
    segment: VectorSegment,
    quantizer: Quantizer,
    centroids: Array,
    ids_of: list[Array],
    codes_of: list[pa.RecordBatch],
) -> None:
    """Commit new files in place of those of a segment. Partitions without rows are not written."""
    table = lance_spark.open_dataset(path)._table
    (old,) = sections.section_of(table.manifest).indices
    with SegmentWriter(table.paths, (2, 2)) as writer:
        ivf = Ivf.without_rows(centroids)
        model = VectorModel(segment.index_type, segment.metric, ivf, quantizer)
        vectors = VectorWriter(writer, model)
        for number, (ids, codes) in enumerate(zip(ids_of, codes_of, strict=True)):
            if len(ids):
                vectors.write(number, ids, codes)
        vectors.finish()
        files = writer.finish()
    new = table_pb2.IndexMetadata()
    new.CopyFrom(old)
    new.uuid.uuid = writer.id.bytes
    del new.files[:]
    new.files.extend(files)
    commit_segments(table, [new], [old], CommitOptions())


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows", [0, 3, 600])
def test_our_models_with_partitions_without_rows(version: str, rows: int, tmp_path: Path) -> None:
    """The codebook is made of random numbers. The first and the last partition have no rows."""
    rng = np.random.default_rng(rows)
    vectors, query = vectors_of("float32"), query_of("float32")
    dataset = write_table(tmp_path / "t", vectors, data_storage_version=version)
    centroids = np.concatenate([[vectors[0] + 100], vectors[:2], [vectors[0] + 200]])
    codebook = rng.normal(size=(4, 256, DIMENSION // 4)).astype(np.float32)
    quantizers: dict[str, Quantizer] = {
        "IVF_PQ": ProductQuantizer(Metric.L2, codebook, transposed=rows == 600),
        "IVF_SQ": ScalarQuantizer(DIMENSION, Metric.L2, -5.0, 5.0),
        "IVF_FLAT": FlatQuantizer(DIMENSION, Metric.L2, np.dtype(np.float32)),
    }
    for index_type, quantizer in quantizers.items():
        options: dict[str, Any] = PQ if index_type == "IVF_PQ" else {}
        newest = lance.dataset(dataset.uri)
        newest.create_index("v", index_type, num_partitions=2, replace=True, **options)
        (segment,) = segments_of(dataset.uri)
        assert segment is not None
        nearest = ((vectors[:rows, None] - centroids[1:3]) ** 2).sum(axis=2).argmin(axis=1) + 1
        ids = np.arange(rows, dtype=np.uint64)
        ids += (ids >= 500).astype(np.uint64) * ((1 << 32) - 500)
        ids_of = [ids[nearest == number] for number in range(4)]
        codes_of = [
            quantizer.encode(
                vectors[:rows][nearest == number],
                np.broadcast_to(centroids[number], (len(ids_of[number]), DIMENSION)),
            )
            for number in range(4)
        ]
        replace_index(dataset.uri, segment, quantizer, centroids, ids_of, codes_of)
        ours = our_distances(segments_of(dataset.uri), query)
        theirs = their_distances(lance.dataset(dataset.uri), query, 4)
        assert set(ours) == set(theirs) == set(ids.tolist())
        assert_equal(ours, theirs, 1e-5)
