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

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.scan.numbers import to_float32
from lance_spark.scan.settings import SqlSettings
from lance_spark.scan.sql.tokens import Token, error, shown, tokens
from lance_spark.scan.sql.tree import Apply, Name, Node, TypeName, Value
from lance_spark.scan.sql.words import FUNCTIONS_OF_GRAMMAR, RESERVED
from lance_spark.scan.typed import CLOCK, INSTANT, Typed, decimal, integer

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
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp_ltz",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "X": "x",
}
TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_NTZ": CLOCK,
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VOID": pa.null(),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_INTEGERS = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_LARGEST_FLOAT = Decimal(2**128 - 2**104)
_LARGEST_DOUBLE = Decimal(2**1024 - 2**970)


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
        self._level += 1
        if self._level > DEEPEST:
            raise error(
                self._text, self._here.at, f"the predicate is nested more than {DEEPEST} deep"
            )
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
            raise self._failed(
                "intervals are not compared here; leave them to DataFrame.where", token.at
            )
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
            raise self._failed("CASE is not read in a predicate", token.at, word_hint=True)
        if word == "CURRENT_PATH":
            raise self._failed("it is a function since Spark 4.3", token.at, word_hint=True)
        self._check_reserved(token)
        return Name(token.at, 1, (token.value,))

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
        if word in FUNCTIONS_OF_GRAMMAR:
            raise self._failed(
                f"{token.value}(...) is not read in a predicate", token.at, word_hint=True
            )
        self._at += 1
        arguments = [] if self._takes(")") else self._arguments()
        return self._apply(token.at, "call", arguments, word.lower())

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
        elif word in TYPES and not sizes:
            return TypeName(TYPES[word])
        raise self._failed(
            "expected a type that a literal is cast to, such as int, double or date", token.at
        )

    def _number(self, token: Token, sign: str, at: int | None = None) -> Node:
        try:
            typed = self._typed_number(sign + token.value, token.suffix)
        except (TypeError, InvalidOperation, OverflowError, ValueError) as reason:
            why = str(reason) if isinstance(reason, TypeError) else "Spark has no such number"
            raise error(self._text, token.at, why) from None
        return Value(token.at if at is None else at, 1, typed)

    def _typed_number(self, text: str, suffix: str) -> Typed:
        number = Decimal(text)
        whole = not set(text) & set(".eE")
        if suffix in _INTEGERS:
            dtype = _INTEGERS[suffix]
            limit = 1 << dtype.bit_width - 1
            if not -limit <= number < limit:
                raise TypeError(f"the number does not fit its suffix {suffix}")
            return Typed(int(number), dtype, True)
        if suffix == "" and whole:
            # A text of thousands of digits is not made a Python integer.
            return decimal(number) if number.adjusted() > 18 else integer(int(number))
        if suffix in ("F", "D") or (
            suffix == ""
            and set(text) & set("eE")
            and not self._settings.exponent_literals_as_decimals
        ):
            largest = _LARGEST_FLOAT if suffix == "F" else _LARGEST_DOUBLE
            if abs(number) > largest:
                raise TypeError("the number is too large for its type")
            if suffix == "F":
                return Typed(to_float32(number), pa.float32(), True)
            return Typed(float(text), pa.float64(), True)
        exponent = number.as_tuple().exponent
        if self._settings.negative_scale and isinstance(exponent, int) and exponent > 0:
            raise TypeError(
                "decimals with a negative scale are not read; write the digits, or set "
                "spark.sql.legacy.allowNegativeScaleOfDecimal=false"
            )
        return decimal(number)


def _begins_operand(token: Token) -> bool:
    if token.kind == "sign":
        return token.value in ("(", "-", "+", "~", "!")
    return token.kind != "end"
