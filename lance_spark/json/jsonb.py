"""JSONB, the stored form of JSON columns: bytes that can be searched without parsing.

All numbers are big-endian. A value is one container; zero bytes are null::

    u32 header       top 3 bits: kind of the container, 29 bits below: number of its entries
    u32 entries[n]   bits 28 to 30: kind of the entry, 28 bits below: bytes of its payload
    payloads         one after the other, in the order of the entries

===========  ======================================================================
container    entries
===========  ======================================================================
1 scalar     one; only at the top. Its header has no number
2 object     the keys, sorted by their UTF-8 bytes, and then their values
4 array      the items
===========  ======================================================================

===========  ======================================================================
entry        payload
===========  ======================================================================
0 null       none
1 string     UTF-8
2 number     see below
3 false      none
4 true       none
5 container  another value
6 extension  types that JSON does not have; Lance never writes them
===========  ======================================================================

=========  ========================================================================
number     after a first byte that says which
=========  ========================================================================
00         nothing: the integer 0
10 20 30   nothing: not a number, infinity, -infinity; they read as null
40 50      signed, unsigned integer of 1, 2, 4 or 8 bytes, the fewest that hold it
60         float64
70         decimal: signed integer of 8, 16 or 32 bytes, and a byte of digits after the point;
           read as float64
=========  ========================================================================

Layout: https://github.com/databendlabs/jsonb, which pylance uses, without decimals: all numbers
except integers of 64 bits are float64. Texts are equal to the texts of pylance: no spaces, keys as
stored, floats with as few digits as possible.

Values are processed one by one here, as their layouts differ; `jsonb_search` finds parts of many
values together. The C code of the json module parses texts. Reading or writing an object of five
keys takes about 10 microseconds, twice as long as the json module alone.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from json.encoder import encode_basestring
from struct import Struct, pack, unpack_from
from typing import Any, NoReturn

import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError

#: Maximum depth of arrays and objects; far below the limit of Python's stack.
MAX_DEPTH = 256

#: Number of sets of keys that are cached, and maximum number of keys of a cached set.
_KNOWN_KEYS = 256
_SMALL = 64
#: Characters of a text that an error shows.
_SHOWN = 100

SCALAR, OBJECT, ARRAY = 0x2000_0000, 0x4000_0000, 0x8000_0000
CONTAINER_KIND, COUNT = 0xE000_0000, 0x1FFF_FFFF
STRING, NUMBER, FALSE, TRUE = 0x1000_0000, 0x2000_0000, 0x3000_0000, 0x4000_0000
CONTAINER = 0x5000_0000
ENTRY_KIND, LENGTH = 0x7000_0000, 0x0FFF_FFFF
_LITERALS = {0: "null", FALSE: "false", TRUE: "true"}

ZERO, INT, UINT, FLOAT, _DECIMAL = 0x00, 0x40, 0x50, 0x60, 0x70
NOT_FINITE = (0x10, 0x20, 0x30)
#: Bytes of the integer in a decimal, by the bytes of the decimal; early writers put the precision
#: before the scale.
_DECIMAL_BYTES = {9: 8, 17: 16, 18: 16, 33: 32, 34: 32}

_U32 = Struct(">I")
_F64 = Struct(">d")
_FLOAT_ITEM = Struct(">Bd")


def to_text(array: pa.Array) -> pa.Array:
    """Return the JSON texts of an array of JSONB.

    - `array`: Of type large_binary.

    Returns an array of type string. Raises CorruptFileError, UnsupportedEncodingError: a value is
    damaged, or has a type that JSON lacks. Raises InvalidInputError: the texts do not fit into one
    array.
    """
    texts = [None if value is None else decode(value) for value in array.to_pylist()]
    result = pa.array(texts, pa.string())
    if isinstance(result, pa.ChunkedArray):
        raise InvalidInputError("its JSON texts have more than 2 GiB; read fewer rows at once")
    return result


def to_jsonb(array: pa.Array) -> pa.Array:
    """Return the JSONB of an array of JSON texts.

    - `array`: Of type string.

    Returns an array of type large_binary. Raises InvalidInputError: a text is not valid JSON, or
    has numbers or keys that JSONB cannot hold.
    """
    values = [None if text is None else encode(text) for text in array.to_pylist()]
    return pa.array(values, pa.large_binary())


def decode(data: bytes) -> str:
    """Return the JSON text of one JSONB value.

    Raises CorruptFileError: the bytes are not valid JSONB. Raises UnsupportedEncodingError: the
    value has a type that JSON lacks, or is nested more than `MAX_DEPTH` deep.
    """
    try:
        return _decode(data, 0, len(data), 0)
    except RecursionError:
        raise UnsupportedEncodingError("JSONB is nested too deep") from None


def encode(text: str) -> bytes:
    """Return the JSONB of one JSON text (RFC 8259).

    A lone surrogate, which UTF-8 cannot hold, becomes the text of its escape, as in pylance. Raises
    InvalidInputError: the text is not valid JSON, an object has a key twice, a number exceeds
    float64, or the nesting exceeds `MAX_DEPTH`.
    """
    try:
        return _encode_text(text)
    except RecursionError:
        reason = f"it is nested more than {MAX_DEPTH} deep"
    except ValueError as error:
        reason = str(error)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    raise InvalidInputError(f"{shown!r} cannot be stored as JSON: {reason}")


def value_text(value: Any) -> str:
    """Return the JSON text of a value as the json module reads it; equal to that of its JSONB.

    Raises UnsupportedEncodingError: the value is nested too deep.
    """
    try:
        return _value_text(value)
    except RecursionError:
        raise UnsupportedEncodingError("JSON is nested too deep") from None


def _value_text(value: Any) -> str:
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is float:
        return _float_text(value)
    if type(value) is list:
        return f"[{','.join(map(_value_text, value))}]"
    if type(value) is dict:
        pairs = [f"{encode_basestring(key)}:{_value_text(item)}" for key, item in value.items()]
        return f"{{{','.join(pairs)}}}"
    return "null" if value is None else str(value).lower()


def _decode(data: bytes, start: int, stop: int, depth: int) -> str:
    if stop - start < 4:
        if not stop:
            return "null"
        _corrupt(f"{stop - start} bytes are left for a header of 4")
    if depth > MAX_DEPTH:
        raise UnsupportedEncodingError(f"JSONB is nested more than {MAX_DEPTH} deep")
    (header,) = _U32.unpack_from(data, start)
    container = header & CONTAINER_KIND
    count = header & COUNT
    if container == SCALAR:
        entries = 1
    elif container == ARRAY:
        entries = count
    elif container == OBJECT:
        entries = 2 * count
    else:
        _corrupt(f"{header:#010x} is not a header")
    position = start + 4 + 4 * entries
    if position > stop:
        _corrupt(f"{entries} entries do not fit into {stop - start} bytes")
    texts = []
    for entry in unpack_from(f">{entries}I", data, start + 4):
        end = position + (entry & LENGTH)
        if end > stop:
            _corrupt(f"an entry of {end - position} bytes has {stop - position} left")
        tag = entry & ENTRY_KIND
        if tag == STRING:
            texts.append(_string(data[position:end]))
        elif tag == NUMBER:
            texts.append(_number(data[position:end]))
        elif tag == CONTAINER:
            texts.append(_decode(data, position, end, depth + 1))
        elif tag in _LITERALS:
            texts.append(_LITERALS[tag])
        else:
            raise UnsupportedEncodingError(f"JSONB has an entry of kind {tag >> 28}")
        position = end
    if container == ARRAY:
        return f"[{','.join(texts)}]"
    if container == SCALAR:
        return texts[0]
    if not all(text[0] == '"' for text in texts[:count]):
        _corrupt("a key is not a string")
    pairs = zip(texts, texts[count:], strict=False)
    return f"{{{','.join([f'{key}:{value}' for key, value in pairs])}}}"


def _string(payload: bytes) -> str:
    try:
        return encode_basestring(str(payload, "utf-8"))
    except UnicodeDecodeError as error:
        return _corrupt(f"a string is not UTF-8: {error.reason}")


def _number(data: bytes) -> str:
    size = len(data) - 1
    tag = data[0] if data else -1
    if tag in (INT, UINT) and size in (1, 2, 4, 8):
        return str(int.from_bytes(data[1:], "big", signed=tag == INT))
    if tag == FLOAT and size == 8:
        return _float_text(_F64.unpack_from(data, 1)[0])
    if tag == ZERO:
        return "0"
    if tag in NOT_FINITE:
        return "null"
    if tag == _DECIMAL and size in _DECIMAL_BYTES:
        value = int.from_bytes(data[1 : 1 + _DECIMAL_BYTES[size]], "big", signed=True)
        return _float_text(float(value) / 10.0 ** data[-1])
    return _corrupt(f"{data[:40].hex()} is not a number")


def _float_text(value: float) -> str:
    text = repr(value)
    if "e" not in text:
        return text if math.isfinite(value) else "null"
    digits, _, exponent = text.partition("e")
    if exponent == "-05":
        sign = "-" if value < 0 else ""
        return f"{sign}0.0000{digits.lstrip('-').replace('.', '')}"
    return f"{digits}e{exponent[0]}{exponent[1:].lstrip('0')}"


def _encode_text(text: str) -> bytes:
    value = _PARSER.decode(text)
    if type(value) in (dict, list):
        return _encode_container(value, 1)
    entry, payload = _encode(value, 0)
    return pack(">II", SCALAR, entry) + payload


def _encode(value: Any, depth: int) -> tuple[int, bytes]:
    """Return the entry and the payload of a value."""
    python_type = type(value)
    if python_type is str:
        # Only lone surrogates are replaced.
        payload = value.encode("utf-8", "backslashreplace")
        entry = STRING
    elif python_type is int:
        payload = _encode_int(value)
        entry = NUMBER
    elif python_type is float:
        payload = _encode_float(value)
        entry = NUMBER
    elif value is None:
        return 0, b""
    elif python_type is bool:
        return (TRUE if value else FALSE), b""
    else:
        payload = _encode_container(value, depth + 1)
        entry = CONTAINER
    return entry | _checked(len(payload)), payload


def _encode_container(value: dict[str, Any] | list[Any], depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"it is nested more than {MAX_DEPTH} deep")
    entries = []
    parts = []
    items: Any = value
    header = ARRAY
    if type(value) is dict:
        header = OBJECT
        encode_keys = _known_keys if len(value) <= _SMALL else _keys
        order, lengths, keys = encode_keys(tuple(value))
        entries = list(lengths)
        parts = [keys]
        items = [value[key] for key in order]
    for item in items:
        entry, payload = _encode(item, depth)
        entries.append(entry)
        parts.append(payload)
    if len(items) > COUNT:
        raise InvalidInputError(f"it has {len(items)} entries in one array or object")
    return pack(f">{1 + len(entries)}I", header | len(items), *entries) + b"".join(parts)


def _keys(names: tuple[str, ...]) -> tuple[list[str], list[int], bytes]:
    """Return the keys of an object in their order, their entries, and their payloads."""
    by_key = {name.encode("utf-8", "backslashreplace"): name for name in names}
    keys = sorted(by_key)
    return (
        [by_key[key] for key in keys],
        [STRING | _checked(len(key)) for key in keys],
        b"".join(keys),
    )


#: The objects of a column usually have the same keys.
_known_keys = lru_cache(_KNOWN_KEYS)(_keys)


def _encode_int(value: int) -> bytes:
    if value > 0:
        tag, bits = UINT, value.bit_length()
    elif value:
        tag, bits = INT, (~value).bit_length() + 1
    else:
        return b"\x00"
    if bits > 64:
        try:
            return _encode_float(float(value))
        except OverflowError:
            return _encode_float(math.inf)
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8
    return bytes((tag,)) + value.to_bytes(size, "big", signed=tag == INT)


def _encode_float(value: float) -> bytes:
    if not math.isfinite(value):
        raise InvalidInputError("it has a number that no float64 holds; make it a string")
    return _FLOAT_ITEM.pack(FLOAT, value)


def _checked(length: int) -> int:
    if length > LENGTH:
        raise InvalidInputError(f"it has a part of {length} bytes, more than the {LENGTH} of JSONB")
    return length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the key {twice!r} twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _corrupt(problem: str) -> NoReturn:
    raise CorruptFileError(f"JSONB is damaged: {problem}")


_PARSER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
