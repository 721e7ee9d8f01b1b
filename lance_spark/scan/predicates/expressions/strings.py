"""Functions of strings, and matches of patterns. Positions and lengths count code points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.comparison import TextMatch, like_regex, rust_to_re2, to_re2
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.node import Builder, Call, Expression, Literal
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import Typed, is_bytes, is_text, type_name


def text(value: Expression, settings: SqlSettings) -> Expression:
    """Return a value as a string.

    Raises NoCommonTypeError: the value is not a string and not null. Spark casts it depending on
    settings.
    """
    if not is_text(value.dtype) and not pat.is_null(value.dtype):
        raise NoCommonTypeError(
            f"expected a string, not {type_name(value.dtype)}; cast it to string"
        )
    return casted(value, pa.string(), settings)


def pattern_match(op: str, pattern: str, escape: str) -> tuple[TextMatch, str]:
    """Translate a pattern; see `like_regex`.

    - `op`: ``like``, ``ilike``, ``rlike``; ``rust`` for a regular expression of pylance, or
      ``rust_i`` without regard to case.

    Raises ValueError: the pattern is not valid.
    """
    if op == "rlike":
        return "like", to_re2(pattern)
    if op.startswith("rust"):
        return "like", rust_to_re2(pattern, ignore_case=op == "rust_i")
    return like_regex(pattern.lower() if op == "ilike" else pattern, escape)


def matched(
    op: str, value: Expression, pattern: Expression, escape: str, settings: SqlSettings
) -> Expression:
    """Return whether strings are ``LIKE``, ``ILIKE`` or ``RLIKE`` a literal pattern.

    Raises NoCommonTypeError: the values are not strings, or the pattern is not a literal. Raises
    ValueError: the pattern is not valid.
    """
    for side in (value, pattern):
        if not is_text(side.dtype) and not pat.is_null(side.dtype):
            raise NoCommonTypeError(
                f"{op.upper()} takes strings, not {type_name(side.dtype)}; cast it to string"
            )
    if not isinstance(pattern, Literal):
        raise NoCommonTypeError(
            f"the pattern of {op.upper()} must be a literal here; leave it to DataFrame.where"
        )
    if pattern.typed.value is None or pat.is_null(value.dtype):
        return Literal(Typed(None, pa.bool_()))
    if op == "ilike":
        value = _with_case("lower", value)
    return Call("match", (value,), pa.bool_(), pattern_match(op, pattern.typed.value, escape))


def _with_case(name: str, value: Expression) -> Expression:
    if isinstance(value, Call) and value.name in ("lower", "upper"):
        # Spark's optimizer drops the inner call, although it can change the result: upper('ß') is
        # 'SS'.
        value = value.args[0]
    return Call(name, (value,), pa.string())


def _change_case(name: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _with_case(name, text(args[0], settings))


def _length(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value = args[0] if is_bytes(args[0].dtype) else text(args[0], settings)
    return Call("length", (value,), pa.int32())


def _trim(sides: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    # Spark trims spaces only, not other white space.
    return Call("trim", (text(args[0], settings),), pa.string(), sides)


def _number(value: Expression, name: str) -> int | None:
    if not isinstance(value, Literal) or not (
        pat.is_null(value.dtype) or (pat.is_integer(value.dtype) and value.dtype.bit_width <= 32)
    ):
        raise NoCommonTypeError(
            f"positions and lengths of {name} must be integer literals here; leave it to "
            "DataFrame.where"
        )
    number: int | None = value.typed.value
    return number


def _slice(
    value: Expression, start: int | None, length: int | None, settings: SqlSettings
) -> Expression:
    if start is None or length is None:
        return Call("null", (value,), pa.string())
    if is_bytes(value.dtype):
        raise NoCommonTypeError("substrings of binary values are not computed here")
    first = start - 1 if start > 0 else start
    stop: int | None = first + max(length, 0)
    assert stop is not None
    if (first < 0 <= stop) or stop > (1 << 31) - 1:
        # Up to the end of the string.
        stop = None
    if length <= 0:
        first, stop = 0, 0
    return Call("slice", (text(value, settings),), pa.string(), (first, stop))


def _substring(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    start = _number(args[1], "substring")
    length = _number(args[2], "substring") if len(args) == 3 else (1 << 31) - 1
    return _slice(args[0], start, length, settings)


def _left(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _slice(args[0], 1, _number(args[1], "left"), settings)


def _right(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    length = _number(args[1], "right")
    if length is not None and length <= 0:
        return _slice(args[0], 1, 0, settings)
    start = None if length is None else max(-length, -(1 << 31) + 1)
    return _slice(args[0], start, (1 << 31) - 1, settings)


def concat(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    """Return the concatenation of strings, or of binary values; null if one of them is null."""
    if all(is_bytes(arg.dtype) for arg in args):
        return Call("concat", tuple(args), pa.binary())
    if any(is_bytes(arg.dtype) for arg in args):
        raise NoCommonTypeError(
            "binary values and other values are not concatenated here; cast them to string"
        )
    return Call("concat", tuple(text(arg, settings) for arg in args), pa.string())


def _search(match_kind: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value, part = args
    if is_bytes(value.dtype) != is_bytes(part.dtype):
        raise NoCommonTypeError("strings are not searched in binary values; cast one of them")
    if not is_bytes(value.dtype):
        value, part = text(value, settings), text(part, settings)
    if not isinstance(part, Literal):
        raise NoCommonTypeError(
            "the text to search must be a literal here; leave it to DataFrame.where"
        )
    if part.typed.value is None:
        return Call("null", (value,), pa.bool_())
    return Call("match", (value,), pa.bool_(), (match_kind, part.typed.value))


def _replace(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value, *replacements = (text(arg, settings) for arg in args)
    if not all(isinstance(argument, Literal) for argument in replacements):
        raise NoCommonTypeError("the search text and the new text of replace must be literals here")
    old, new = [
        *(argument.typed.value for argument in replacements if isinstance(argument, Literal)),
        "",
    ][:2]
    if old is None or new is None:
        return Call("null", (value,), pa.string())
    return Call("replace", (value,), pa.string(), (old, new))


#: The possible numbers of arguments and the builder of each function.
FUNCTIONS: dict[str, tuple[range, Builder]] = {
    **dict.fromkeys(("lower", "lcase"), (range(1, 2), partial(_change_case, "lower"))),
    **dict.fromkeys(("upper", "ucase"), (range(1, 2), partial(_change_case, "upper"))),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (range(1, 2), _length)),
    **dict.fromkeys(("trim", "btrim"), (range(1, 2), partial(_trim, "both"))),
    "ltrim": (range(1, 2), partial(_trim, "left")),
    "rtrim": (range(1, 2), partial(_trim, "right")),
    **dict.fromkeys(("substring", "substr"), (range(2, 4), _substring)),
    "left": (range(2, 3), _left),
    "right": (range(2, 3), _right),
    "concat": (range(1, 1000), concat),
    "startswith": (range(2, 3), partial(_search, "starts")),
    "endswith": (range(2, 3), partial(_search, "ends")),
    "contains": (range(2, 3), partial(_search, "contains")),
    "replace": (range(2, 4), _replace),
}
