"""Statements that Spark does not know, as statements that it knows.

The parser in the JVM (`StatementParser.java`) calls `rewrite_statement` with the text of a
statement. Most statements become a `CALL` of a procedure. Their words are those of the Java
connector, and those of Delta where the Java connector has no such statement. A statement about a
table of another catalog, and a statement that Spark knows, is left to Spark's parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.scan.predicates.sql import SqlSettings
from lance_spark.scan.predicates.sql.tokens import Token, TokenCursor
from lance_spark.spark.catalog.names import Catalog
from lance_spark.spark.jvm.classes import CATALOG_CLASS

#: A catalog that needs no setting.
_SESSION_CATALOG = "spark_catalog"
#: First words of a query.
_QUERY = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE")
#: Procedure of each `SHOW` statement.
_SHOWN = {
    "TAG": "tags",
    "TAGS": "tags",
    "BRANCH": "branches",
    "BRANCHES": "branches",
    "INDEX": "describe_indices",
    "INDEXES": "describe_indices",
}


def rewrite_statement(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of the statement that Spark is to parse instead of another one.

    Parameters
    ----------
    arguments : mapping
        ``statement``, the text; ``catalogs``, the classes of all catalogs by their names;
        ``current``, the arguments of a call about the current catalog, if it is one of this
        package; ``settings`` of the session.

    Returns
    -------
    dict
        ``statement``: the text, or None for a statement that is left to Spark. A statement with a
        syntax error gives an ``error`` with the place.
    """
    text = arguments["statement"]
    settings = SqlSettings.from_conf(arguments["settings"])
    try:
        # The JVM has replaced variables already.
        parser = _StatementParser(text, replace(settings, variable_substitution=False), arguments)
    except InvalidInputError:
        # Spark's parser finds the same fault in the tokens, and says so.
        return {"statement": None}
    try:
        return {"statement": parser.rewritten()}
    except _NotOurs:
        return {"statement": None}
    except _StatementError as error:
        return {"error": error.reply()}


class _NotOurs(Exception):  # noqa: N818 - it ends as an answer
    """Spark parses the statement."""


class _StatementError(InvalidInputError):
    """A syntax error of a statement about a table of ours."""

    def __init__(self, text: str, token: Token, end: int, message: str) -> None:
        super().__init__(message)
        before = text[: token.offset]
        near = text[token.offset : end].split()
        self._near = f"'{near[0]}'" if near else "end of input"
        self._line = before.count("\n") + 1
        self._column = len(before) - (before.rfind("\n") + 1)

    def reply(self) -> dict[str, Any]:
        """Return what `Errors.java` needs to raise the error."""
        return {
            "kind": "syntax",
            "near": self._near,
            "message": f": {self}",
            "line": self._line,
            "position": self._column,
        }


class _Arguments:
    """The arguments of a CALL, in the order of the statement: parameters without names need it."""

    def __init__(self, table: str) -> None:
        self._values = {"table": _literal(table)}

    def add(self, name: str, value: str) -> None:
        """Add an argument; the value is the text of an expression."""
        self._values[name] = value

    def add_names(self, name: str, names: Sequence[str]) -> None:
        """Add an argument that is an array of names."""
        self.add(name, f"array({', '.join(map(_literal, names))})")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __str__(self) -> str:
        return ", ".join(f"{name} => {value}" for name, value in self._values.items())


