"""Some strings of FSST chunks: as if all were expanded, and only what is asked for is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.v2_1.codecs.strings import fsst
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb

ROWS = 20_000


def _texts(kind: pa.DataType) -> pa.Array:
    rng = np.random.default_rng(5)
    words = np.array(["lance ", "spark ", "\xe9t\xe9 ", "", "a much longer word "])
    texts = ["".join(words[rng.integers(0, 5, n)]) + str(n) for n in rng.integers(1, 12, ROWS)]
    return pa.array(texts, mask=rng.random(ROWS) < 0.1).cast(kind)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.list_(pa.string())], ids=str)
def test_rows_that_pylance_wrote_as_fsst(
    tmp_path: Path, version: str, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded: list[int] = []
    expand = fsst.expand

    def counting(symbols: Any, codes: Any, offsets: Any) -> Any:
        expanded.append(len(offsets) - 1)
        return expand(symbols, codes, offsets)

    monkeypatch.setattr(fsst, "expand", counting)
    lists = pa.types.is_list(kind)
    texts = _texts(kind.value_type if lists else kind)
    if lists:
        texts = pa.ListArray.from_arrays(np.arange(0, ROWS + 1, 4, np.int32), texts)
    metadata = {"lance-encoding:compression": "fsst"}
    schema = pa.schema([pa.field("text", kind, metadata=metadata)])
    table = pa.table([texts], schema=schema)
    lance.write_dataset(table, str(tmp_path / "t"), data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    assert dataset.to_table()["text"].combine_chunks().equals(texts)
    rng = np.random.default_rng(6)
    for count in (1, 40, len(texts) // 2):
        rows = np.sort(rng.choice(len(texts), count, replace=False))
        expected = texts.take(pa.array(rows))
        expanded.clear()
        assert dataset.take(rows)["text"].combine_chunks().equals(expected)
        assert 0 < sum(expanded) <= count * (4 if lists else 1)


def test_values_that_are_not_asked_for_are_not_expanded() -> None:
    table = bytes([1, 0, 0, 1]) + b"TSSF" + b"word\0\0\0\0" + bytes([4])
    encoding = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table))
    # The second value has a code without a symbol.
    codes = VariableWidthBlock(
        np.array([1, 3, 4, 4, 6], np.int32), np.array([9, 0, 0, 7, 255, 33], np.uint8)
    )
    found = fsst.expand_some(encoding, codes, np.array([0, 2, 3]))
    assert bytes(found.data) == b"wordword!"
    assert found.offsets.tolist() == [0, 8, 8, 9]
    found = fsst.expand_some(encoding, codes, slice(2, 4))
    assert bytes(found.data) == b"!"
    for where in (np.array([1]), slice(0, 2)):
        with pytest.raises(CorruptFileError, match="outside the 1 symbols"):
            fsst.expand_some(encoding, codes, where)
