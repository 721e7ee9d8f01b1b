"""The parser of the names of types, as in ``CAST(value AS decimal(5, 3))``."""

from __future__ import annotations

import pyarrow as pa

from lance_spark.scan.predicates.sql.literals import TYPES
from lance_spark.scan.predicates.sql.syntax import DECIMAL_TYPES
from lance_spark.scan.predicates.sql.tokens import TokenCursor
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import CLOCK, INSTANT


class TypeParser(TokenCursor):
    """Base class of the parser.

    - `pylance_dialect`: Whether types and literals of pylance are allowed.
    """

    def __init__(self, text: str, settings: SqlSettings, pylance_dialect: bool = False) -> None:
        super().__init__(text, settings)
        self._pylance_dialect = pylance_dialect

    def _type(self) -> pa.DataType:
        token = self._next()
        word = token.upper
        sizes: list[int] = []
        if self._current.is_sign("("):
            self._index += 1
            while not sizes or self._accept(","):
                size = self._next()
                if size.category != "number" or size.suffix or not size.value.isdigit():
                    raise self._error("expected a number of digits", size.offset)
                sizes.append(int(size.value[:9]))
            self._expect(")")
        if word in DECIMAL_TYPES and len(sizes) <= 2:
            precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2]
            if 0 < precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
        elif word in ("VARCHAR", "CHAR", "CHARACTER") and len(sizes) == 1:
            return pa.string()
        elif word == "DATETIME" and self._pylance_dialect and sizes in ([], [6]):
            return CLOCK
        elif word == "TIMESTAMP" and (not sizes or (self._pylance_dialect and sizes == [6])):
            return CLOCK if self._settings.timestamp_type == "TIMESTAMP_NTZ" else INSTANT
        elif word == "TIME" and sizes not in ([], [6]):
            raise self._error(
                "times have six digits after the second here; write TIME", token.offset
            )
        elif word in TYPES and (not sizes or word == "TIME"):
            return TYPES[word]
        raise self._error(
            "expected a type that a value can be cast to, such as int, double or date", token.offset
        )
