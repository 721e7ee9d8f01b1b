"""The choice of the compressive encoding by the values of a page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.arrow_blocks import fixed_width, to_block
from lance_spark.encoding.blocks import (
    DataBlock,
    DictionaryBlock,
    FixedWidthBlock,
    VariableWidthBlock,
)
from lance_spark.encoding.compression import compressed_share
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.v2_1.codec import ChunkLimits, Encoded
from lance_spark.encoding.v2_1.codecs import (
    byte_stream_split,
    flat,
    general,
    inline_bitpacking,
    rle,
    variable,
)
from lance_spark.encoding.v2_1.codecs.strings import compressed_strings, fsst_write
from lance_spark.encoding.v2_1.hints import Hints
from lance_spark.encoding.v2_1.shred import LeafColumn

#: Dictionaries of fewer values than this do not save enough for a third buffer.
_MIN_DICTIONARY = 100
#: Values of a sample before a dictionary is built, and the share of distinct values above which
#: none is built. Distinct values fill a sample long before they fill the page; numbers gain too
#: little for that to matter.
_SAMPLE = 4096
_SAMPLE_SHARE = 0.98
_SAMPLE_SHARE_OF_NUMBERS = 0.5
#: Share of the estimated distinct values that the page has for certain.
_SURE = 0.8
#: Share of distinct values in the sample above which a larger sample is used, whose estimate is
#: more certain.
_MANY = 0.5
_LARGE_SAMPLE = 1 << 15
_SURER = 0.9
#: Share of the plain bytes above which the items of a dictionary are compared with compressed
#: strings.
_LARGE_DICTIONARY = 0.1
_LZ4_OVER_ZSTD = 1.4
#: Bytes of a piece of a sample.
_PIECE = 16 * 1024
#: Minimum saving of light encodings, so that their decoding is worth it.
_WORTH = 0.9


def uniform_scalar(values: pa.Array, live: BoolArray | None) -> pa.Array | None:
    """Return the value that all live slots have, as an array of length 1; None if they differ."""
    first = int(live.argmax()) if live is not None else 0
    scalar = values.slice(first, 1)
    # Most columns differ within a few values.
    head = values.slice(0, 64)
    for part, mask in ((head, None if live is None else live[:64]), (values, live)):
        equal = _equals(part, scalar)
        if mask is not None:
            equal |= ~mask
        if not equal.all():
            return None
    return scalar


def _equals(values: pa.Array, scalar: pa.Array) -> BoolArray:
    """Return which values have the same bits as `scalar`, which differs from == for floats."""
    width = fixed_width(values.type)
    if width in (8, 16, 32, 64):
        numbers = np.frombuffer(values.buffers()[1], f"<u{width // 8}")
        item = np.frombuffer(scalar.buffers()[1], f"<u{width // 8}")[scalar.offset]
        equal: BoolArray = numbers[values.offset : values.offset + len(values)] == item
        return equal
    dtype = word_type(values.type)
    values, scalar = retyped(values, dtype), retyped(scalar, dtype)
    return pc.equal(values, scalar[0]).to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


def word_type(dtype: pa.DataType) -> pa.DataType:
    """Return a type of the same width that all kernels of Arrow support and compare by bits;
    `dtype` if it does not have whole bytes.
    """
    width = fixed_width(dtype)
    words = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    return dtype if not width or width % 8 else words.get(width) or pa.binary(width // 8)


def retyped(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the same buffers as values of another type of the same width."""
    if values.type == dtype:
        return values
    return pa.Array.from_buffers(dtype, len(values), values.buffers(), offset=values.offset)


