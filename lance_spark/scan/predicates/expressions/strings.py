"""Strings: functions of them, and patterns.

Positions and lengths are counted in characters, as code points. Letters outside of ASCII change their case by the tables of
Unicode, each different string once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.comparison import like_regex
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.node import Call, Expression, Kernel, Literal
from lance_spark.scan.predicates.java_regex import to_re2
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import is_bytes, is_text, type_name

#: The kernel of each way to match.
_MATCHERS = {
    "starts": "starts_with",
    "ends": "ends_with",
    "contains": "match_substring",
    "like": "match_substring_regex",
}


def text(value: Expression, settings: SqlSettings) -> Expression:
    """Return a value that is a string, or null.

    Raises
    ------
    NoCommonTypeError
        It is of another type, which Spark casts by settings of its own.
    """
    if not is_text(value.dtype) and not pat.is_null(value.dtype):
        raise NoCommonTypeError(
            f"a string is expected, not {type_name(value.dtype)}; cast it to string"
        )
    return casted(value, pa.string(), settings)


def matched(
    op: str, value: Expression, pattern: Expression, escape: str, settings: SqlSettings
) -> Expression:
    """Return whether strings are ``LIKE``, ``ILIKE`` or ``RLIKE`` a pattern, which is a literal.

    Raises
    ------
    NoCommonTypeError
        The values are not strings, or the pattern is not a literal.
    ValueError
        The pattern is not valid.
    """
    for one in (value, pattern):
        if not is_text(one.dtype) and not pat.is_null(one.dtype):
            raise NoCommonTypeError(
                f"{op.upper()} is about strings, not about {type_name(one.dtype)}; cast it to string"
            )
    if not isinstance(pattern, Literal):
        raise NoCommonTypeError(
            f"the pattern of {op.upper()} has to be a literal here; leave it to DataFrame.where"
        )
    chars = pattern.typed.value
    if chars is None or pat.is_null(value.dtype):
        return Literal(type(pattern.typed)(None, pa.bool_()))
    if op == "ilike":
        value, chars = lower(value), chars.lower()
    how, regex = ("like", to_re2(chars)) if op == "rlike" else like_regex(chars, escape)
    return Call("match", (value,), pa.bool_(), (how, regex))


def lower(value: Expression) -> Expression:
    """Return strings in small letters."""
    return _in_case("lower", value)


def _in_case(name: str, value: Expression) -> Expression:
    if isinstance(value, Call) and value.name in ("lower", "upper"):
        # Spark's optimizer leaves the inner change out, as if it lost nothing: upper('ß') is 'SS'.
        value = value.args[0]
    return Call(name, (value,), pa.string())


def _of_text(name: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        return _in_case(name, text(args[0], settings))

    return build


def _length(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value = args[0] if is_bytes(args[0].dtype) else text(args[0], settings)
    return Call("length", (value,), pa.int32())


def _trim(sides: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        # Other white space stays.
        return Call("trim", (text(args[0], settings),), pa.string(), sides)

    return build


def _number(value: Expression, name: str) -> int | None:
    if not isinstance(value, Literal) or not (
        pat.is_null(value.dtype) or (pat.is_integer(value.dtype) and value.dtype.bit_width <= 32)
    ):
        raise NoCommonTypeError(
            f"positions and lengths of {name} have to be literals of integers here; leave it to "
            "DataFrame.where"
        )
    number: int | None = value.typed.value
    return number


def _part(
    value: Expression, start: int | None, length: int | None, settings: SqlSettings
) -> Expression:
    if start is None or length is None:
        return Call("null", (value,), pa.string())
    if is_bytes(value.dtype):
        raise NoCommonTypeError("parts of binary values are not computed here")
    first = start - 1 if start > 0 else start
    stop: int | None = first + max(length, 0)
    assert stop is not None
    if (first < 0 <= stop) or stop > (1 << 31) - 1:
        # Past the end.
        stop = None
    if length <= 0:
        first, stop = 0, 0
    return Call("slice", (text(value, settings),), pa.string(), (first, stop))


def _substring(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    start = _number(args[1], "substring")
    length = _number(args[2], "substring") if len(args) == 3 else (1 << 31) - 1
    return _part(args[0], start, length, settings)


def _left(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _part(args[0], 1, _number(args[1], "left"), settings)


def _right(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    length = _number(args[1], "right")
    if length is not None and length <= 0:
        return _part(args[0], 1, 0, settings)
    start = None if length is None else max(-length, -(1 << 31) + 1)
    return _part(args[0], start, (1 << 31) - 1, settings)


def concat(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    """Return strings, or binary values, one after the other; null if one of them is."""
    if all(is_bytes(one.dtype) for one in args):
        return Call("concat", tuple(args), pa.binary())
    if any(is_bytes(one.dtype) for one in args):
        raise NoCommonTypeError("binary values and others are not joined here; cast them to string")
    return Call("concat", tuple(text(one, settings) for one in args), pa.string())


def _found(how: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        value, part = args
        if is_bytes(value.dtype) and is_bytes(part.dtype):
            both = (value, part)
        elif is_bytes(value.dtype) or is_bytes(part.dtype):
            raise NoCommonTypeError("strings are not looked for in binary values; cast one of them")
        else:
            both = text(value, settings), text(part, settings)
        if not isinstance(both[1], Literal):
            raise NoCommonTypeError(
                "what is looked for has to be a literal here; leave it to DataFrame.where"
            )
        if both[1].typed.value is None:
            return Call("null", (both[0],), pa.bool_())
        return Call("match", both[:1], pa.bool_(), (how, both[1].typed.value))

    return build


def _replace(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value, *others = (text(one, settings) for one in args)
    given = [one.typed.value if isinstance(one, Literal) else Ellipsis for one in others]
    if Ellipsis in given:
        raise NoCommonTypeError("what replace looks for, and its new text, have to be literals")
    if None in given:
        return Call("null", (value,), pa.string())
    return Call("replace", (value,), pa.string(), (given[0], given[1] if given[1:] else ""))


# Kernels


def _cased(name: str) -> Kernel:
    def run(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
        import pyarrow.compute as pc

        (array,) = arrays
        ascii_only = pc.string_is_ascii(array)
        if pc.all(ascii_only).as_py() in (True, None):
            return pc.call_function(f"ascii_{name}", [array])
        encoded = array.dictionary_encode()
        changed = [getattr(one, name)() for one in encoded.dictionary.to_pylist()]
        return pa.array(changed, dtype).take(encoded.indices)

    return run


def _lengths(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = pc.binary_length if is_bytes(arrays[0].type) else pc.utf8_length
    return kernel(arrays[0]).cast(dtype)


def _trimmed(arrays: Sequence[pa.Array], sides: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = {"both": pc.ascii_trim, "left": pc.ascii_ltrim, "right": pc.ascii_rtrim}[sides]
    return kernel(arrays[0], characters=" ")


def _sliced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    first, stop = detail
    return pc.utf8_slice_codeunits(arrays[0], first, stop)


def _joined(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*arrays, pa.scalar("", dtype), null_handling="emit_null")


def _match(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    how, pattern = detail
    return pc.call_function(_MATCHERS[how], [arrays[0]], pc.MatchSubstringOptions(pattern))


def _replaced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    old, new = detail
    return pc.replace_substring(arrays[0], pattern=old, replacement=new) if old else arrays[0]


def _null(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    return pa.nulls(len(arrays[0]), dtype)


KERNELS: dict[str, Kernel] = {
    "lower": _cased("lower"),
    "upper": _cased("upper"),
    "length": _lengths,
    "trim": _trimmed,
    "slice": _sliced,
    "concat": _joined,
    "match": _match,
    "replace": _replaced,
    "null": _null,
}
#: Names, and how many arguments they take.
FUNCTIONS: dict[str, tuple[range, Callable[[Sequence[Expression], SqlSettings], Expression]]] = {
    **dict.fromkeys(("lower", "lcase"), (range(1, 2), _of_text("lower"))),
    **dict.fromkeys(("upper", "ucase"), (range(1, 2), _of_text("upper"))),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (range(1, 2), _length)),
    **dict.fromkeys(("trim", "btrim"), (range(1, 2), _trim("both"))),
    "ltrim": (range(1, 2), _trim("left")),
    "rtrim": (range(1, 2), _trim("right")),
    **dict.fromkeys(("substring", "substr"), (range(2, 4), _substring)),
    "left": (range(2, 3), _left),
    "right": (range(2, 3), _right),
    "concat": (range(1, 1000), concat),
    "startswith": (range(2, 3), _found("starts")),
    "endswith": (range(2, 3), _found("ends")),
    "contains": (range(2, 3), _found("contains")),
    "replace": (range(2, 4), _replace),
}
