"""Locators to blobs: values that stand for the bytes of blobs on the way from a scan to a writer.

A plan that copies blobs, without a look at their bytes, moves a locator of some hundred bytes in
place of each large blob. Only the writer of the same plan reads the bytes. A locator is a binary
value that begins with the mark of its plan. The mark is random, so no value of a user has it.

=====  =====================================================================================
16     the mark
2      number of the source of the plan: the table that the scan reads
2      kind of the descriptor (`blob_loader`)
8 x 3  position, size and blob id of the descriptor
4, 4   bytes of the place and of the URI
n      the place, JSON: root of the table, its base paths that are needed, and the data file
n      the URI of the descriptor
n      filler: a 64th of the bytes of the blob, at most 1 MiB
=====  =====================================================================================

Spark divides shuffled rows among tasks by their bytes. Without filler, one task would get all blobs
of a plan. The filler does not compress, and is the same for each attempt of a task.

Credentials are not part of a locator. Small blobs have no locators, and travel as bytes: a read of
many of them in their order costs less than reads one by one, after a shuffle.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import strings_of
from lance_spark.file.schema.nested import Lengths
from lance_spark.proto import table_pb2
from lance_spark.scan.blob_descriptors import EXTERNAL, BlobDescriptors
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.paths import BasePath, TablePaths

MARK_BYTES = 16
#: Blobs of more bytes have locators.
MAX_VALUE_BYTES = 256 * 1024
#: About the bytes of a locator without its filler.
_PLAIN_BYTES = 512
#: Filler for a number of bytes of a blob, for a blob of an unknown size, and the most.
_FILLED, _FILLER_OF_OBJECT, _MAX_FILLER = 64, 16 * 1024, 1 << 20
#: Bytes that fillers are taken from. Two fillers that are near one another should not overlap.
_POOL_BYTES = 8 << 20
_HEADER = np.dtype(
    [
        ("mark", "<u8", 2),
        ("source", "<u2"),
        ("kind", "<u2"),
        ("position", "<i8"),
        ("size", "<i8"),
        ("blob_id", "<i8"),
        ("place_bytes", "<u4"),
        ("uri_bytes", "<u4"),
    ]
)
HEADER_BYTES = _HEADER.itemsize


@dataclass(frozen=True, slots=True)
class Mark:
    """What locators of one source begin with.

    - `mark`: The random mark of the plan.
    - `source`: Number of the source.
    """

    mark: bytes
    source: int

    def __bytes__(self) -> bytes:
        return self.mark + self.source.to_bytes(2, "little")

    @classmethod
    def of(cls, value: bytes) -> Mark:
        """Return the mark of its bytes."""
        return cls(value[:MARK_BYTES], int.from_bytes(value[MARK_BYTES:], "little"))


@dataclass(frozen=True, slots=True)
class Locator:
    """One locator.

    - `place`: See `place_of`.
    - `descriptor`: Fields of a descriptor of version 2.2.
    """

    source: int
    place: bytes
    descriptor: dict[str, object]

    @classmethod
    def of(cls, value: bytes) -> Locator:
        """Parse a locator."""
        header = np.frombuffer(value, _HEADER, 1)[0]
        end = HEADER_BYTES + int(header["place_bytes"])
        uri = value[end : end + int(header["uri_bytes"])]
        descriptor = {
            "kind": int(header["kind"]),
            "position": int(header["position"]),
            "size": int(header["size"]),
            "blob_id": int(header["blob_id"]),
            "blob_uri": uri.decode(),
        }
        return cls(int(header["source"]), value[HEADER_BYTES:end], descriptor)


def has_locator(blobs: BlobDescriptors) -> npt.NDArray[np.bool_]:
    """Return which blobs have locators. Those of a whole object do, whose size is not known."""
    is_whole = (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
    located: npt.NDArray[np.bool_] = blobs.live & (is_whole | (blobs.sizes > MAX_VALUE_BYTES))
    return located


def locator_bytes(blobs: BlobDescriptors) -> Lengths:
    """Return about the bytes of the locators of blobs."""
    filler = np.where(blobs.sizes == 0, _FILLER_OF_OBJECT, blobs.sizes // _FILLED)
    lengths: Lengths = _PLAIN_BYTES + np.minimum(filler, _MAX_FILLER)
    return lengths


@cache
def _pool() -> bytes:
    return np.random.default_rng(0).bytes(_POOL_BYTES)


def locators(
    blobs: BlobDescriptors, chosen: Lengths, mark: Mark, paths: TablePaths, file: DataFile
) -> pa.Array:
    """Return locators to some blobs of a data file.

    - `chosen`: Their indices.
    """
    headers = np.zeros(len(chosen), _HEADER)
    headers["mark"] = np.frombuffer(mark.mark, "<u8")
    headers["source"] = mark.source
    headers["kind"] = blobs.storage_modes[chosen]
    headers["position"] = blobs.positions[chosen]
    headers["size"] = blobs.sizes[chosen]
    headers["blob_id"] = blobs.blob_ids[chosen]
    # Only the id of an external blob is that of a base path.
    bases = np.where(blobs.storage_modes[chosen] == EXTERNAL, blobs.blob_ids[chosen], 0)
    distinct_bases, numbers = np.unique(bases, return_inverse=True)
    places = [place_of(paths, file, base) for base in distinct_bases.tolist()]
    uris = [blobs.uri(index).encode() for index in chosen.tolist()]
    headers["place_bytes"] = np.array([len(place) for place in places])[numbers]
    headers["uri_bytes"] = [len(uri) for uri in uris]
    lengths = locator_bytes(blobs)[chosen] - _PLAIN_BYTES
    pool = memoryview(_pool())
    values = []
    for header, number, uri, length in zip(
        map(np.void.tobytes, headers), numbers.tolist(), uris, lengths.tolist(), strict=True
    ):
        start = crc32(uri, crc32(header)) % (_POOL_BYTES - _MAX_FILLER)
        values.append(b"".join((header, places[number], uri, pool[start : start + length])))
    return pa.array(values, pa.large_binary())


def place_of(paths: TablePaths, file: DataFile, base_id: int) -> bytes:
    """Return the place of a data file.

    - `base_id`: The base path of an external blob, 0 for none.
    """
    message = table_pb2.DataFile(
        path=file.path,
        file_major_version=file.file_major_version,
        file_minor_version=file.file_minor_version,
        file_size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )
    needed = {file.base_id, base_id or None}
    bases = [
        base64.b64encode(base.to_proto().SerializeToString()).decode()
        for number, base in paths.base_paths.items()
        if number in needed
    ]
    content = base64.b64encode(message.SerializeToString()).decode()
    return json.dumps([paths.store.uri, bases, content]).encode()


def parse_place(place: bytes) -> tuple[str, dict[int, BasePath], DataFile]:
    """Return the root of the table, its base paths that are needed, and the data file."""
    root, messages, content = json.loads(place)
    bases = [
        BasePath.from_proto(table_pb2.BasePath.FromString(base64.b64decode(text)))
        for text in messages
    ]
    file = DataFile.from_proto(table_pb2.DataFile.FromString(base64.b64decode(content)))
    return root, {base.id: base for base in bases}, file


def locators_in(array: pa.Array, mark: bytes) -> tuple[Lengths, Lengths]:
    """Return which binary values are locators, and the sizes of what they stand for.

    Returns
    -------
    int64 array
        Indices of locators.
    int64 array
        Their sizes: 0 for whole objects, whose size is not known.
    """
    block = strings_of(array)
    offsets, data = block.offsets.astype(np.int64, copy=False), block.data
    live = array.is_valid().to_numpy(zero_copy_only=False)
    found = np.flatnonzero(live & (np.diff(offsets) >= HEADER_BYTES))
    if not len(found):
        return found, found
    first = data[offsets[found][:, None] + np.arange(MARK_BYTES)]
    found = found[(first == np.frombuffer(mark, np.uint8)).all(axis=1)]
    headers = data[offsets[found][:, None] + np.arange(HEADER_BYTES)]
    return found, np.ascontiguousarray(headers).view(_HEADER).reshape(-1)["size"]
