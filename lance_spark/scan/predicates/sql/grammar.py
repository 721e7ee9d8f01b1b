"""Spark's boolean expressions, after the rules of its SqlBaseParser.g4 that a predicate can use.

From the weakest to the strongest::

    OR
    AND
    NOT, !
    IS [NOT] NULL | TRUE | FALSE | UNKNOWN | DISTINCT FROM, [NOT] BETWEEN, IN, LIKE, ILIKE, RLIKE   (one of them)
    = == <=> <> != < <= > >= !> !<    (from left to right)
    |
    ^
    &
    << >> >>>
    + - ||
    * / % DIV
    unary - + ~
    ::type, .child, ['child']

As in Spark's default mode nearly every keyword is a name too: AND is a column where an operand has to stand. The words
NULL, TRUE and FALSE are literals there, and CAST and its like are functions before a bracket.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import InvalidOperation

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.sql.numbers import TYPES, typed_number
from lance_spark.scan.predicates.sql.tokens import Token, error, shown, tokens
from lance_spark.scan.predicates.sql.tree import Apply, Name, Node, TypeName, Value
from lance_spark.scan.predicates.sql.words import FUNCTIONS_OF_GRAMMAR, RESERVED
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import CLOCK, INSTANT, Typed

#: Each level of a tree is some calls, where it is read, bound and evaluated.
DEEPEST = 100
_COMPARED = {
    "=": "=",
    "==": "=",
    "<=>": "<=>",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    "!>": "<=",
    ">": ">",
    ">=": ">=",
    "!<": ">=",
}
#: Words that begin a query after a bracket, unless a sign follows that only a column can have.
_QUERIES = ("FROM", "MAP", "REDUCE", "SELECT", "TABLE", "VALUES", "WITH")
_AFTER_NAME = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", ")", ",", ".")
#: How strong each operator of two values binds; those of one number go from left to right.
_STRENGTH: dict[str, int] = {
    **dict.fromkeys(_COMPARED, 1),
    "|": 2,
    "^": 3,
    "&": 4,
    **dict.fromkeys(("<<", ">>", ">>>"), 5),
    **dict.fromkeys(("+", "-", "||"), 6),
    **dict.fromkeys(("*", "/", "%", "DIV"), 7),
}
#: Words that stand between or after operands.
_BETWEEN_OPERANDS = frozenset(
    {"AND", "OR", "IS", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV"}
)
_LITERAL_TYPES = {
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp_ltz",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "X": "x",
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
#: Functions whose arguments can have words between.
_WITH_WORDS = ("EXTRACT", "SUBSTR", "SUBSTRING", "TRIM")
_EXTRACTED = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")
_TRIMMED = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(?:\.[0-9]*)?\s*")


def parse(text: str, settings: SqlSettings) -> Node:
    """Return the tree of a text.

    Raises
    ------
    InvalidInputError
        The text is not one expression, or has more than `DEEPEST` levels.
    """
    try:
        return _Parser(text, settings).whole()
    except RecursionError:
        raise InvalidInputError(f"filter {shown(text)}: it is nested too deep") from None


class _Parser:
    def __init__(self, text: str, settings: SqlSettings) -> None:
        self._text = text
        self._settings = settings
        self._tokens = tokens(text, settings)
        self._at = 0
        self._level = 0

    def whole(self) -> Node:
        if len(self._tokens) == 1:
            raise self._failed("the text is empty; expected a condition")
        found = self._logic()
        if self._here.kind != "end":
            raise self._failed("expected AND, OR, an operator or the end", word_hint=True)
        return found

    # Tokens

    @property
    def _here(self) -> Token:
        return self._tokens[self._at]

    def _ahead(self, count: int = 1) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _takes(self, *signs: str) -> bool:
        found = self._here.is_sign(*signs)
        self._at += found
        return found

    def _takes_word(self, *words: str) -> bool:
        found = self._here.upper in words
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._failed(f"expected {sign}", word_hint=True)

    def _expect_word(self, word: str) -> None:
        if not self._takes_word(word):
            raise self._failed(f"expected {word}", word_hint=True)

    def _failed(
        self, what: str, at: int | None = None, word_hint: bool = False
    ) -> InvalidInputError:
        # A word that is taken for an operator, or two in a row, may be meant as the name of a column.
        before = self._tokens[self._at - 1] if self._at else self._here
        word = self._here if self._here.kind == "word" and at != before.at else before
        if word_hint and word.kind == "word":
            what += f"; if {word.value} is a column, write `{word.value}` with backticks"
        return error(self._text, self._here.at if at is None else at, what)

    def _apply(self, at: int, op: str, args: Sequence[Node], detail: object = None) -> Apply:
        depth = 1 + max((arg.depth for arg in args), default=0)
        if depth > DEEPEST:
            raise error(self._text, at, f"the predicate is nested more than {DEEPEST} deep")
        return Apply(at, depth, op, tuple(args), detail)

    # OR, AND, NOT

    def _logic(self, inside_and: bool = False) -> Node:
        """Read a condition; inside of AND without any OR."""
        self._enter()
        at = self._here.at
        if inside_and:
            found = self._negation()
        else:
            found = self._chain(at, "and", self._chain_part(at))
            alternatives = [found]
            while self._takes_word("OR"):
                start = self._here.at
                alternatives.append(self._chain(start, "and", self._chain_part(start)))
            found = self._chain(at, "or", alternatives)
        self._level -= 1
        return found

    def _enter(self) -> None:
        self._level += 1
        if self._level > DEEPEST:
            raise error(
                self._text, self._here.at, f"the predicate is nested more than {DEEPEST} deep"
            )

    def _chain_part(self, at: int) -> list[Node]:
        parts = [self._logic(inside_and=True)]
        while self._takes_word("AND"):
            parts.append(self._logic(inside_and=True))
        return parts

    def _chain(self, at: int, op: str, parts: list[Node]) -> Node:
        return parts[0] if len(parts) == 1 else self._apply(at, op, parts)

    def _negation(self) -> Node:
        marks: list[int] = []
        while self._here.is_sign("!") or self._is_not():
            marks.append(self._next().at)
        found = self._predicated()
        for at in reversed(marks):
            found = self._apply(at, "not", [found])
        return found

    def _is_not(self) -> bool:
        """Tell whether the word here is the operator NOT, and not a column of that name."""
        return self._here.upper == "NOT" and _begins_operand(self._ahead())

    # Predicates

    def _predicated(self) -> Node:
        at = self._here.at
        left = self._value(1)
        here, mark = self._here, self._at
        inverted = self._takes_word("NOT")
        if not inverted and here.is_sign("!") and self._ahead().upper in _BETWEEN_OPERANDS:
            if not self._settings.bang_equals_not:
                raise self._failed("! stands before a condition only; write NOT")
            inverted = self._takes("!")
        found = self._is(at, left) if not inverted and self._takes_word("IS") else None
        if found is None:
            found = self._suffix(at, left, inverted)
        if found is None:
            if inverted:
                self._at = mark
            return left
        return self._apply(at, "not", [found]) if inverted else found

    def _suffix(self, at: int, left: Node, inverted: bool) -> Node | None:
        if self._takes_word("BETWEEN"):
            low = self._value(1)
            self._expect_word("AND")
            return self._apply(at, "between", [left, low, self._value(1)])
        if self._takes_word("IN"):
            self._expect("(")
            self._refuse_query()
            return self._apply(at, "in", [left, *self._arguments()])
        if self._takes_word("RLIKE", "REGEXP"):
            return self._apply(at, "rlike", [left, self._value(1)])
        for word in ("LIKE", "ILIKE"):
            if self._takes_word(word):
                return self._like(at, word.lower(), left, inverted)
        return None

    def _like(self, at: int, op: str, left: Node, inverted: bool) -> Node:
        quantifier = self._here.upper
        if quantifier in ("ANY", "SOME", "ALL") and self._ahead().is_sign("("):
            self._at += 2
            parts = [self._apply(at, op, [left, one], "\\") for one in self._arguments()]
            # NOT LIKE ANY is true where one pattern does not match: NOT (LIKE ALL).
            every = (quantifier == "ALL") is not inverted
            return self._chain(at, "and" if every else "or", [*parts])
        pattern, escape = self._value(1), "\\"
        if self._takes_word("ESCAPE"):
            token = self._next()
            if token.kind != "string" or len(token.value) != 1:
                raise self._failed("expected a string of one character after ESCAPE", token.at)
            escape = token.value
        return self._apply(at, op, [left, pattern], escape)

    def _is(self, at: int, left: Node) -> Node:
        inverted = self._takes_word("NOT")
        what = self._next()
        if what.upper == "DISTINCT":
            self._expect_word("FROM")
            equal = self._apply(at, "<=>", [left, self._value(1)])
            return equal if inverted else self._apply(at, "not", [equal])
        if what.upper not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            raise self._failed("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", what.at)
        found = self._apply(at, "is", [left], what.upper)
        return self._apply(at, "not", [found]) if inverted else found

    def _arguments(self) -> list[Node]:
        """Read expressions with commas between, up to the bracket that closes them."""
        found = [self._logic()]
        while self._takes(","):
            found.append(self._logic())
        self._expect(")")
        return found

    # Values

    def _value(self, weakest: int) -> Node:
        at = self._here.at
        signs: list[Token] = []
        while self._here.is_sign("-", "+", "~"):
            if self._here.value == "-" and self._ahead().kind == "number":
                break
            signs.append(self._next())
        found = self._primary()
        for sign in reversed(signs):
            op = {"-": "negative", "+": "positive", "~": "~"}[sign.value]
            found = self._apply(sign.at, op, [found])
        while True:
            here = self._here
            op = here.value if here.kind == "sign" else here.upper
            strength = _STRENGTH.get(op, 0) if here.kind in ("sign", "word") else 0
            if strength < weakest:
                return found
            self._at += 1
            right = self._value(strength + 1)
            name = _COMPARED.get(op, op.lower())
            found = self._apply(at, name, [found, right])

    def _primary(self) -> Node:
        found = self._operand()
        while True:
            if self._here.is_sign(".") and isinstance(found, Name):
                self._at += 1
                found = Name(found.at, 1, (*found.parts, self._name()))
            elif self._here.is_sign("[") and isinstance(found, Name):
                self._at += 1
                if self._here.kind != "string" or not self._ahead().is_sign("]"):
                    raise self._failed("expected the name of a struct's child in quotes, and ]")
                found = Name(found.at, 1, (*found.parts, self._next().value))
                self._at += 1
            elif self._takes("::"):
                found = self._apply(found.at, "cast", [found], self._type())
            elif self._here.upper == "COLLATE" and self._ahead().kind in ("word", "name"):
                raise self._failed("collations are not read in a predicate")
            else:
                return found

    def _operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            return self._number(token, "")
        if token.is_sign("-"):
            return self._number(self._next(), "-", token.at)
        if token.kind == "string":
            text = token.value
            while self._here.kind == "string":
                text += self._next().value
            return Value(token.at, 1, Typed(text, pa.string(), True))
        if token.is_sign("("):
            self._refuse_query()
            found = self._logic()
            if self._here.is_sign(","):
                raise self._failed("rows of several values are not read in a predicate")
            self._expect(")")
            return found
        if token.kind == "name":
            return Name(token.at, 1, (token.value,))
        if token.kind == "word":
            return self._word(token)
        self._at -= token.kind != "end"
        if token.is_sign("?", ":"):
            raise self._failed("parameters have no value here; write the literal")
        raise self._failed("expected a column, a literal or a bracket", token.at, word_hint=True)

    def _refuse_query(self) -> None:
        """Refuse what Spark reads as a query: ``(values IN (1))`` is a row of an inline table, not a column."""
        word, after = self._here, self._ahead()
        if word.kind != "word" or word.upper not in _QUERIES or after.is_sign(*_AFTER_NAME):
            return
        if after.kind != "end":
            raise self._failed(
                f"{word.value} begins a subquery here, which is not read in a predicate; if "
                f"{word.value} is a column, write `{word.value}` with backticks"
            )

    def _word(self, token: Token) -> Node:
        word, here = token.upper, self._here
        if here.is_sign("("):
            return self._call(token)
        if word in ("NULL", "TRUE", "FALSE"):
            if word == "NULL":
                return Value(token.at, 1, Typed(None, pa.null(), True))
            return Value(token.at, 1, Typed(word == "TRUE", pa.bool_(), True))
        if word == "INTERVAL" and (here.kind in ("string", "number") or here.is_sign("-", "+")):
            return self._interval(token)
        if here.kind == "string":
            if word not in _LITERAL_TYPES:
                raise self._failed(
                    f"there are no literals of type {token.value}; expected one of "
                    f"{', '.join(_LITERAL_TYPES)}",
                    token.at,
                    word_hint=True,
                )
            self._at += 1
            text = Value(here.at, 1, Typed(here.value, pa.string(), True))
            return self._apply(token.at, "literal", [text], _LITERAL_TYPES[word])
        if (
            word == "CASE"
            and (here.upper == "WHEN" or _begins_operand(here))
            and (here.upper not in _BETWEEN_OPERANDS)
        ):
            return self._case(token)
        if word == "CURRENT_PATH":
            raise self._failed("it is a function since Spark 4.3", token.at, word_hint=True)
        self._check_reserved(token)
        return Name(token.at, 1, (token.value,))

    def _interval(self, token: Token) -> Node:
        """Read what follows INTERVAL: numbers with units, a string of them, or a string from one unit to another."""
        parts: list[str] = []
        while not parts or self._here.kind in ("number", "string"):
            sign = self._next().value if self._here.is_sign("-", "+") else ""
            number = self._next()
            if number.kind not in ("string", "number") or number.suffix:
                raise self._failed("expected a number and a unit, as in INTERVAL 3 DAYS", number.at)
            if number.kind == "string" and self._ahead().upper == "TO" and not parts:
                return self._interval_between(token, sign, number.value)
            if number.kind == "string" and not _NUMBER.fullmatch(number.value):
                if sign or parts:
                    raise self._failed(
                        "write the sign of an interval inside of its string", number.at
                    )
                return self._apply(token.at, "interval", (), (number.value, False, None))
            unit = self._next()
            value = number.value.strip()
            if unit.kind != "word" or (sign and value[0] in "+-"):
                raise self._failed("expected a unit, as in INTERVAL 3 DAYS", unit.at)
            parts.append(f"{sign}{value} {unit.value}")
            # A sign that follows is an operator.
        return self._apply(token.at, "interval", (), (" ".join(parts), False, None))

    def _interval_between(self, token: Token, sign: str, text: str) -> Node:
        """Read the units after a string, as in ``INTERVAL '1 02:03:04' DAY TO SECOND``."""
        largest = self._next().upper
        self._expect_word("TO")
        units = (largest.lower(), self._next().upper.lower())
        return self._apply(token.at, "interval", (), (text, sign == "-", units))

    def _case(self, token: Token) -> Node:
        """Read what follows CASE, up to END."""
        self._enter()
        parts = [] if self._here.upper == "WHEN" else [self._logic()]
        has_value = bool(parts)
        while self._takes_word("WHEN"):
            parts.append(self._logic())
            self._expect_word("THEN")
            parts.append(self._logic())
        if len(parts) < 2:
            raise self._failed(
                f"expected WHEN; if {token.value} is a column, write `{token.value}` with backticks"
            )
        has_otherwise = self._takes_word("ELSE")
        if has_otherwise:
            parts.append(self._logic())
        self._expect_word("END")
        self._level -= 1
        return self._apply(token.at, "case", parts, (has_value, has_otherwise))

    def _check_reserved(self, token: Token) -> None:
        enforced = self._settings.ansi and self._settings.reserved_keywords
        if enforced and token.upper in RESERVED:
            raise error(
                self._text,
                token.at,
                f"{token.value} is a reserved word with spark.sql.ansi.enforceReservedKeywords; "
                f"write `{token.value}` with backticks",
            )

    def _name(self) -> str:
        token = self._next()
        if token.kind not in ("word", "name"):
            raise self._failed("expected the name of a struct's child", token.at)
        if token.kind == "word":
            self._check_reserved(token)
        return token.value

    def _call(self, token: Token) -> Node:
        word = token.upper
        if word in ("CAST", "TRY_CAST"):
            self._at += 1
            inner = self._logic()
            self._expect_word("AS")
            target = self._type()
            self._expect(")")
            return self._apply(token.at, word.lower(), [inner], target)
        if word in _WITH_WORDS:
            return self._call_with_words(token)
        if word in FUNCTIONS_OF_GRAMMAR:
            raise self._failed(
                f"{token.value}(...) is not read in a predicate", token.at, word_hint=True
            )
        self._at += 1
        arguments = [] if self._takes(")") else self._arguments()
        return self._apply(token.at, "call", arguments, word.lower())

    def _call_with_words(self, token: Token) -> Node:
        """Read a function whose arguments may have words between: ``substring(a FROM 2 FOR 3)``."""
        self._at += 1
        name, part = token.upper, self._here.upper
        if name == "EXTRACT":
            if part not in _EXTRACTED or self._ahead().upper != "FROM":
                raise self._failed(f"expected one of {', '.join(_EXTRACTED)}, and FROM")
            self._at += 2
            return self._apply(token.at, "call", self._arguments(), part.lower())
        if name == "TRIM" and part in _TRIMMED and self._ahead().upper == "FROM":
            self._at += 2
            return self._apply(token.at, "call", self._arguments(), _TRIMMED[part])
        arguments = [self._logic()]
        if self._here.upper == "FROM":
            if name == "TRIM":
                raise self._failed("characters other than spaces are not trimmed here")
            while self._takes_word("FROM" if len(arguments) == 1 else "FOR"):
                arguments.append(self._logic())
            self._expect(")")
        elif self._takes(","):
            arguments += self._arguments()
        else:
            self._expect(")")
        if (name == "TRIM") is not (len(arguments) == 1):
            raise self._failed(f"{token.value} is not read with these arguments", token.at)
        return self._apply(token.at, "call", arguments, name.lower())

    def _type(self) -> TypeName:
        token = self._next()
        word = token.upper
        sizes: list[int] = []
        if self._here.is_sign("("):
            self._at += 1
            while not sizes or self._takes(","):
                size = self._next()
                if size.kind != "number" or size.suffix or not size.value.isdigit():
                    raise self._failed("expected a number of digits", size.at)
                sizes.append(int(size.value[:9]))
            self._expect(")")
        if word in _DECIMALS and len(sizes) <= 2:
            precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2]
            if 0 < precision <= 38 and scale <= precision:
                return TypeName(pa.decimal128(precision, scale))
        elif word in ("VARCHAR", "CHAR", "CHARACTER") and len(sizes) == 1:
            return TypeName(pa.string())
        elif word == "TIMESTAMP" and not sizes:
            return TypeName(CLOCK if self._settings.timestamp_type == "TIMESTAMP_NTZ" else INSTANT)
        elif word == "TIME" and sizes not in ([], [6]):
            raise self._failed("times have six digits after the second here; write TIME", token.at)
        elif word in TYPES and (not sizes or word == "TIME"):
            return TypeName(TYPES[word])
        raise self._failed(
            "expected a type that a literal is cast to, such as int, double or date", token.at
        )

    def _number(self, token: Token, sign: str, at: int | None = None) -> Node:
        try:
            typed = typed_number(sign + token.value, token.suffix, self._settings)
        except (TypeError, InvalidOperation, OverflowError, ValueError) as reason:
            why = str(reason) if isinstance(reason, TypeError) else "Spark has no such number"
            raise error(self._text, token.at, why) from None
        return Value(token.at if at is None else at, 1, typed)


def _begins_operand(token: Token) -> bool:
    if token.kind == "sign":
        return token.value in ("(", "-", "+", "~", "!")
    return token.kind != "end"
