"""Values of blob columns before they are written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.blobs.writer import BlobValues


def test_columns_of_another_type_are_refused() -> None:
    """A schema of another client can mark any column as one of blobs."""
    with pytest.raises(UnsupportedTypeError, match="field 'i': blobs must be binary, not int64"):
        BlobValues.of(pa.array([1, None]), "i")
    assert BlobValues.of(pa.array([b"a", None], pa.large_binary()), "i").live.tolist() == [
        True,
        False,
    ]
