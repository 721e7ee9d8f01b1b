"""Parts of the statements that Spark does not know: names, options, values and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.scan.predicates.sql import SqlSettings
from lance_spark.scan.predicates.sql.tokens import Token, TokenCursor
from lance_spark.spark.catalog.names import Catalog
from lance_spark.spark.jvm.classes import CATALOG_CLASS, SESSION_CATALOG, SESSION_CATALOG_CLASS
from lance_spark.spark.quoting import quoted

#: First words of a query.
_QUERY = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE")


class LeftToSparkError(Exception):
    """Spark's parser handles the statement."""


class StatementError(InvalidInputError):
    """A syntax error of a statement about a Lance table of a catalog."""

    def __init__(self, text: str, token: Token, end: int, message: str) -> None:
        super().__init__(message)
        before = text[: token.offset]
        near = text[token.offset : end].split()
        self._near = f"'{near[0]}'" if near else "end of input"
        self._line = before.count("\n") + 1
        self._column = len(before) - (before.rfind("\n") + 1)

    def reply(self) -> dict[str, Any]:
        """Return the fields from which `Errors.java` makes the error."""
        return {
            "kind": "syntax",
            "near": self._near,
            "message": f": {self}",
            "line": self._line,
            "position": self._column,
        }


class CallArguments:
    """The arguments of a CALL, in the order of the statement: parameters without names need it."""

    def __init__(self, table: str) -> None:
        self._values = {"table": literal(table)}

    def add(self, name: str, value: str) -> None:
        """Add an argument; the value is the text of an expression."""
        self._values[name] = value

    def add_names(self, name: str, names: Sequence[str]) -> None:
        """Add an argument that is an array of names."""
        self.add(name, f"array({', '.join(map(literal, names))})")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __str__(self) -> str:
        return ", ".join(f"{name} => {value}" for name, value in self._values.items())


class StatementCursor(TokenCursor):
    """Reads the parts of a statement.

    - `text`: The statement.
    - `arguments`: As in `rewrite_statement`.
    """

    def __init__(self, text: str, settings: SqlSettings, arguments: Mapping[str, Any]) -> None:
        super().__init__(text, settings)
        self._catalogs: Mapping[str, str] = arguments["catalogs"]
        self._catalog_arguments: Mapping[str, Any] | None = arguments.get("current")
        self._catalog = ""
        #: Tables that the JVM looks for: see `rewrite_statement`.
        self.of_session: dict[str, list[str]] = {}

    def _table(self) -> CallArguments:
        """Read the name of a table, and return the arguments of a call about it.

        Raises LeftToSparkError if the table is not in a catalog of this package.
        """
        if self._current.category == "string":
            parts = [self._next().value]
        elif self._current.category in ("word", "name"):
            parts = self._parts("the name of a table")
        else:
            raise LeftToSparkError
        if len(parts) > 1 and parts[0] in self._catalogs:
            self._catalog, *names = parts
        elif len(parts) > 1 and parts[0] == SESSION_CATALOG:
            raise LeftToSparkError
        elif self._catalog_arguments is not None:
            self._catalog, names = self._catalog_arguments["catalog_name"], parts
            if len(parts) == 1 and "/" not in parts[0]:
                names = [*self._catalog_arguments["current_namespace"], *parts]
        owner = self._catalogs.get(self._catalog)
        if owner == SESSION_CATALOG_CLASS:
            self.of_session["session_table"] = names
        elif owner != CATALOG_CLASS:
            raise LeftToSparkError
        return CallArguments(quoted(self._catalog, *names))

    def _has_table(self, name: str) -> bool:
        """Return whether the current namespace has a table."""
        if self._catalog_arguments is None:
            return False
        arguments = self._catalog_arguments
        if self._catalogs.get(arguments["catalog_name"]) == SESSION_CATALOG_CLASS:
            parts = [SESSION_CATALOG, *arguments["current_namespace"], name]
            self.of_session["unless_table"] = parts
            return False
        table = {"namespace": arguments["current_namespace"], "name": name}
        try:
            Catalog.of(arguments).describe(table)
        except LanceError:
            return False
        return True

    def _parts(self, expected: str) -> list[str]:
        parts = [self._identifier(expected)]
        while self._accept("."):
            parts.append(self._identifier(expected))
        return parts

    def _identifier(self, expected: str) -> str:
        if self._current.category not in ("word", "name"):
            raise self._error(f"expected {expected}")
        return self._next().value

    def _names(self) -> list[str]:
        """Read names of columns, in brackets or not. A child of a struct has a path with dots."""
        is_enclosed = self._accept("(")
        names = [".".join(self._parts("the name of a column"))]
        while self._accept(","):
            names.append(".".join(self._parts("the name of a column")))
        if is_enclosed:
            self._expect(")")
        return names

    def _options(self, arguments: CallArguments) -> None:
        for name, value in self._named_values(arguments).items():
            arguments.add(name, value)

    def _named_values(self, arguments: CallArguments) -> dict[str, str]:
        """Read options, after Spark's `OPTIONS` or the `WITH` of other connectors.

        An option that is among the arguments already is an error.
        """
        values: dict[str, str] = {}
        if self._accept_word("WITH", "OPTIONS"):
            self._expect("(")
            while not self._accept(")"):
                if values:
                    self._expect(",")
                name = self._current.value.lower()
                if self._current.category != "word":
                    raise self._error("expected the name of an option")
                if name in values or name in arguments:
                    raise self._error(f"option {name} has a value already; remove it")
                self._next()
                self._expect("=")
                values[name] = self._value()
        return values

    def _value(self) -> str:
        """Read a constant or a parameter, and return its text."""
        sign = "-" if self._accept("-") else ""
        token = self._next()
        if token.category == "number":
            return f"{sign}{token.value}{token.suffix}"
        if not sign and token.category == "string":
            return literal(token.value)
        if not sign and token.upper in ("TRUE", "FALSE"):
            return token.value
        if not sign and token.is_sign("?"):
            return "?"
        if not sign and token.is_sign(":") and self._current.category == "word":
            return f":{self._next().value}"
        if token.category != "end":
            self._index -= 1
        raise self._error("expected a number, a string, TRUE, FALSE or a parameter")

    def _rest(self) -> str:
        """Return the text of the expression that ends the statement."""
        start = self._current.offset
        if self._is_end:
            raise self._error("expected a time")
        while not self._is_end:
            self._next()
        # The text may end with a comment.
        return self._text[start : self._current.offset].rstrip() + "\n"

    @property
    def _is_end(self) -> bool:
        return self._current.category == "end" or self._current.is_sign(";")

    def _is_query(self, token: Token) -> bool:
        return token.upper in _QUERY or token.is_sign("(")

    def _expect_words(self, *words: str) -> None:
        for word in words:
            self._expect_word(word)

    def _call(self, procedure: str, arguments: CallArguments) -> str:
        """Check that the statement ends here, and return the text of the call."""
        while self._accept(";"):
            pass
        if self._current.category != "end":
            raise self._error("expected the end of the statement")
        return f"CALL {quoted(self._catalog)}.system.{procedure}({arguments})"

    def _error(
        self, message: str, offset: int | None = None, word_hint: bool = False
    ) -> StatementError:
        return StatementError(self._text, self._current, self._peek().offset, message)


def literal(text: str) -> str:
    """Return a literal of SQL that has the same value under every setting of the session."""
    if any(character in text for character in "'\\$"):
        return f"CAST(X'{text.encode().hex()}' AS STRING)"
    return f"'{text}'"
