"""The metadata keys of a field that steer how its pages are written.

Keys have the prefix ``lance-encoding:``.

=============================  ======================  ===========================================
key                            values                  meaning
=============================  ======================  ===========================================
compression                    none, lz4, zstd, fsst   none: plain values; lz4, zstd: compress
                                                       after the light encodings (full-zip pages
                                                       always use zstd); fsst: the default
compression-level              integer up to 22        level of zstd
structural-encoding            miniblock, fullzip      layout of the pages
rle-threshold                  0 to 1                  run lengths if runs < threshold * values;
                                                       0: never
bss                            off, on, auto           byte planes below a compressor: auto for
                                                       floats, on for values of 32 and 64 bits
dict-divisor                   positive integer        a dictionary if items < values / divisor
dict-size-ratio                above 0, up to 1        a dictionary if the page shrinks by this
dict-values-compression        none, lz4, zstd         compression of dictionary items
dict-values-compression-level  integer up to 22        level of zstd for dictionary items
minichunk-size                 positive integer        bytes of the values of a chunk
packed                         true, false             the rows of a struct as one leaf
=============================  ======================  ===========================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lance_spark.encoding.compression import zstd_levels
from lance_spark.errors import InvalidInputError

T = TypeVar("T")
V = TypeVar("V")

_PREFIX = "lance-encoding:"


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints in the metadata of a field; None where it has none."""

    compression: str | None = None
    compression_level: int | None = None
    structural: str | None = None
    rle_threshold: float = 0.5
    bss: str = "auto"
    dict_divisor: int | None = None
    dict_size_ratio: float = 0.8
    dict_compression: str | None = None
    dict_compression_level: int | None = None
    chunk_bytes: int | None = None

    @classmethod
    def of(cls, field: pa.Field, path: str) -> Hints:
        """Return the hints in a field's metadata.

        Raises InvalidInputError: the value of a key is not valid.
        """
        metadata = field.metadata
        if not metadata:
            return NO_HINTS
        raw = {
            key.decode()[len(_PREFIX) :]: value.decode(errors="replace").strip().lower()
            for key, value in metadata.items()
            if key.startswith(_PREFIX.encode())
        }
        if not raw:
            return NO_HINTS

        def get(key: str, parse: Callable[[str], V], expected: str, default: T) -> V | T:
            value = raw.get(key)
            if value is None:
                return default
            try:
                return parse(value)
            except ValueError:
                raise InvalidInputError(
                    f"column {path!r}: metadata {_PREFIX + key!r} is {value!r}, but must be "
                    f"{expected}"
                ) from None

        def choose(key: str, names: tuple[str, ...], default: T) -> str | T:
            def parse(value: str) -> str:
                if value not in names:
                    raise ValueError
                return value

            return get(key, parse, f"{', '.join(names[:-1])} or {names[-1]}", default)

        return cls(
            compression=choose("compression", ("none", "lz4", "zstd", "fsst"), None),
            compression_level=get("compression-level", _level, _LEVELS, None),
            structural=choose("structural-encoding", ("miniblock", "fullzip"), None),
            rle_threshold=get("rle-threshold", _share(0.0), "a number from 0 to 1", 0.5),
            bss=choose("bss", ("off", "on", "auto"), "auto"),
            dict_divisor=get("dict-divisor", _positive, "a positive integer", None),
            dict_size_ratio=get(
                "dict-size-ratio", _share(1e-9), "a number above 0 and up to 1", 0.8
            ),
            dict_compression=choose("dict-values-compression", ("none", "lz4", "zstd"), None),
            dict_compression_level=get("dict-values-compression-level", _level, _LEVELS, None),
            chunk_bytes=get("minichunk-size", _positive, "a positive number of bytes", None),
        )


def check_packed(field: pa.Field) -> None:
    """Refuse a struct field whose metadata `packed` is neither true nor false.

    Raises InvalidInputError.
    """
    value = (field.metadata or {}).get(_PACKED)
    if value is not None and value.lower() not in (b"true", b"false"):
        raise InvalidInputError(
            f"column {field.name!r}: metadata {_PACKED.decode()!r} is "
            f"{value.decode(errors='replace')!r}, but must be true or false"
        )


NO_HINTS = Hints()
_PACKED = (_PREFIX + "packed").encode()
_LEVELS = "an integer that is a level of zstd"


def _level(value: str) -> int:
    number = int(value)
    low, high = zstd_levels()
    if not low <= number <= high:
        raise ValueError
    return number


def _share(least: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        number = float(value)
        if not least <= number <= 1:
            raise ValueError
        return number

    return parse


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number
