"""Chooses the layout and the encodings of a page.

====================================================  ==============================================
values of the page                                    written as
====================================================  ==============================================
all null, or none at all                              constant page
one scalar (2.2 and later)                            constant page; with nulls, the smaller of it
                                                      and the page below
256 bytes or more each, of one width                  full-zip, plain; vectors of bools with null
                                                      items: mini-blocks, plain
strings too long for chunks                           full-zip; each value compressed if that pays
few distinct (dictionary arrays always)               mini-blocks of positions, and a dictionary
integers, floats, times of 8 to 64 bits               mini-blocks: the smallest of run lengths,
                                                      bit-packed and plain
decimals, and others of 128 and 256 bits              mini-blocks: the low bytes that differ in a
                                                      chunk, as frames of zstd; compressed, or plain
strings, binaries                                     mini-blocks; compressed if that pays
anything else                                         mini-blocks, plain
====================================================  ==============================================

The metadata keys of the field (`hints`) override this. A page with more levels than mini-blocks can
count becomes full-zip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.blocks import (
    DataBlock,
    DictionaryBlock,
    FixedSizeListBlock,
    FixedWidthBlock,
    StructBlock,
    VariableWidthBlock,
    fixed_width,
    is_variable,
    to_block,
    with_validity,
)
from lance_spark.encoding.compression import compressed_share
from lance_spark.encoding.levels import BoolArray, Levels
from lance_spark.encoding.meta import EncodedPage, TooManyLevelsError
from lance_spark.encoding.v2_1.codec import WIDE_BITS, ChunkLimits, Encoded
from lance_spark.encoding.v2_1.codecs import (
    bitpacking,
    compressed_strings,
    fixed_size_list,
    flat,
    fsst,
    general,
    rle,
    variable,
    wide_integers,
)
from lance_spark.encoding.v2_1.codecs import flat as byte_stream_split
from lance_spark.encoding.v2_1.hints import NO_HINTS, Hints
from lance_spark.encoding.v2_1.layouts.blob import write_blob
from lance_spark.encoding.v2_1.layouts.constant import is_inline, write_all_null, write_scalar
from lance_spark.encoding.v2_1.layouts.full_zip import write_full_zip
from lance_spark.encoding.v2_1.layouts.mini_block_write import (
    MAX_LEVELS,
    DictionaryItems,
    write_mini_block,
)
from lance_spark.encoding.v2_1.layouts.small_write import encode_small
from lance_spark.encoding.v2_1.leaf_columns import is_blob
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.errors import InvalidInputError, UnsupportedTypeError

# --------------------------------------------------------------------------------------------------
# The choice of the compressive encoding by the values of a page.

#: Dictionaries of fewer values than this do not save enough for a third buffer.
_MIN_DICTIONARY = 100
#: Values of a sample before a dictionary is built, and the share of distinct values above which
#: none is built. Distinct values fill a sample long before they fill the page.
_SAMPLE = 4096
_SAMPLE_SHARE = 0.98
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
#: The same of a compressor after them, and the bytes below which none is tried.
_WORTH_A_COMPRESSOR = 0.6
_MIN_COMPRESSED = 2048
#: Values of the hint with which samples choose a compressor.
_AUTOMATIC = (None, "fsst")


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
    sample = _sample(array, _SAMPLE)
    if _is_mostly_distinct(sample):
        return None
    cheap, share = _light_size(block), 1.0
    guess = _guess(sample, count)
    if guess.share_in_sample > _SAMPLE_SHARE:
        return None
    if guess.items * _SURE > limit:
        return None
    if isinstance(block, VariableWidthBlock) and guess.item_bytes > cheap * _LARGE_DICTIONARY:
        share = _compressed_share(block)
    # To build a dictionary costs more than all the rest, so a dictionary that will not pay is not
    # built.
    if not _saves(guess.index_bytes * _SURE, guess.item_bytes * _SURE, cheap, share, hints):
        return None
    if guess.share_in_sample > _MANY and count > 4 * _LARGE_SAMPLE:
        guess = _guess(_sample(array, _LARGE_SAMPLE), count)
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


def _sample(array: pa.Array, size: int) -> pa.Array:
    """Return about so many values of a page, or all that it has."""
    count = len(array)
    if count <= size:
        return array
    # Blocks from all parts of the page: distant values would miss runs, and neighbours would miss
    # later changes.
    firsts = np.linspace(0, count - 64, size // 64).astype(np.int64)
    return array.take(pa.array((firsts[:, None] + np.arange(64)).reshape(-1)))


def _is_mostly_distinct(sample: pa.Array) -> bool:
    """Return whether integers are so different that no dictionary is built: to sort them takes a
    fifth of the time of a dictionary of them.
    """
    if not pat.is_integer(sample.type):
        return False
    values = np.sort(sample.to_numpy())
    distinct = 1 + int(np.count_nonzero(values[1:] != values[:-1]))
    return distinct / len(values) > _SAMPLE_SHARE


def _guess(sample: pa.Array, count: int) -> _Guess:
    """Estimate the distinct values of a page from the values that occur once and twice in a sample
    (Chao; Shen, Chao and Lin).

    The estimate is too low if the page has more rare values.

    - `count`: Number of values of the page.
    """
    encoded = sample.dictionary_encode()
    indices = encoded.indices.to_numpy()
    num_sampled, result = len(sample), len(encoded.dictionary)
    # Equal neighbours, such as values in place of nulls, count once: they say nothing of others.
    heads = indices[np.append(True, indices[1:] != indices[:-1])]
    runs = count * len(heads) / num_sampled
    once, twice = np.bincount(np.bincount(heads), minlength=3)[1:3].tolist()
    unseen = once * once / (2 * twice) if twice else once * (once - 1) / 2
    items = float(result)
    if unseen:
        others = max(0.0, runs - len(heads))
        items += unseen * (1 - (1 - once / (len(heads) * unseen + once)) ** others)
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
        packed = bitpacking.encoded_size(block)
        runs = rle.count_runs(block) * (block.bits_per_value // 8 + 1)
        size = min(size, packed, runs)
    elif block.bits_per_value in WIDE_BITS:
        size *= wide_integers.shares(block).best
    return size


def choose_fixed(
    block: FixedWidthBlock, hints: Hints, limits: ChunkLimits, column: LeafColumn
) -> Encoded:
    """Return the chunks of fixed-width values in their smallest encoding."""
    bits, count = block.bits_per_value, block.num_values
    if bits in WIDE_BITS and hints.compression in _AUTOMATIC:
        wide = wide_integers.encode_chunks(block, limits)
        if wide is not None:
            return wide
    if hints.compression == "none" or bits not in (8, 16, 32, 64):
        encoded = flat.encode_chunks(block, limits)
        return compressed(encoded, hints, "zstd" if bits == 1 else "lz4")
    plain = count * bits // 8
    floats = pa.types.is_floating(column.leaf.field.type) and bits in (32, 64)
    general_too = hints.compression in ("lz4", "zstd")
    if hints.bss == "on" and bits in (32, 64) and (floats or general_too):
        return _split(block, hints, limits)
    runs = rle.count_runs(block)
    run_bytes = runs * (bits // 8 + 1) if runs < count * hints.rle_threshold else plain + 1
    packed = bitpacking.encoded_size(block)
    if run_bytes < min(packed, plain * _WORTH):
        return compressed(rle.encode_chunks(block, limits), hints, "zstd")
    if floats and general_too and hints.bss == "auto":
        return _split(block, hints, limits)
    if packed < plain * _WORTH:
        return compressed(bitpacking.encode_chunks(block, limits), hints, "zstd")
    return compressed(flat.encode_chunks(block, limits), hints, "lz4")


def _split(block: FixedWidthBlock, hints: Hints, limits: ChunkLimits) -> Encoded:
    encoded = byte_stream_split.encode_byte_streams(block, limits)
    scheme = hints.compression if hints.compression in ("lz4", "zstd") else "lz4"
    return general.compress_chunks(*encoded, scheme, hints.compression_level)


def compressed(encoded: Encoded, hints: Hints, automatic: str | None = None) -> Encoded:
    """Return chunks compressed, if the hints name a compressor, or if a sample says that
    `automatic` pays.
    """
    if hints.compression in ("lz4", "zstd"):
        return general.compress_chunks(*encoded, hints.compression, hints.compression_level)
    if automatic is None or hints.compression not in _AUTOMATIC:
        return encoded
    first = encoded[1].buffers[0]
    if int(first.sizes.sum()) < _MIN_COMPRESSED:
        return encoded
    last = len(first.sizes) - 1
    picked = sorted({0, last // 3, 2 * last // 3, last})
    ends = (first.starts + np.minimum(first.sizes, _PIECE))[picked].tolist()
    starts = first.starts[picked].tolist()
    pieces = [first.data[start:end] for start, end in zip(starts, ends, strict=True)]
    if compressed_share(pieces, automatic, _WORTH_A_COMPRESSOR) > _WORTH_A_COMPRESSOR:
        return encoded
    return general.compress_chunks(*encoded, automatic, 1)


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
        return fsst.encode_chunks(block, limits)
    return compressed_strings.encode_chunks(block, limits, "zstd", 1, exact=exact)


# --------------------------------------------------------------------------------------------------
# Chooses the layout and the encodings of a page.

#: Values at least this wide are stored one by one, so that a value can be read without its
#: neighbours.
FULL_ZIP_BYTES = 256
#: Strings up to this mean length share chunks: a compressor saves little in a single string.
_LONG_STRING = 1024
_LONGEST_IN_CHUNK = 8 * 1024
#: Maximum bytes of a value, so that a chunk holds two values and their bitmaps.
_WIDEST_IN_CHUNK = 8 * 1024
_MAX_VALUES = 1 << 15
#: Value bytes of a chunk; its header and levels must fit into 32 KiB with them in 2.1.
_CHUNK_BYTES = 24 * 1024
_LARGE_CHUNK_BYTES = 64 * 1024
#: Constants take two bytes for each level. Above so many bytes, another page may be smaller.
_SMALL_CONSTANT = 4096
#: The first version in which constant pages have no levels.
_SEPARATE_PLANES = (2, 3)
#: The error for a single row, as longer pages are cut.
_TOO_MANY_LEVELS = (
    "a row has more empty lists, nulls and items than a page of this type can store; store fewer "
    "in each row, or the values of a dictionary column without a dictionary"
)
#: Minimum that a hint can request: a few of the widest values that mini-blocks have without a hint.
_MIN_CHUNK_BYTES = 4 * FULL_ZIP_BYTES


def encode_leaf(column: LeafColumn, version: tuple[int, int]) -> EncodedPage:
    """Return the page of a leaf column.

    Raises InvalidInputError: the value of a metadata key of the field is not valid. Raises
    UnsupportedTypeError: the version has no encoding for the type.
    """
    if is_empty_struct(column):
        return write_all_null(column, version)
    if is_blob(column.leaf.field) and version < (2, 2):
        return write_blob(column, lambda plain: _encode_values(plain, version))
    return _encode_values(column, version)


def _encode_values(column: LeafColumn, version: tuple[int, int]) -> EncodedPage:
    dtype, path = column.values.type, column.leaf.path
    live = column.live
    if not column.has_values:
        return write_all_null(column, version)
    if live is not None and live.all():
        live = None
    hints = Hints.of(column.leaf.field, path)
    values = _without_garbage(column.values, live)
    # Hints can request encodings that small pages do not have.
    plain = hints is NO_HINTS
    if plain and live is None:
        page = encode_small(values, column.levels, column.num_rows, version, constant=True)
        if page is not None:
            return page
    constant = None
    if version >= (2, 2) and not pat.is_nested(dtype) and not pat.is_dictionary(dtype):
        scalar = uniform_scalar(values, live)
        if scalar is not None and (version < _SEPARATE_PLANES or _is_plain_scalar(column, scalar)):
            constant = write_scalar(column, scalar)
            if _stored_bytes(constant) <= _SMALL_CONSTANT:
                return constant
    if plain and live is not None:
        page = encode_small(values, column.levels, column.num_rows, version, constant=False)
        if page is not None:
            return page
    try:
        page = _encode_block(column, to_block(values, live), hints, version)
        if constant is not None and _stored_bytes(constant) <= _stored_bytes(page):
            return constant
        return page
    except (UnsupportedTypeError, InvalidInputError) as error:
        if constant is not None:
            return constant
        if f"column {path!r}" in str(error):
            raise
        raise type(error)(f"column {path!r}: {error}") from None


def _stored_bytes(page: EncodedPage) -> int:
    return sum(len(buffer) for buffer in page.buffers) + len(page.encoding)


def _is_plain_scalar(column: LeafColumn, scalar: pa.Array) -> bool:
    """Return whether a page of one value has no levels, and the value is in its description.

    pylance reads no value without bytes there.
    """
    has_levels = column.levels.repetition is not None or column.levels.definition is not None
    return not has_levels and is_inline(scalar) and fixed_width(scalar.type) > 0


def is_empty_struct(column: LeafColumn) -> bool:
    """Return whether a column has structs without fields; refuse those that cannot be stored.

    Raises UnsupportedTypeError: some are null, or in lists.
    """
    dtype = column.values.type
    if not pat.is_struct(dtype) or dtype.num_fields:
        return False
    if column.levels.definition is not None or column.levels.repetition is not None:
        raise UnsupportedTypeError(
            f"column {column.leaf.path!r}: a struct without fields can be stored only at the top "
            "or below structs, and without nulls"
        )
    return True


def _without_garbage(values: pa.Array, live: BoolArray | None) -> pa.Array:
    """Return the values with empty strings, or the previous value, in the slots of nulls."""
    if live is None or pat.is_nested(values.type) or pat.is_dictionary(values.type):
        return values
    if pat.is_null(values.type):
        return values
    masked = with_validity(_plain(values), live)
    if is_variable(values.type):
        return masked.fill_null(_zero(values.type))
    dtype = values.type
    # Arrow's kernel does not know all types, and rescales decimals of negative scale.
    words = word_type(dtype)
    filled = pc.fill_null_forward(retyped(masked, words))
    if filled.null_count:
        filled = filled.fill_null(_zero(words))
    return retyped(filled, dtype)


def _plain(values: pa.Array) -> pa.Array:
    if values.null_count == 0:
        return values
    return pa.Array.from_buffers(
        values.type, len(values), [None, *values.buffers()[1:]], offset=values.offset
    )


def _zero(dtype: pa.DataType) -> pa.Scalar:
    if is_variable(dtype):
        return pa.scalar(b"", pa.binary()).cast(dtype)
    width = max(dtype.bit_width // 8, 1)
    zero = pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(bytes(width))])
    return zero[0]


def _limits(
    column: LeafColumn,
    hints: Hints,
    version: tuple[int, int],
    *,
    large: bool = False,
    least: int = _MIN_CHUNK_BYTES,
    least_values: int = 2,
) -> ChunkLimits:
    room = _LARGE_CHUNK_BYTES if large and version >= (2, 2) else _CHUNK_BYTES
    if hints.chunk_bytes is not None:
        max_bytes = _CHUNK_BYTES if version < (2, 2) else 1 << 20
        room = min(max(hints.chunk_bytes, least, _MIN_CHUNK_BYTES), max_bytes)
    return ChunkLimits(max_bytes=room, max_values=_values_per_chunk(column.levels, least_values))


def _values_per_chunk(levels: Levels, least: int) -> int:
    """Return the maximum number of values of a chunk, so that it can count its levels; `least` if
    it cannot.
    """
    visible = levels.visible()
    if visible is None or levels.num_entries <= MAX_LEVELS:
        return _MAX_VALUES
    shown = int(np.count_nonzero(visible))
    count = _MAX_VALUES
    while count > least:
        ends = levels.entries_of(np.arange(count - 1, shown, count)) + 1
        bounds = np.concatenate([[0], ends, [levels.num_entries]])
        # A chunk may begin anywhere, and so cover parts of two of these ranges.
        if int(np.diff(bounds).max()) <= MAX_LEVELS // 2:
            break
        count //= 2
    return count


def _encode_block(
    column: LeafColumn, block: DataBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    if isinstance(block, DictionaryBlock):
        return _dictionary(column, block, hints, version)
    if isinstance(block, FixedWidthBlock):
        return _fixed(column, block, hints, version)
    if isinstance(block, VariableWidthBlock):
        return _variable(column, block, hints, version)
    if isinstance(block, FixedSizeListBlock):
        return _vectors(column, block, hints, version)
    return _packed(column, block, hints, version)


def _mini_block_or(
    column: LeafColumn,
    encoded: Encoded,
    version: tuple[int, int],
    otherwise: Callable[[], EncodedPage],
    dictionary: DictionaryItems | None = None,
) -> EncodedPage:
    page = write_mini_block(column, *encoded, version, dictionary)
    return otherwise() if page is None else page


def _fixed(
    column: LeafColumn, block: FixedWidthBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    bits = block.bits_per_value

    def full_zip() -> EncodedPage:
        byte_block = block
        if bits == 1:
            flags = np.unpackbits(block.data, count=block.num_values, bitorder="little")
            byte_block = FixedWidthBlock(flags, 8, block.num_values)
        return write_full_zip(column, *flat.encode_values(byte_block))

    wide = bits >= 8 * (_WIDEST_IN_CHUNK if hints.structural == "miniblock" else FULL_ZIP_BYTES)
    if bits > 1 and (wide or hints.structural == "fullzip"):
        return full_zip()
    # Each chunk of bits but the last has whole bytes.
    limits = _limits(column, hints, version, least=bits // 4, least_values=8 if bits == 1 else 2)
    dictionary = dictionary_of(block, hints)
    if dictionary is not None:
        return _dictionary(column, dictionary, hints, version)
    return _mini_block_or(column, choose_fixed(block, hints, limits, column), version, full_zip)


def _variable(
    column: LeafColumn, block: VariableWidthBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    def full_zip() -> EncodedPage:
        scheme = hints.compression
        if scheme == "fsst":
            return write_full_zip(column, *fsst.encode_values(block))
        encoding, values = variable.encode_values(block)
        if scheme is None and general.pays_by_value(values):
            scheme = "zstd"
        if scheme in ("lz4", "zstd"):
            # pylance cannot read pages with null values and values that LZ4 compressed one by one.
            # It uses Zstandard itself.
            encoding, values = general.compress_values(
                encoding, values, "zstd", hints.compression_level
            )
        return write_full_zip(column, encoding, values)

    lengths = np.diff(block.offsets)
    mean, longest = float(lengths.mean()), int(lengths.max())
    long = mean >= _LONG_STRING or longest >= _LONGEST_IN_CHUNK
    if hints.structural == "fullzip":
        return full_zip()
    dictionary = dictionary_of(block, hints)
    if dictionary is not None:
        return _dictionary(column, dictionary, hints, version)
    if long and (hints.structural != "miniblock" or longest >= _LONGEST_IN_CHUNK):
        return full_zip()
    two = 2 * longest + 4 * block.offsets.dtype.itemsize
    limits = _limits(column, hints, version, large=True, least=two)
    return _mini_block_or(column, choose_variable(block, hints, limits), version, full_zip)


def _vectors(
    column: LeafColumn, block: FixedSizeListBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    bits = _bits_of(block, column.leaf.path)
    has_null_bools = fixed_size_list.has_null_bools(block)
    can_be_zipped = bits % 8 == 0 and not has_null_bools

    def full_zip() -> EncodedPage:
        if not can_be_zipped:
            raise TooManyLevelsError(_TOO_MANY_LEVELS)
        return write_full_zip(column, *fixed_size_list.encode_values(block))

    wide = bits >= 8 * (_WIDEST_IN_CHUNK if hints.structural == "miniblock" else FULL_ZIP_BYTES)
    if not bits or (can_be_zipped and (wide or hints.structural == "fullzip")):
        return full_zip()
    two = fixed_size_list.stored_bits(block) // 4 + 1
    limits = _limits(column, hints, version, least=max(bits // 2, two))
    if has_null_bools and two > limits.max_bytes:
        raise UnsupportedTypeError(
            f"column {column.leaf.path!r}: other Lance clients cannot read fixed-size lists of "
            f"{bits} bools of which some are null; store them as uint8, or as lists"
        )
    encoded = fixed_size_list.encode_chunks(block, limits)
    return _mini_block_or(column, compressed(encoded, hints), version, full_zip)


def _bits_of(block: DataBlock, path: str) -> int:
    """Return the bits of a value; refuse vectors whose items have no fixed width."""
    if isinstance(block, FixedSizeListBlock):
        return block.dimension * _bits_of(block.items, path)
    if not isinstance(block, FixedWidthBlock):
        raise UnsupportedTypeError(
            f"column {path!r}: fixed-size lists can be stored of fixed-width items only"
        )
    return block.bits_per_value


def _packed(
    column: LeafColumn, block: StructBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    from lance_spark.encoding.v2_1.codecs import packed_structs

    by_field = (VariableWidthBlock, FixedSizeListBlock)
    if any(isinstance(child, by_field) for child in block.children):
        if version < (2, 2):
            raise UnsupportedTypeError(
                f"column {column.leaf.path!r}: packed structs with strings or fixed-size lists "
                "need file version 2.2"
            )
        return write_full_zip(column, *packed_structs.encode_variable_values(block))

    def full_zip() -> EncodedPage:
        return write_full_zip(column, *packed_structs.encode_values(block))

    if hints.structural == "fullzip":
        return full_zip()
    width = sum(c.bits_per_value for c in block.children if isinstance(c, FixedWidthBlock))
    if width >= 8 * _WIDEST_IN_CHUNK:
        return full_zip()
    encoded = packed_structs.encode_chunks(
        block, _limits(column, hints, version, least=width // 4 + 16)
    )
    return _mini_block_or(column, compressed(encoded, hints), version, full_zip)


def _dictionary(
    column: LeafColumn, block: DictionaryBlock, hints: Hints, version: tuple[int, int]
) -> EncodedPage:
    items = _items(block.items, hints, version, column.leaf.path)
    indices = _filled(block.indices, column.live)
    # Of the hints, only a compressor applies to positions too.
    squeeze = hints.compression if hints.compression in ("lz4", "zstd") else None
    index_hints = Hints(compression=squeeze, compression_level=hints.compression_level, bss="off")
    encoded = choose_fixed(indices, index_hints, _limits(column, hints, version), column)

    def look_up() -> EncodedPage:
        if pat.is_dictionary(column.values.type):
            # Other pages have no dictionary, and readers of such columns need one.
            raise TooManyLevelsError(_TOO_MANY_LEVELS)
        plain = _look_up(block)
        if isinstance(plain, VariableWidthBlock):
            return write_full_zip(column, *variable.encode_values(plain))
        return write_full_zip(column, *flat.encode_values(plain))

    return _mini_block_or(column, encoded, version, look_up, items)


def _filled(indices: FixedWidthBlock, live: BoolArray | None) -> FixedWidthBlock:
    """Replace the positions of null slots by the previous position, so that runs continue."""
    if live is None:
        return indices
    last_live = np.maximum.accumulate(np.where(live, np.arange(len(live)), int(live.argmax())))
    positions = indices.data.view(f"<u{indices.bits_per_value // 8}")[last_live]
    return FixedWidthBlock(positions.view(np.uint8), indices.bits_per_value, len(positions))


def _look_up(block: DictionaryBlock) -> FixedWidthBlock | VariableWidthBlock:
    positions = block.indices.data.view(f"<u{block.indices.bits_per_value // 8}")
    assert isinstance(block.items, FixedWidthBlock | VariableWidthBlock)
    result = to_block(untyped(block.items).take(pa.array(positions)))
    assert isinstance(result, FixedWidthBlock | VariableWidthBlock)
    return result


def _items(items: DataBlock, hints: Hints, version: tuple[int, int], path: str) -> DictionaryItems:
    if isinstance(items, VariableWidthBlock):
        encoding, data = variable.encode_block(items)
    elif isinstance(items, FixedWidthBlock):
        encoding, data = flat.encode_block(items)
    else:
        raise UnsupportedTypeError(
            f"column {path!r}: dictionaries can be stored of strings and of fixed-width values only"
        )
    scheme = hints.dict_compression or "lz4"
    if scheme != "none":
        wrapped = general.compress_block(encoding, data, scheme, hints.dict_compression_level)
        if len(wrapped[1]) < len(data):
            encoding, data = wrapped
    return DictionaryItems(encoding, data, items.num_values)