def dictionary_of(block: DataBlock, hints: Hints) -> DictionaryBlock | None:
    """Return the block as positions in its distinct items, or None if that does not pay."""
    count = block.num_values
    if count < _MIN_DICTIONARY or hints.compression == "none":
        return None
    if isinstance(block, FixedWidthBlock):
        if block.bits_per_value < 32 or block.bits_per_value % 8:
            return None
    elif not isinstance(block, VariableWidthBlock):
        return None
    array = untyped(block)
    limit = count // hints.dict_divisor if hints.dict_divisor else count // 2
    numbers = pa.types.is_integer(array.type)
    guess = _guess(array)
    if guess.share_in_sample > (_SAMPLE_SHARE_OF_NUMBERS if numbers else _SAMPLE_SHARE):
        return None
    if guess.items * _SURE > limit:
        return None
    cheap, share = _light_size(block), 1.0
    if isinstance(block, VariableWidthBlock) and guess.item_bytes > cheap * _LARGE_DICTIONARY:
        share = _compressed_share(block)
    # To build a dictionary costs more than all the rest, so a dictionary that will not pay is not
    # built.
    if not _saves(guess.index_bytes * _SURE, guess.item_bytes * _SURE, cheap, share, hints):
        return None
    if guess.share_in_sample > _MANY and count > 4 * _LARGE_SAMPLE and not numbers:
        guess = _guess(array, _LARGE_SAMPLE)
        if not _saves(guess.index_bytes * _SURER, guess.item_bytes * _SURER, cheap, share, hints):
            return None
    encoded = array.dictionary_encode()
    items = encoded.dictionary
    if len(items) > limit:
        return None
    indices = to_block(encoded.indices)
    assert isinstance(indices, FixedWidthBlock)
    runs = rle.count_runs(indices) * (indices.bits_per_value // 8 + 1)
    index_bytes = min(count * _index_bits(len(items)) / 8, runs)
    if not _saves(index_bytes, items.nbytes, cheap, share, hints):
        return None
    return DictionaryBlock(indices, to_block(items))


def _saves(index_bytes: float, item_bytes: float, cheap: float, share: float, hints: Hints) -> bool:
    """Return whether positions and items are smaller than `cheap`, the size without a dictionary.

    `share` returns the compressed share of strings. It is called only if the items are not very
    small.
    """
    if item_bytes > cheap * _LARGE_DICTIONARY:
        item_bytes *= min(1.0, share * _LZ4_OVER_ZSTD)
        cheap *= share if share < _WORTH else 1.0
    return index_bytes + item_bytes < cheap * hints.dict_size_ratio


def _index_bits(num_items: int) -> int:
    return max(num_items - 1, 1).bit_length()


class _Guess(NamedTuple):
    """The estimate of the dictionary of a page, from a sample."""

    share_in_sample: float
    items: float
    item_bytes: float
    index_bytes: float


def _compressed_share(block: VariableWidthBlock) -> float:
    """Return the compressed share of the bytes of some strings."""
    first, last = int(block.offsets[0]), int(block.offsets[-1])
    if last - first < 1024:
        return 1.0
    starts = np.linspace(first, max(first, last - _PIECE), 4).astype(np.int64)
    pieces = [block.data[start : min(start + _PIECE, last)] for start in starts.tolist()]
    return compressed_share(pieces)


def _guess(array: pa.Array, sample_size: int = _SAMPLE) -> _Guess:
    """Estimate the distinct values of a page from the values that occur once and twice in a sample
    (Chao; Shen, Chao and Lin).

    The estimate is too low if the page has more rare values, or equal neighbours.
    """
    count = len(array)
    sample = array
    if count > sample_size:
        # Blocks from all parts of the page: distant values would miss runs, and neighbours would
        # miss later changes.
        firsts = np.linspace(0, count - 64, sample_size // 64).astype(np.int64)
        sample = array.take(pa.array((firsts[:, None] + np.arange(64)).reshape(-1)))
    encoded = sample.dictionary_encode()
    indices = encoded.indices.to_numpy()
    num_sampled, result = len(sample), len(encoded.dictionary)
    once, twice = np.bincount(np.bincount(indices), minlength=3)[1:3].tolist()
    unseen = once * once / (2 * twice) if twice else once * (once - 1) / 2
    items = float(result)
    if unseen:
        items += unseen * (1 - (1 - once / (num_sampled * unseen + once)) ** (count - num_sampled))
    runs = count * (np.count_nonzero(np.diff(indices)) + 1) / num_sampled
    index_bytes = min(count * _index_bits(int(items)) / 8, runs * 5)
    return _Guess(
        result / num_sampled, items, items * encoded.dictionary.nbytes / result, index_bytes
    )


def untyped(block: FixedWidthBlock | VariableWidthBlock) -> pa.Array:
    """Return the values of a block as integers or byte strings, without their type."""
    count = block.num_values
    if isinstance(block, VariableWidthBlock):
        text = pa.large_binary() if block.offsets.dtype.itemsize == 8 else pa.binary()
        buffers = [None, pa.py_buffer(block.offsets), pa.py_buffer(block.data)]
        return pa.Array.from_buffers(text, count, buffers)
    width = block.bits_per_value // 8
    if not width:
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(block.data)])
    dtype = {4: pa.int32(), 8: pa.int64()}.get(width, pa.binary(width))
    return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(block.data[: count * width])])