class _StatementParser(TokenCursor):
    def __init__(self, text: str, settings: SqlSettings, arguments: Mapping[str, Any]) -> None:
        super().__init__(text, settings)
        self._catalogs: Mapping[str, str] = arguments["catalogs"]
        self._catalog_arguments: Mapping[str, Any] | None = arguments.get("current")
        self._catalog = ""

    def rewritten(self) -> str:
        """Return the text of the statement that Spark is to parse.

        Raises
        ------
        _NotOurs, _StatementError
        """
        word = self._next().upper
        if word == "OPTIMIZE":
            return self._optimize()
        if word == "VACUUM":
            return self._vacuum()
        if word == "RESTORE":
            return self._restore()
        if word == "REPLACE":
            return self._replace()
        if word == "SHOW":
            return self._show()
        if word in ("DESCRIBE", "DESC"):
            return self._describe()
        if word == "ALTER":
            self._next()
            return self._alter()
        raise _NotOurs

    # Statements

    def _optimize(self) -> str:
        arguments = self._table()
        if self._accept_word("WHERE"):
            start = self._current.offset
            while self._current.upper != "ZORDER" and not self._is_end:
                if self._current.is_sign("?", ":"):
                    raise self._error("the condition must not have parameters")
                self._next()
            arguments.add("where", _literal(self._text[start : self._current.offset].strip()))
        if self._accept_word("ZORDER"):
            self._expect_word("BY")
            arguments.add_names("z_order_by", self._names())
        self._options(arguments)
        return self._call("optimize", arguments)

    def _vacuum(self) -> str:
        arguments = self._table()
        if self._accept_word("RETAIN"):
            arguments.add("retention_hours", self._value())
            self._expect_word("HOURS")
        if self._accept_word("DRY"):
            self._expect_word("RUN")
            arguments.add("dry_run", "true")
        self._options(arguments)
        return self._call("vacuum", arguments)

    def _restore(self) -> str:
        self._accept_word("TABLE")
        arguments = self._table()
        self._accept_word("TO")
        if self._accept_word("TIMESTAMP"):
            self._expect_words("AS", "OF")
            arguments.add("timestamp", self._rest())
            return self._call("restore_to_timestamp", arguments)
        self._expect_words("VERSION", "AS", "OF")
        if self._current.category == "string":
            arguments.add("tag", self._value())
            return self._call("restore_to_tag", arguments)
        arguments.add("version", self._value())
        return self._call("restore_to_version", arguments)

    def _replace(self) -> str:
        """Rewrite `REPLACE t WHERE condition AS query` to the `INSERT` that Spark has for it."""
        if self._current.upper == "TABLE":
            raise _NotOurs
        start = self._current.offset
        self._table()
        name = self._text[start : self._current.offset]
        self._expect_word("WHERE")
        start, depth = self._current.offset, 0
        while depth or self._current.upper != "AS" or not self._is_query(self._peek()):
            if self._is_end:
                raise self._error("expected AS and a query")
            depth += self._current.is_sign("(") - self._current.is_sign(")")
            self._next()
        condition = self._text[start : self._next().offset]
        return (
            f"INSERT INTO {name}\nREPLACE WHERE {condition}\n{self._text[self._current.offset :]}"
        )

    def _show(self) -> str:
        procedure = _SHOWN[self._next().upper]
        if not self._accept_word("FROM", "IN"):
            raise _NotOurs
        return self._call(procedure, self._table())

    def _describe(self) -> str:
        word = self._next()
        is_one_word = not self._peek().is_sign(".")
        arguments = self._table()
        if is_one_word and self._has_table(word.value):
            # Spark describes a column of the table that is called history or detail.
            raise _NotOurs
        if word.upper == "HISTORY" and self._accept_word("LIMIT"):
            arguments.add("limit", self._value())
        return self._call(word.value.lower(), arguments)

    def _alter(self) -> str:
        arguments = self._table()
        first, second = self._next().upper, self._next().upper
        if second == "COLUMNS" and first in ("ADD", "UPDATE"):
            return self._columns_from(first == "ADD", arguments)
        if second in ("TAG", "BRANCH") and first in ("CREATE", "DROP"):
            return self._reference(first == "CREATE", second, arguments)
        if second == "INDEX" and first in ("CREATE", "DROP", "OPTIMIZE", "REFRESH"):
            return self._index_statement(first, arguments)
        if (first, second) == ("SET", "UNENFORCED"):
            self._expect_words("PRIMARY", "KEY")
            arguments.add_names("columns", self._names())
            return self._call("set_unenforced_primary_key", arguments)
        raise _NotOurs

    def _columns_from(self, is_new: bool, arguments: _Arguments) -> str:
        try:
            names = self._names()
            self._expect_word("FROM")
        except _StatementError:
            if is_new:
                # Columns with types: a statement of Spark.
                raise _NotOurs from None
            raise
        arguments.add_names("columns", names)
        source = self._parts("the name of a table or view")
        arguments.add("source", _literal(_display(source)))
        return self._call("add_columns_from" if is_new else "update_columns_from", arguments)

    def _reference(self, is_new: bool, what: str, arguments: _Arguments) -> str:
        if self._accept_word("IF"):
            if is_new:
                self._expect_word("NOT")
            self._expect_word("EXISTS")
            arguments.add("if_not_exists" if is_new else "if_exists", "true")
        arguments.add("name", _literal(self._identifier(f"the name of a {what.lower()}")))
        if is_new and self._accept_word("AS"):
            self._expect_word("OF")
            if self._accept_word("TAG"):
                arguments.add("tag", _literal(self._identifier("the name of a tag")))
            elif self._accept_word("BRANCH"):
                arguments.add("branch", _literal(self._identifier("the name of a branch")))
                if self._accept_word("VERSION"):
                    arguments.add("version", self._value())
            elif self._accept_word("VERSION"):
                arguments.add("version", self._value())
            else:
                raise self._error("expected VERSION, BRANCH or TAG")
        return self._call(f"{'create' if is_new else 'delete'}_{what.lower()}", arguments)

    def _index_statement(self, first: str, arguments: _Arguments) -> str:
        arguments.add("name", _literal(self._identifier("the name of an index")))
        if first == "CREATE":
            self._expect_word("USING")
            arguments.add("method", _literal(self._identifier("the type of an index")))
            arguments.add_names("columns", self._names())
        if first != "DROP" and (options := self._named_values(arguments)):
            pairs = [
                f"{_literal(name)}, CAST({value} AS STRING)" for name, value in options.items()
            ]
            arguments.add("options", f"map({', '.join(pairs)})")
        return self._call(f"{first.lower()}_index", arguments)

    # Parts of statements

    def _table(self) -> _Arguments:
        """Read the name of a table of ours, and return the arguments of a call about it."""
        if self._current.category == "string":
            parts = [self._next().value]
        elif self._current.category in ("word", "name"):
            parts = self._parts("the name of a table")
        else:
            raise _NotOurs
        if len(parts) > 1 and parts[0] in self._catalogs:
            self._catalog, *names = parts
        elif len(parts) > 1 and parts[0] == _SESSION_CATALOG:
            raise _NotOurs
        elif self._catalog_arguments is not None:
            self._catalog, names = self._catalog_arguments["catalog_name"], parts
            if len(parts) == 1 and "/" not in parts[0]:
                names = [*self._catalog_arguments["current_namespace"], *parts]
        if self._catalogs.get(self._catalog) != CATALOG_CLASS:
            raise _NotOurs
        return _Arguments(_display([self._catalog, *names]))

    def _has_table(self, name: str) -> bool:
        """Return whether the current namespace has a table."""
        if self._catalog_arguments is None:
            return False
        arguments = self._catalog_arguments
        table = {"namespace": arguments["current_namespace"], "name": name}
        try:
            Catalog.of(arguments).describe(table)
        except LanceError:
            return False
        return True

    def _parts(self, what: str) -> list[str]:
        parts = [self._identifier(what)]
        while self._accept("."):
            parts.append(self._identifier(what))
        return parts

    def _identifier(self, what: str) -> str:
        if self._current.category not in ("word", "name"):
            raise self._error(f"expected {what}")
        return self._next().value

    def _names(self) -> list[str]:
        """Read names of columns, in brackets or not. A name with dots is one of a child."""
        is_enclosed = self._accept("(")
        names = [".".join(self._parts("the name of a column"))]
        while self._accept(","):
            names.append(".".join(self._parts("the name of a column")))
        if is_enclosed:
            self._expect(")")
        return names

    def _options(self, arguments: _Arguments) -> None:
        for name, value in self._named_values(arguments).items():
            arguments.add(name, value)

    def _named_values(self, arguments: _Arguments) -> dict[str, str]:
        """Read options, which must not be among the arguments already."""
        values: dict[str, str] = {}
        if self._accept_word("WITH"):
            self._expect("(")
            while not self._accept(")"):
                if values:
                    self._expect(",")
                name = self._current.value.lower()
                if self._current.category != "word":
                    raise self._error("expected the name of an option")
                if name in values or name in arguments:
                    raise self._error(f"option {name} is given already")
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
            return _literal(token.value)
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

    def _call(self, procedure: str, arguments: _Arguments) -> str:
        """Return the text of the call, after the end of the statement."""
        while self._accept(";"):
            pass
        if self._current.category != "end":
            raise self._error("expected the end of the statement")
        return f"CALL {_display([self._catalog])}.system.{procedure}({arguments})"

    def _error(
        self, message: str, offset: int | None = None, word_hint: bool = False
    ) -> _StatementError:
        return _StatementError(self._text, self._current, self._peek().offset, message)


def _display(parts: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _literal(text: str) -> str:
    """Return a literal of SQL that has the same value under every setting of the session."""
    if any(character in text for character in "'\\$"):
        return f"CAST(X'{text.encode().hex()}' AS STRING)"
    return f"'{text}'"
