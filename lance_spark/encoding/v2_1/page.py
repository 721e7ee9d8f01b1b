"""What every page layout of file versions 2.1 and 2.2 has in common: opening a page, and the rows
it gives back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import IndexArray, Layer, LayerSlots, Levels, Step, unravel
from lance_spark.encoding.meta import PageLocation, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

#: Descriptions up to this many bytes recur in many pages, so their parsed form is cached. Longer
#: descriptions have symbol tables of FSST.
_SHORT = 512


@dataclass(frozen=True, slots=True)
class PageRows:
    """Whole rows of one page.

    Attributes
    ----------
    values : pa.Array
        Of the leaf's type, one per visible entry. Their nulls are in `levels`.
    levels : Levels
    """

    values: pa.Array
    levels: Levels

    def slots(self, steps: Sequence[Step]) -> list[LayerSlots]:
        """Return the slots of every layer, leaf first; see `unravel`."""
        return unravel(self.levels, steps)


class PageReader(Protocol):
    """Reads rows of one page; keeps what it learnt of the page for the next read."""

    def read(self, rows: Rows) -> ReadPlan[PageRows]:
        """Plan the reading of some rows (at least one, all inside the page)."""
        ...


class SlottedRows(Protocol):
    """Whole rows of one page: values, one per slot of the leaf, and a way to know the slots of all
    layers.
    """

    @property
    def values(self) -> pa.Array: ...

    def slots(self, steps: Sequence[Step]) -> list[LayerSlots]:
        """Return the slots of every layer, leaf first; `steps` are those of the column's leaf."""
        ...


class SlottedReader(Protocol):
    """Reads rows of one page of any layout."""

    def read(self, rows: Rows) -> ReadPlan[SlottedRows]:
        """Plan the reading of some rows (at least one, all inside the page)."""
        ...


def parse_layout(encoding: bytes) -> pb.PageLayout:
    """Return the parsed description of a page. Equal bytes share one message: do not change it.

    Raises
    ------
    google.protobuf.message.DecodeError
    """
    if len(encoding) <= _SHORT:
        return _parse_short(encoding)
    message: pb.PageLayout = pb.PageLayout.FromString(encoding)
    return message


@lru_cache(maxsize=256)
def _parse_short(encoding: bytes) -> pb.PageLayout:
    message: pb.PageLayout = pb.PageLayout.FromString(encoding)
    return message


def check_layers(layers: tuple[Layer, ...], leaf: Leaf) -> tuple[Layer, ...]:
    """Return the layers of a page; CorruptFileError if they do not match the column type."""
    if [layer.is_list for layer in layers] != [step.is_list for step in leaf.steps]:
        names = ", ".join(layer.name for layer in layers)
        raise CorruptFileError(
            f"layers {names} are not those of a column of type {leaf.field.type}"
        )
    return layers


@contextmanager
def errors_at(location: PageLocation) -> Iterator[None]:
    """Name the page in errors raised inside.

    Decoders check descriptions before they use them. What numpy or Arrow still refuses is a
    corrupt page too.
    """
    try:
        yield
    except (CorruptFileError, UnsupportedEncodingError) as error:
        raise type(error)(f"{location}: {error}") from error
    except (ValueError, IndexError, OverflowError, pa.ArrowException) as error:
        raise CorruptFileError(f"{location}: cannot be decoded: {error}") from error


def runs_of(numbers: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return where in a strictly increasing array its runs of consecutive numbers start and end."""
    edges = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2, append=numbers[-1:] + 2) != 1)
    return edges[:-1], edges[1:]


def joined(buffers: Sequence[Bytes]) -> Bytes:
    """Return the bytes of several buffers as one; no copy if there is one."""
    return buffers[0] if len(buffers) == 1 else np.concatenate(buffers)


def little_endian(data: Bytes, width: int) -> IndexArray:
    """Return unsigned little-endian numbers of `width` bytes as int64.

    Raises
    ------
    CorruptFileError
        A number does not fit.
    """
    numbers = data.view(f"<u{width}")
    if width == 8 and int(numbers.max(initial=0)) > np.iinfo(np.int64).max:
        raise CorruptFileError("a 64-bit number is out of bounds")
    return numbers.astype(np.int64)


def buffer_at(meta: PageMeta, index: int) -> ByteRange:
    """Return a buffer of the page; CorruptFileError if the page has no such buffer."""
    if index >= len(meta.buffers):
        raise CorruptFileError(f"buffer {index} is missing: the page has {len(meta.buffers)}")
    return meta.buffers[index]
