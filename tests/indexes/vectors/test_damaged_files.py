"""Parts of the files of vector indexes that are damaged: errors before memory is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.file.footer import Tail
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.files import decode_ivf, encode_ivf, encode_tensor, parse_tensor
from lance_spark.indexes.vectors.quantizers.quantizer import StoredModel
from lance_spark.indexes.vectors.segment import open_quantizer, read_legacy
from lance_spark.proto import index_pb2 as pb
from tests.file.sources import StrictSource

CENTROIDS = np.arange(24, dtype=np.float32).reshape(3, 8)
CODEBOOK = encode_tensor(np.zeros((256, 8), np.float32)).SerializeToString()


def test_partitions_are_read_as_they_were_written() -> None:
    data = encode_ivf([0, 4, 4], [4, 0, 6], CENTROIDS, 2.5)
    ivf = decode_ivf(data, 10, "f")
    assert np.array_equal(ivf.centroids, CENTROIDS)
    assert (ivf.offsets.tolist(), ivf.lengths.tolist(), ivf.loss) == ([0, 4, 4], [4, 0, 6], 2.5)
    without = decode_ivf(encode_ivf([], [4, 6]), 10, "f")
    assert (without.offsets.tolist(), without.loss, without.centroids.size) == ([0, 4], None, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
def test_tensors_are_read_as_they_were_written(dtype: Any) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    parsed = parse_tensor(encode_tensor(array).SerializeToString(), 2, "f")
    assert parsed.dtype == dtype
    assert np.array_equal(parsed, array)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (pb.Tensor(data_type=pb.Tensor.UINT64, shape=[1, 1], data=bytes(8)), "of type 7 is not"),
        (pb.Tensor(data_type=pb.Tensor.FLOAT32, shape=[4], data=bytes(16)), "with 2 axes"),
        (pb.Tensor(data_type=pb.Tensor.FLOAT32, shape=[4, 2**32 - 1]), "a tensor of 0 bytes"),
        (pb.Tensor(data_type=pb.Tensor.UINT8, shape=[2**32 - 1] * 9, data=b"x"), "of 1 bytes"),
    ],
)
def test_tensors_of_another_form(tensor: pb.Tensor, message: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^f: .*{message}"):
        parse_tensor(tensor.SerializeToString(), 2, "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "its partitions are damaged"),
        (encode_ivf([0], [4, 6]), "1 offsets and 2 lengths"),
        (encode_ivf([0, 2**64 - 1], [4, 6]), "after the last row"),
        (encode_ivf([0, 3], [4, 6]), "each of its 10 rows once"),
        (encode_ivf([0, 4], [4, 7]), "each of its 10 rows once"),
        (encode_ivf([0, 5], [4, 5]), "each of its 10 rows once"),
        (encode_ivf([0], [2**32 - 1]), "each of its 10 rows once"),
        (encode_ivf([0, 4], [4, 6], CENTROIDS), "3 centroids of 8 items"),
        (encode_ivf([0, 4], [4, 6], CENTROIDS[:2, :0]), "2 centroids of 0 items"),
    ],
)
def test_partitions_of_another_form(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^f: .*{message}"):
        decode_ivf(data, 10, "f")


def model_of(metadata: Mapping[str, Any], buffer: bytes = CODEBOOK) -> StoredModel:
    return StoredModel(metadata, Metric.L2, CENTROIDS, lambda _: buffer, (), "f")


PQ = {"nbits": 8, "num_sub_vectors": 4, "dimension": 8, "codebook_position": 2, "transposed": True}
SQ = {"dim": 8, "num_bits": 8, "bounds": {"start": -1.0, "end": 1}}


def test_metadata_of_quantizers() -> None:
    assert open_quantizer("IVF_PQ", model_of(PQ)).dimension == 8
    assert open_quantizer("IVF_SQ", model_of(SQ)).metadata([]) == SQ
    assert open_quantizer("IVF_HNSW_FLAT", model_of({"dim": 8})).metadata([]) == {"dim": 8}
    inline = {**PQ, "codebook_position": 0, "codebook_tensor": list(CODEBOOK)}
    assert open_quantizer("IVF_PQ", model_of(inline, b"")).buffers() == (CODEBOOK,)


@pytest.mark.parametrize(
    ("index_type", "changes", "message"),
    [
        ("IVF_FLAT", {"dim": 9}, "dim must be an integer from 8 to 8, not 9"),
        ("IVF_FLAT", {"dim": True}, "dim must be an integer"),
        ("IVF_SQ", {"num_bits": 4}, "num_bits must be an integer from 8 to 8"),
        ("IVF_SQ", {"bounds": None}, "bounds must be two increasing numbers"),
        ("IVF_SQ", {"bounds": {"start": 1, "end": 0}}, "bounds must be two increasing numbers"),
        ("IVF_SQ", {"bounds": {"start": 1e400, "end": 1e400}}, "bounds must be two"),
        ("IVF_SQ", {"bounds": {"start": 10**400, "end": 10**401}}, "bounds must be two"),
        ("IVF_PQ", {"nbits": 5}, "4 sub-vectors of 5 bits"),
        ("IVF_PQ", {"nbits": 4}, "a codebook of float32 and shape"),
        ("IVF_PQ", {"num_sub_vectors": 3}, "3 sub-vectors of 8 bits"),
        ("IVF_PQ", {"num_sub_vectors": 0}, "num_sub_vectors must be an integer from 1 to 8"),
        ("IVF_PQ", {"dimension": 16}, "dimension must be an integer from 8 to 8"),
        ("IVF_PQ", {"codebook_position": None}, "codebook_position must be an integer"),
        ("IVF_PQ", {"codebook_tensor": 10**12}, "codebook_tensor must be a list of bytes"),
        ("IVF_PQ", {"codebook_tensor": [1, 256]}, "codebook_tensor must be a list of bytes"),
        ("IVF_PQ", {"codebook_tensor": [255]}, "a tensor is damaged"),
    ],
)
def test_metadata_of_another_form(index_type: str, changes: Any, message: str) -> None:
    sound: dict[str, dict[str, Any]] = {"IVF_FLAT": {"dim": 8}, "IVF_SQ": SQ, "IVF_PQ": PQ}
    with pytest.raises(CorruptFileError, match=f"^f: {message}"):
        open_quantizer(index_type, model_of({**sound[index_type], **changes}))


def test_types_that_are_not_known() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'IVF_XQ' is not one of IVF_FLAT"):
        open_quantizer("IVF_XQ", model_of({}))
    with pytest.raises(UnsupportedFeatureError, match="num_bits in place of nbits"):
        open_quantizer("IVF_HNSW_PQ", model_of({"num_bits": 8, "dimension": 8}))


def legacy_file(**changes: Any) -> bytes:
    """Return an index of two partitions of three and two rows, with codes of four bytes."""
    parts = bytes(5 * (4 + 8))
    ivf = {"offsets": [0, 36], "lengths": [3, 2], "centroids": range(16)}
    pq = {"num_bits": 8, "num_sub_vectors": 4, "dimension": 8, "codebook": range(2048)}
    stages = [
        pb.VectorIndexStage(ivf=pb.IVF(**{**ivf, **changes.get("ivf", {})})),
        pb.VectorIndexStage(pq=pb.PQ(**{**pq, **changes.get("pq", {})})),
    ]
    index = pb.VectorIndex(stages=stages[: changes.get("stages", 2)], metric_type=pb.Cosine)
    message: bytes = pb.Index(vector_index=index).SerializeToString()
    start: int = changes.get("start", len(parts))
    footer = start.to_bytes(8, "little") + b"\0\0\1\0LANC"
    return parts + len(message).to_bytes(4, "little") + message + footer


def test_an_index_of_one_file() -> None:
    model = read_legacy(Tail(StrictSource(legacy_file())))
    assert (model.index_type, model.metric) == ("IVF_PQ", Metric.COSINE)
    assert model.ivf.centroids.shape == (2, 8)
    assert model.ivf.offsets.tolist() == [0, 3]
    assert model.positions is not None
    assert model.positions.tolist() == [0, 36]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": 2**63}, "its metadata start after its end"),
        ({"start": 10}, "its metadata do not end at its footer"),
        ({"ivf": {"offsets": [0, 35]}}, "its 2 partitions overlap"),
        ({"ivf": {"offsets": [0, 37]}}, "its 2 partitions overlap"),
        ({"ivf": {"offsets": [0, 2**64 - 1]}}, "its 2 partitions overlap"),
        ({"ivf": {"offsets": [0]}}, "its 2 partitions overlap"),
        ({"ivf": {"lengths": [3, 2**32 - 1]}}, "its 2 partitions overlap"),
        ({"ivf": {"lengths": [3, 2, 5]}}, "16 numbers are not 3 vectors"),
        ({"ivf": {"lengths": [], "centroids": []}}, "0 numbers are not 0 vectors"),
        ({"pq": {"num_sub_vectors": 2**32 - 1}}, "2048 numbers are not"),
        ({"pq": {"num_sub_vectors": 0}}, "2048 numbers are not 0 vectors"),
        ({"pq": {"dimension": 16}}, "a codebook of 2048 numbers"),
        ({"pq": {"codebook": range(4096), "dimension": 16}}, "codes of 16 items"),
    ],
)
def test_an_index_of_one_file_that_is_damaged(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        read_legacy(Tail(StrictSource(legacy_file(**changes))))


@pytest.mark.parametrize("changes", [{"stages": 1}, {"pq": {"num_bits": 4}}])
def test_an_index_of_one_file_that_is_not_known(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="must be an IVF_PQ index of 8 bits"):
        read_legacy(Tail(StrictSource(legacy_file(**changes))))
