"""Tables with one damaged file of a vector index, from the archives of old releases.

A search raises an error of this package, or finds live rows. Files have no checksums, so that the
rows can be others than those of the sound index.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from google.protobuf.message import DecodeError

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.indexes.vectors import hnsw
from lance_spark.proto import index_pb2
from lance_spark.table.indexes import sections
from tests.hostile.index_files import worse_index, worse_words
from tests.hostile.mutate import worse_bytes, worse_message
from tests.hostile.tables import Session, TableTarget, tried

#: Target -> table of `tests/fixtures/vectors`, and the damaged files.
_INDEX, _CODES = "index.idx", "auxiliary.idx"
_TABLES = {
    "flat": ("11.0.0 flat_cosine", (_INDEX, _CODES)),
    "sq": ("11.0.0 sq_l2", (_CODES,)),
    "pq": ("11.0.0 pq_l2", (_CODES,)),
    "pq_4_bits": ("11.0.0 pq_4_bits", (_CODES,)),
    "pq_inline": ("0.25.2 pq_cosine", (_CODES,)),
    "pq_legacy": ("1.0.4 pq_legacy", (_INDEX,)),
    "rq": ("11.0.0 rq_l2", (_CODES,)),
    "hnsw": ("11.0.0 hnsw_sq_l2", (_INDEX, _CODES)),
}
_QUERY = np.arange(8, dtype=np.float32) - 3.3
_LEGACY_FOOTER = struct.Struct("<QHH4s")
_SIZE = struct.Struct("<I")


@functools.cache
def _live(root: str) -> frozenset[int]:
    return frozenset(lance_spark.open_dataset(root).to_table(["id"])["id"].to_pylist())


# Graphs of small partitions are followed, too.
@mock.patch.multiple(hnsw, _FEW_ROWS=0, _MOST_SEEN=1)
def searched(root: str) -> None:
    """Search by the index, which may be refused."""
    dataset = lance_spark.open_dataset(root)
    options: list[dict[str, Any]] = [
        {"nprobes": 3},
        {"nprobes": 1, "refine_factor": 2},
        {"q": np.stack([_QUERY] * 20), "nprobes": 3},
    ]
    failed: LanceError | None = None
    for option in options:
        nearest = {"column": "v", "q": _QUERY, "k": 7, **option}
        try:
            ids = dataset.to_table(["id"], nearest=nearest)["id"].to_pylist()
        except LanceError as error:
            failed = error
        else:
            assert _live(root).issuperset(ids)
            assert len(ids) <= 7 * len(np.atleast_2d(nearest["q"]))
    tried(functools.partial(dataset.check_index, "v_idx"))
    if failed is not None:
        raise failed


def _file(name: str) -> Callable[[Path], Path]:
    """Return a function that finds a file of the first segment."""

    def find(root: Path) -> Path:
        table = lance_spark.open_dataset(str(root))._table
        index = sections.section_of(table.manifest).indices[0]
        return root / "_indices" / sections.uuid_of(index) / name

    return functools.cache(find)


def worse_buffer(data: bytes, rng: random.Random) -> bytes:
    """Damage the partitions or the codebook of a file."""
    message = index_pb2.IVF if rng.random() < 0.6 else index_pb2.Tensor
    try:
        return worse_message(message)(data, rng) if rng.random() < 0.8 else worse_bytes(data, rng)
    except DecodeError:
        return worse_bytes(data, rng)


def worse_legacy_index(data: bytes, rng: random.Random) -> bytes:
    """Damage an index of one file: its message, or bytes."""
    if rng.random() < 0.3:
        return worse_words(data, rng) if rng.random() < 0.5 else worse_bytes(data, rng)
    (start, *version) = _LEGACY_FOOTER.unpack(data[-_LEGACY_FOOTER.size :])
    (size,) = _SIZE.unpack_from(data, start)
    first = start + _SIZE.size
    message = worse_message(index_pb2.Index)(data[first : first + size], rng)
    footer = _LEGACY_FOOTER.pack(start, *version)
    return data[:start] + _SIZE.pack(len(message)) + message + footer


def targets() -> Iterator[TableTarget]:
    """Yield a target for each file of each type of vector index."""
    for name, (table, files) in _TABLES.items():
        for file in files:
            part = f"_{file.split('.')[0]}" if len(files) > 1 else ""
            session = Session(f"vectors {table}", _file(file), (searched,))
            worse = functools.partial(worse_index, worse_buffer=worse_buffer)
            mutate = worse_legacy_index if name == "pq_legacy" else worse
            yield TableTarget(f"vectors_{name}{part}", session.run, session.seeds, mutate, 1)
