"""Few different vectors, some with null items: pylance makes a dictionary of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.encoding.blocks import FixedSizeListBlock
from lance_spark.encoding.v2_1.codecs import fixed_size_list
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb

FLOATS = pa.list_(pa.float32(), 4)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null items": (FLOATS, [[1.0, 2.0, 3.0, 4.0], [1.0, None, 1.0, 2.0], [None] * 4]),
    "null vectors": (FLOATS, [[1.0] * 4, None]),
    "both": (FLOATS, [None, [1.0] * 4, [None, 1.0, 1.0, 2.0]]),
    "bitmaps of two bytes": (pa.list_(pa.int32(), 10), [[1] * 10, None, [1, None] + [3] * 8]),
    "bytes": (pa.list_(pa.int8(), 9), [[1] * 9, [None] + [3] * 8, [4] * 8 + [None]]),
}


@pytest.mark.parametrize("case", VALUES)
def test_null_items_in_a_dictionary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    dtype, values = VALUES[case]
    data = pa.table({"v": pa.array(values * 500, dtype)})
    path = tmp_path / "t"
    lance.write_dataset(data, path, data_storage_version="2.3")
    seen: list[bool] = []
    decode = fixed_size_list.FixedSizeListCodec.decode_block

    def noted(codec: Any, encoding: pb.FixedSizeList, *args: Any) -> FixedSizeListBlock:
        seen.append(encoding.has_validity)
        return decode(codec, encoding, *args)

    monkeypatch.setattr(fixed_size_list.FixedSizeListCodec, "decode_block", noted)
    table = open_dataset(str(path)).to_table()
    assert seen == [True]
    assert table == data == lance.dataset(path).to_table()


def test_a_dictionary_that_is_no_whole_number_of_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, values = VALUES["null items"]
    lance.write_dataset(
        pa.table({"v": pa.array(values * 500, dtype)}), tmp_path / "t", data_storage_version="2.3"
    )
    decode = fixed_size_list.FixedSizeListCodec.decode_block
    monkeypatch.setattr(
        fixed_size_list.FixedSizeListCodec,
        "decode_block",
        lambda codec, encoding, data, count: decode(codec, encoding, data[:-1], count),
    )
    with pytest.raises(
        CorruptFileError, match=r"column 'v', page 0: \d+ vectors with null items in"
    ):
        open_dataset(str(tmp_path / "t")).to_table()
