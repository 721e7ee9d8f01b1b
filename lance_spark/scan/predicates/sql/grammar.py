"""The parser of Spark's boolean expressions, after the rules of its SqlBaseParser.g4.

Operators by precedence, the lowest first::

    OR AND NOT, ! IS [NOT] NULL | TRUE | FALSE | UNKNOWN | DISTINCT FROM, [NOT] BETWEEN, IN, LIKE,
    ILIKE, RLIKE   (one of them) = == <=> <> != < <= > >= !> !<    (left to right)
    |
    ^
    &
    << >> >>>
    + - ||
    * / % DIV
    unary - + ~
    ::type, .child, ['child']

As in Spark's default mode nearly every keyword is also a name: AND is a column in the position of
an operand. There the words NULL, TRUE and FALSE are literals, and words such as CAST are functions
if a bracket follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import InvalidOperation

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.sql.literals import typed_number
from lance_spark.scan.predicates.sql.syntax import (
    BETWEEN_OPERANDS,
    COMPARISONS,
    EXTRACT_PARTS,
    FUNCTIONS_OF_GRAMMAR,
    FUNCTIONS_WITH_WORDS,
    LITERAL_TYPES,
    PRECEDENCE,
    QUERY_WORDS,
    RESERVED,
    SIGNS_AFTER_NAME,
    SIZED_LITERALS,
    TRIM_FUNCTIONS,
    Apply,
    Name,
    SqlNode,
    Value,
)
from lance_spark.scan.predicates.sql.tokens import Token, error, shown
from lance_spark.scan.predicates.sql.types import TypeParser
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import Typed

#: Most levels of a tree. Each level takes some recursive calls in parsing, binding and evaluation.
MAX_DEPTH = 100
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(?:\.[0-9]*)?\s*")


def parse(text: str, settings: SqlSettings, *, pylance_dialect: bool = False) -> SqlNode:
    """Return the syntax tree of a text; if `pylance_dialect`, with literals of pylance.

    Raises InvalidInputError: the text is not one expression, or has more than `MAX_DEPTH` levels.
    """
    try:
        return _Parser(text, settings, pylance_dialect).parse()
    except RecursionError:
        raise InvalidInputError(f"filter {shown(text)}: the nesting is too deep") from None


class _Parser(TypeParser):
    def __init__(self, text: str, settings: SqlSettings, pylance_dialect: bool = False) -> None:
        super().__init__(text, settings, pylance_dialect)
        self._level = 0

    def parse(self) -> SqlNode:
        if len(self._tokens) == 1:
            raise self._error("the text is empty; expected a condition")
        node = self._logic()
        if self._current.category != "end":
            raise self._error("expected AND, OR, an operator or the end", word_hint=True)
        return node

    def _apply(self, offset: int, op: str, args: Sequence[SqlNode], detail: object = None) -> Apply:
        depth = 1 + max((arg.depth for arg in args), default=0)
        if depth > MAX_DEPTH:
            raise self._too_deep(offset)
        return Apply(offset, depth, op, tuple(args), detail)

    # OR, AND, NOT

    def _logic(self, inside_and: bool = False) -> SqlNode:
        """Parse a condition; if `inside_and`, without OR and AND."""
        self._enter()
        offset = self._current.offset
        if inside_and:
            node = self._negation()
        else:
            alternatives = [self._chain(offset, "and", self._conjuncts())]
            while self._accept_word("OR"):
                start = self._current.offset
                alternatives.append(self._chain(start, "and", self._conjuncts()))
            node = self._chain(offset, "or", alternatives)
        self._level -= 1
        return node

    def _enter(self) -> None:
        self._level += 1
        if self._level > MAX_DEPTH:
            raise self._too_deep(self._current.offset)

    def _too_deep(self, offset: int) -> InvalidInputError:
        return error(self._text, offset, f"the predicate has more than {MAX_DEPTH} levels")

    def _conjuncts(self) -> list[SqlNode]:
        parts = [self._logic(inside_and=True)]
        while self._accept_word("AND"):
            parts.append(self._logic(inside_and=True))
        return parts

    def _chain(self, offset: int, op: str, parts: list[SqlNode]) -> SqlNode:
        return parts[0] if len(parts) == 1 else self._apply(offset, op, parts)

    def _negation(self) -> SqlNode:
        offsets: list[int] = []
        while self._current.is_sign("!") or self._is_not():
            offsets.append(self._next().offset)
        node = self._predicate()
        for offset in reversed(offsets):
            node = self._apply(offset, "not", [node])
        return node

    def _is_not(self) -> bool:
        """Return whether the current word is the operator NOT, and not a column of that name."""
        return self._current.upper == "NOT" and _begins_operand(self._peek())

    # Predicates

    def _predicate(self) -> SqlNode:
        """Parse a value, and a predicate such as IS NULL or IN (...) after it."""
        offset = self._current.offset
        left = self._value(1)
        current, index_of_not = self._current, self._index
        inverted = self._accept_word("NOT")
        if not inverted and current.is_sign("!") and self._peek().upper in BETWEEN_OPERANDS:
            if not self._settings.bang_equals_not:
                raise self._error("! must be before a condition; write NOT here")
            inverted = self._accept("!")
        node = self._is(offset, left) if not inverted and self._accept_word("IS") else None
        if node is None:
            node = self._suffix(offset, left, inverted)
        if node is None:
            if inverted:
                self._index = index_of_not
            return left
        return self._apply(offset, "not", [node]) if inverted else node

    def _suffix(self, offset: int, left: SqlNode, inverted: bool) -> SqlNode | None:
        if self._accept_word("BETWEEN"):
            low = self._value(1)
            self._expect_word("AND")
            return self._apply(offset, "between", [left, low, self._value(1)])
        if self._accept_word("IN"):
            self._expect("(")
            self._refuse_query()
            return self._apply(offset, "in", [left, *self._arguments()])
        if self._accept_word("RLIKE", "REGEXP"):
            return self._apply(offset, "rlike", [left, self._value(1)])
        for word in ("LIKE", "ILIKE"):
            if self._accept_word(word):
                return self._like(offset, word.lower(), left, inverted)
        return None

    def _like(self, offset: int, op: str, left: SqlNode, inverted: bool) -> SqlNode:
        quantifier = self._current.upper
        if quantifier in ("ANY", "SOME", "ALL") and self._peek().is_sign("("):
            self._index += 2
            parts = [
                self._apply(offset, op, [left, pattern], "\\") for pattern in self._arguments()
            ]
            # NOT LIKE ANY is true if one pattern does not match, which is NOT (LIKE ALL).
            is_all = (quantifier == "ALL") is not inverted
            return self._chain(offset, "and" if is_all else "or", [*parts])
        pattern, escape = self._value(1), "\\"
        if self._accept_word("ESCAPE"):
            token = self._next()
            if token.category != "string" or len(token.value) != 1:
                raise self._error("expected a string of one character after ESCAPE", token.offset)
            escape = token.value
        return self._apply(offset, op, [left, pattern], escape)

    def _is(self, offset: int, left: SqlNode) -> SqlNode:
        inverted = self._accept_word("NOT")
        word = self._next()
        if word.upper == "DISTINCT":
            self._expect_word("FROM")
            equal = self._apply(offset, "<=>", [left, self._value(1)])
            return equal if inverted else self._apply(offset, "not", [equal])
        if word.upper not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            raise self._error("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", word.offset)
        node = self._apply(offset, "is", [left], word.upper)
        return self._apply(offset, "not", [node]) if inverted else node

    def _arguments(self, end: str = ")") -> list[SqlNode]:
        """Parse expressions separated by commas, and the closing bracket."""
        arguments: list[SqlNode] = []
        while not arguments or self._accept(","):
            # Lists of thousands of literals are common.
            is_literal = self._current.category in ("number", "string")
            is_short = is_literal and self._peek().is_sign(",", end) and self._level < MAX_DEPTH - 1
            arguments.append(self._operand() if is_short else self._logic())
        self._expect(end)
        return arguments

    # Values

    def _value(self, min_precedence: int) -> SqlNode:
        offset = self._current.offset
        signs: list[Token] = []
        while self._current.is_sign("-", "+", "~"):
            if self._current.value == "-" and self._peek().category == "number":
                break
            signs.append(self._next())
        node = self._primary()
        for sign in reversed(signs):
            op = {"-": "negative", "+": "positive", "~": "~"}[sign.value]
            node = self._apply(sign.offset, op, [node])
        while True:
            current = self._current
            op = current.value if current.category == "sign" else current.upper
            precedence = PRECEDENCE.get(op, 0) if current.category in ("sign", "word") else 0
            if precedence < min_precedence:
                return node
            self._index += 1
            right = self._value(precedence + 1)
            name = COMPARISONS.get(op, op.lower())
            node = self._apply(offset, name, [node, right])

    def _primary(self) -> SqlNode:
        node = self._operand()
        while True:
            if self._current.is_sign(".") and isinstance(node, Name):
                self._index += 1
                node = Name(node.offset, 1, (*node.parts, self._name()))
            elif self._current.is_sign("[") and isinstance(node, Name):
                self._index += 1
                if self._current.category != "string" or not self._peek().is_sign("]"):
                    raise self._error("expected the name of a struct's child in quotes, and ]")
                node = Name(node.offset, 1, (*node.parts, self._next().value))
                self._index += 1
            elif self._accept("::"):
                node = self._apply(node.offset, "cast", [node], self._type())
            elif self._current.upper == "COLLATE" and self._peek().category in ("word", "name"):
                raise self._error("collations are not supported in a predicate")
            else:
                return node

    def _operand(self) -> SqlNode:
        token = self._next()
        if token.category == "number":
            return self._number(token, "")
        if token.is_sign("-"):
            return self._number(self._next(), "-", token.offset)
        if token.category == "string":
            text = token.value
            while self._current.category == "string":
                text += self._next().value
            return Value(token.offset, 1, Typed(text, pa.string(), True))
        if token.is_sign("("):
            self._refuse_query()
            node = self._logic()
            if self._current.is_sign(","):
                raise self._error("rows of several values are not supported in a predicate")
            self._expect(")")
            return node
        if token.is_sign("["):
            # As Lance's other filters write arrays; Spark has no such literals.
            return self._array(token)
        if token.category == "name":
            return Name(token.offset, 1, (token.value,))
        if token.category == "word":
            return self._word(token)
        self._index -= token.category != "end"
        if token.is_sign("?", ":"):
            raise self._error("parameters have no value here; write the literal")
        raise self._error("expected a column, a literal or a bracket", token.offset, word_hint=True)

    def _array(self, token: Token) -> SqlNode:
        """Parse the items of an array in square brackets."""
        items = [] if self._accept("]") else self._arguments("]")
        return self._apply(token.offset, "call", items, "array")

    def _refuse_query(self) -> None:
        """Refuse a subquery. Spark reads also ``(values IN (1))`` as one, not as a column."""
        word, after = self._current, self._peek()
        if (
            word.category != "word"
            or word.upper not in QUERY_WORDS
            or after.is_sign(*SIGNS_AFTER_NAME)
        ):
            return
        if after.category != "end":
            raise self._error(
                f"{word.value} begins a subquery, which is not supported in a predicate; if "
                f"{word.value} is a column, write `{word.value}` with backticks"
            )

    def _word(self, token: Token) -> SqlNode:
        word, current = token.upper, self._current
        if self._pylance_dialect and word == "ARRAY" and self._accept("["):
            return self._array(token)
        if self._pylance_dialect and current.is_sign("(") and word in SIZED_LITERALS:
            literal = self._sized_literal(token)
            if literal is not None:
                return literal
        if current.is_sign("("):
            return self._call(token)
        if word in ("NULL", "TRUE", "FALSE"):
            if word == "NULL":
                return Value(token.offset, 1, Typed(None, pa.null(), True))
            return Value(token.offset, 1, Typed(word == "TRUE", pa.bool_(), True))
        if word == "INTERVAL" and (
            current.category in ("string", "number") or current.is_sign("-", "+")
        ):
            return self._interval(token)
        if current.category == "string":
            if word not in LITERAL_TYPES:
                raise self._error(
                    f"the type of a literal must be one of {', '.join(LITERAL_TYPES)}, not "
                    f"{token.value}",
                    token.offset,
                    word_hint=True,
                )
            self._index += 1
            text = Value(current.offset, 1, Typed(current.value, pa.string(), True))
            return self._apply(token.offset, "literal", [text], LITERAL_TYPES[word])
        if (
            word == "CASE"
            and (current.upper == "WHEN" or _begins_operand(current))
            and (current.upper not in BETWEEN_OPERANDS)
        ):
            return self._case(token)
        if word == "CURRENT_PATH":
            raise self._error(
                "CURRENT_PATH is a function since Spark 4.3", token.offset, word_hint=True
            )
        self._check_reserved(token)
        return Name(token.offset, 1, (token.value,))

    def _sized_literal(self, token: Token) -> SqlNode | None:
        """Parse a literal such as ``DECIMAL(5, 3) '1.5'``; return None if it is a function."""
        end = self._index
        while self._tokens[end].category in ("number", "sign") and not (
            self._tokens[end].is_sign(")")
        ):
            end += 1
        # The last token is the end of the text.
        if not self._tokens[end].is_sign(")") or self._tokens[end + 1].category != "string":
            return None
        self._index -= 1
        target, text = self._type(), self._next()
        value = Value(text.offset, 1, Typed(text.value, pa.string(), True))
        return self._apply(token.offset, "cast", [value], target)

    def _interval(self, token: Token) -> SqlNode:
        """Parse the rest of INTERVAL.

        It is numbers with units, a string of these, or a string and a range of units.
        """
        parts: list[str] = []
        while not parts or self._current.category in ("number", "string"):
            sign = self._next().value if self._current.is_sign("-", "+") else ""
            number = self._next()
            if number.category not in ("string", "number") or number.suffix:
                raise self._error(
                    "expected a number and a unit, as in INTERVAL 3 DAYS", number.offset
                )
            if number.category == "string" and self._peek().upper == "TO" and not parts:
                return self._interval_between(token, sign, number.value)
            if number.category == "string" and not _NUMBER.fullmatch(number.value):
                if sign or parts:
                    raise self._error(
                        "write the sign of an interval inside its string", number.offset
                    )
                return self._apply(token.offset, "interval", (), (number.value, False, None))
            unit = self._next()
            value = number.value.strip()
            if unit.category != "word" or (sign and value[0] in "+-"):
                raise self._error("expected a unit, as in INTERVAL 3 DAYS", unit.offset)
            # A sign after the unit is an operator, and ends the interval.
            parts.append(f"{sign}{value} {unit.value}")
        return self._apply(token.offset, "interval", (), (" ".join(parts), False, None))

    def _interval_between(self, token: Token, sign: str, text: str) -> SqlNode:
        """Parse the units after a string, as in ``INTERVAL '1 02:03:04' DAY TO SECOND``."""
        largest = self._next().upper
        self._expect_word("TO")
        units = (largest.lower(), self._next().upper.lower())
        return self._apply(token.offset, "interval", (), (text, sign == "-", units))

    def _case(self, token: Token) -> SqlNode:
        """Parse the rest of CASE, up to END."""
        self._enter()
        parts = [] if self._current.upper == "WHEN" else [self._logic()]
        has_value = bool(parts)
        while self._accept_word("WHEN"):
            parts.append(self._logic())
            self._expect_word("THEN")
            parts.append(self._logic())
        if len(parts) < 2:
            raise self._error(
                f"expected WHEN; if {token.value} is a column, write `{token.value}` with backticks"
            )
        has_otherwise = self._accept_word("ELSE")
        if has_otherwise:
            parts.append(self._logic())
        self._expect_word("END")
        self._level -= 1
        return self._apply(token.offset, "case", parts, (has_value, has_otherwise))

    def _check_reserved(self, token: Token) -> None:
        enforced = self._settings.ansi and self._settings.reserved_keywords
        if enforced and token.upper in RESERVED:
            raise error(
                self._text,
                token.offset,
                f"{token.value} is a reserved word with spark.sql.ansi.enforceReservedKeywords; "
                f"write `{token.value}` with backticks",
            )

    def _name(self) -> str:
        token = self._next()
        if token.category not in ("word", "name"):
            raise self._error("expected the name of a struct's child", token.offset)
        if token.category == "word":
            self._check_reserved(token)
        return token.value

    def _call(self, token: Token) -> SqlNode:
        word = token.upper
        if word in ("CAST", "TRY_CAST"):
            self._index += 1
            inner = self._logic()
            self._expect_word("AS")
            target = self._type()
            self._expect(")")
            return self._apply(token.offset, word.lower(), [inner], target)
        if word in FUNCTIONS_WITH_WORDS:
            return self._call_with_words(token)
        if word in FUNCTIONS_OF_GRAMMAR:
            raise self._error(
                f"{token.value}(...) is not supported in a predicate", token.offset, word_hint=True
            )
        self._index += 1
        arguments = [] if self._accept(")") else self._arguments()
        return self._apply(token.offset, "call", arguments, word.lower())

    def _call_with_words(self, token: Token) -> SqlNode:
        """Parse a function with words between its arguments: ``substring(a FROM 2 FOR 3)``."""
        self._index += 1
        name, part = token.upper, self._current.upper
        if name == "EXTRACT":
            if part not in EXTRACT_PARTS or self._peek().upper != "FROM":
                raise self._error(f"expected one of {', '.join(EXTRACT_PARTS)}, and FROM")
            self._index += 2
            return self._apply(token.offset, "call", self._arguments(), part.lower())
        if name == "TRIM" and part in TRIM_FUNCTIONS and self._peek().upper == "FROM":
            self._index += 2
            return self._apply(token.offset, "call", self._arguments(), TRIM_FUNCTIONS[part])
        arguments = [self._logic()]
        if self._current.upper == "FROM":
            if name == "TRIM":
                raise self._error("trimming of characters other than spaces is not supported")
            while self._accept_word("FROM" if len(arguments) == 1 else "FOR"):
                arguments.append(self._logic())
            self._expect(")")
        elif self._accept(","):
            arguments += self._arguments()
        else:
            self._expect(")")
        if (name == "TRIM") is not (len(arguments) == 1):
            raise self._error(f"{token.value} is not supported with these arguments", token.offset)
        return self._apply(token.offset, "call", arguments, name.lower())

    def _number(self, token: Token, sign: str, offset: int | None = None) -> SqlNode:
        try:
            typed = typed_number(sign + token.value, token.suffix, self._settings)
        except (TypeError, InvalidOperation, OverflowError, ValueError) as reason:
            message = str(reason) if isinstance(reason, TypeError) else "not a number in Spark"
            raise error(self._text, token.offset, message) from None
        return Value(token.offset if offset is None else offset, 1, typed)


def _begins_operand(token: Token) -> bool:
    if token.category == "sign":
        return token.value in ("(", "-", "+", "~", "!")
    return token.category != "end"