def _light_size(block: FixedWidthBlock | VariableWidthBlock) -> float:
    """Return the bytes of a block in the best light encoding without a dictionary."""
    if isinstance(block, VariableWidthBlock):
        return int(block.offsets[-1]) - int(block.offsets[0]) + block.offsets.nbytes
    size = block.num_values * block.bits_per_value / 8
    if block.bits_per_value in (32, 64):
        packed = inline_bitpacking.encoded_size(block)
        runs = rle.count_runs(block) * (block.bits_per_value // 8 + 1)
        size = min(size, packed, runs)
    return size


def choose_fixed(
    block: FixedWidthBlock, hints: Hints, limits: ChunkLimits, column: LeafColumn
) -> Encoded:
    """Return the chunks of fixed-width values in their smallest encoding."""
    bits, count = block.bits_per_value, block.num_values
    if hints.compression == "none" or bits not in (8, 16, 32, 64):
        encoded = flat.encode_chunks(block, limits)
        return compressed(encoded, hints)
    plain = count * bits // 8
    floats = pa.types.is_floating(column.leaf.field.type) and bits in (32, 64)
    general_too = hints.compression in ("lz4", "zstd")
    if hints.bss == "on" and bits in (32, 64) and (floats or general_too):
        return _split(block, hints, limits)
    runs = rle.count_runs(block)
    run_bytes = runs * (bits // 8 + 1) if runs < count * hints.rle_threshold else plain + 1
    packed = inline_bitpacking.encoded_size(block)
    if run_bytes < min(packed, plain * _WORTH):
        return compressed(rle.encode_chunks(block, limits), hints)
    if floats and general_too and hints.bss == "auto":
        return _split(block, hints, limits)
    if packed < plain * _WORTH:
        return compressed(inline_bitpacking.encode_chunks(block, limits), hints)
    return compressed(flat.encode_chunks(block, limits), hints)


def _split(block: FixedWidthBlock, hints: Hints, limits: ChunkLimits) -> Encoded:
    encoded = byte_stream_split.encode_chunks(block, limits)
    scheme = hints.compression if hints.compression in ("lz4", "zstd") else "lz4"
    return general.compress_chunks(*encoded, scheme, hints.compression_level)


def compressed(encoded: Encoded, hints: Hints) -> Encoded:
    """Return chunks compressed, if the hints name a compressor."""
    if hints.compression not in ("lz4", "zstd"):
        return encoded
    return general.compress_chunks(*encoded, hints.compression, hints.compression_level)


def choose_variable(block: VariableWidthBlock, hints: Hints, limits: ChunkLimits) -> Encoded:
    """Return the chunks of byte strings, compressed if a sample says that it pays."""
    if hints.compression == "none":
        return variable.encode_chunks(block, limits)
    exact = hints.chunk_bytes is not None
    if hints.compression in ("lz4", "zstd"):
        return compressed_strings.encode_chunks(
            block, limits, hints.compression, hints.compression_level, forced=True, exact=exact
        )
    if hints.compression == "fsst":
        return fsst_write.encode_chunks(block, limits)
    return compressed_strings.encode_chunks(block, limits, "zstd", 1, exact=exact)
