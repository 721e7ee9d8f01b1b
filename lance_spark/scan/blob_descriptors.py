"""The descriptors of blobs: where their bytes are.

=====  ===============================================  ============================================
kind   the bytes are in                                 at
=====  ===============================================  ============================================
0      the data file                                    position
1      data/{name of the data file}/{blob_id}.blob,     position
       shared by several blobs
2      the same path, one blob                          0
3      the object at blob_uri; below the base path      position; size 0 stands for the whole object
       with id blob_id if that is not 0
=====  ===============================================  ============================================

Files before version 2.2 have the first kind only. There a size of 0 is an empty value, and in 2.0 a
null if the position is 1. In file names, `blob_id` has 32 binary digits, the lowest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.schema.nested import Lengths

INLINE, PACKED, DEDICATED, EXTERNAL = range(4)
#: No file is larger.
_MAX_SIZE = 1 << 48


@dataclass(frozen=True, slots=True)
class BlobDescriptors:
    """The locations of some blobs, one entry for each value.

    - `name`: What errors call the data file.
    - `live`: False for nulls.
    """

    name: str
    live: npt.NDArray[np.bool_]
    storage_modes: npt.NDArray[np.uint8]
    positions: Lengths
    sizes: Lengths
    blob_ids: Lengths
    uris: pa.Array | None

    @classmethod
    def of(cls, array: pa.Array, name: str) -> BlobDescriptors:
        """Parse the descriptors of a data file; `name` is what errors call the file.

        Raises CorruptFileError: a kind or size is invalid.
        """
        count = len(array)
        live = array.is_valid().to_numpy(zero_copy_only=False)
        fields = [array.field(i) for i in range(array.type.num_fields)]
        if array.type.num_fields == PLACE.num_fields:
            positions, sizes = (_unsigned(field, live, name) for field in fields)
            live = live & ~((sizes == 0) & (positions == 1))
            zeros = np.zeros(count, np.int64)
            return cls(name, live, zeros.astype(np.uint8), positions, sizes, zeros, None)
        storage_modes = np.where(live, _filled(fields[0]), 0).astype(np.uint8)
        if int(storage_modes.max(initial=0)) > EXTERNAL:
            raise CorruptFileError(
                f"{name}: a blob has kind {int(storage_modes.max())}; kinds are 0 to {EXTERNAL}"
            )
        positions, sizes, blob_ids = (_unsigned(field, live, name) for field in fields[1:4])
        if ((storage_modes == EXTERNAL) & (sizes == 0) & (positions != 0)).any():
            raise CorruptFileError(f"{name}: a blob is an empty range of another object")
        return cls(name, live, storage_modes, positions, sizes, blob_ids, fields[4])

    def uri(self, index: int) -> str:
        """Return the URI of one value. Raises CorruptFileError: the URI is not text."""
        if self.uris is None or not self.uris[index].is_valid:
            return ""
        try:
            return str(self.uris[index].as_py())
        except UnicodeDecodeError:
            raise CorruptFileError(f"{self.name}: the URI of a blob is not UTF-8") from None


def _filled(array: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    filled = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[np.unsignedinteger] = filled.to_numpy()
    return numbers


def _unsigned(array: pa.Array, live: npt.NDArray[np.bool_], name: str) -> Lengths:
    numbers = np.where(live, _filled(array), 0)
    if int(numbers.max(initial=0)) > _MAX_SIZE:
        raise CorruptFileError(
            f"{name}: a blob lies outside its file: its position or size is {int(numbers.max())}"
        )
    return numbers.astype(np.int64)
