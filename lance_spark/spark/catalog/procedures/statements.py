"""Rewrites statements that Spark does not know to statements that it knows.

The parser in the JVM (`StatementParser.java`) calls `rewrite_statement` with the text of a
statement. Most statements become a `CALL` of a procedure. The syntax is that of the Java connector,
or of Delta where the Java connector has no such statement. A statement about a
table of another catalog, and a statement that Spark knows, is left to Spark's parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.predicates.sql import SqlSettings
from lance_spark.predicates.sql.tokens import Token, TokenCursor
from lance_spark.spark.catalog.names import Catalog
from lance_spark.spark.jvm.classes import CATALOG_CLASS, SESSION_CATALOG, SESSION_CATALOG_CLASS
from lance_spark.spark.jvm.shims.pyspark_names import RELEASE
from lance_spark.spark.quoting import quoted

# --------------------------------------------------------------------------------------------------
# Parts of the statements that Spark does not know: names, options, values and errors.

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


# --------------------------------------------------------------------------------------------------
# Rewrites statements that Spark does not know to statements that it knows.

#: Whether Spark asks catalogs for `CREATE TABLE ... LIKE`.
_HAS_LIKE = RELEASE >= (4, 2)
#: Procedure of each `SHOW` statement.
_SHOWN = {
    "TAG": "tags",
    "TAGS": "tags",
    "BRANCH": "branches",
    "BRANCHES": "branches",
    "VERSIONS": "history",
    "INDEX": "describe_indices",
    "INDEXES": "describe_indices",
}


def rewrite_statement(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of the statement that Spark parses instead of the given statement.

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
        syntax error gives an ``error`` with its position. The statement is left to Spark, too, if
        ``session_table`` in the metastore has another format, ``session_source`` is not a Lance
        table there, or ``unless_table``, which begins with a catalog, exists.
    """
    text = arguments["statement"]
    settings = SqlSettings.from_conf(arguments["settings"])
    try:
        # The JVM has replaced variables already.
        parser = _StatementParser(text, replace(settings, variable_substitution=False), arguments)
    except InvalidInputError:
        # Spark's parser reports the same syntax error.
        return {"statement": None}
    try:
        return {"statement": parser.rewritten(), **parser.of_session}
    except LeftToSparkError:
        return {"statement": None}
    except StatementError as error:
        return {"error": error.reply(), **parser.of_session}


class _StatementParser(StatementCursor):
    def rewritten(self) -> str:
        """Return the text of the statement that Spark parses.

        Raises
        ------
        LeftToSparkError, StatementError
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
        if word == "CREATE":
            return self._create_index() if self._accept_word("INDEX") else self._create_like()
        if word == "DROP":
            return self._drop_index()
        if word == "ALTER":
            self._next()
            return self._alter()
        raise LeftToSparkError

    # Statements

    def _optimize(self) -> str:
        arguments = self._table()
        if self._accept_word("WHERE"):
            start = self._current.offset
            while self._current.upper != "ZORDER" and not self._is_end:
                if self._current.is_sign("?", ":"):
                    raise self._error("the condition must not have parameters")
                self._next()
            arguments.add("where", literal(self._text[start : self._current.offset].strip()))
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
            raise LeftToSparkError
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

    def _create_like(self) -> str:
        """Refuse `CREATE TABLE t LIKE s` where Spark would not create a table.

        Raises LeftToSparkError, StatementError.
        """
        self._next()
        if self._accept_word("IF"):
            self._expect_words("NOT", "EXISTS")
        self._table()
        is_of_session = self._catalogs.get(self._catalog) == SESSION_CATALOG_CLASS
        if self._current.upper != "LIKE" or (not is_of_session and _HAS_LIKE):
            raise LeftToSparkError
        # The new table does not exist, or does not change.
        self.of_session.clear()
        instead = "use CREATE TABLE ... USING lance AS SELECT * FROM ... LIMIT 0"
        if not is_of_session:
            raise self._error(f"CREATE TABLE LIKE in this catalog needs Spark 4.2; {instead}")
        refusal = self._error(f"Spark would create a name without a Lance table; {instead}")
        self._next()
        source = self._parts("the name of a table")
        while not self._is_end:
            if self._next().upper == "USING":
                raise refusal if self._current.value.lower() == "lance" else LeftToSparkError
        if _HAS_LIKE:
            raise LeftToSparkError
        if len(source) == 1 and self._catalog_arguments is not None:
            source = [*self._catalog_arguments["current_namespace"], *source]
        self.of_session["session_source"] = source
        raise refusal

    def _show(self) -> str:
        procedure = _SHOWN[self._next().upper]
        if not self._accept_word("FROM", "IN"):
            raise LeftToSparkError
        return self._call(procedure, self._table())

    def _describe(self) -> str:
        word = self._next()
        is_one_word = not self._peek().is_sign(".")
        arguments = self._table()
        if is_one_word and self._has_table(word.value):
            # Spark describes a column of the table that is called history or detail.
            raise LeftToSparkError
        if word.upper == "HISTORY" and self._accept_word("LIMIT"):
            arguments.add("limit", self._value())
        return self._call(word.value.lower(), arguments)

    def _alter(self) -> str:
        arguments = self._table()
        first = self._next().upper
        if first == "CREATE" and self._accept_word("OR"):
            self._expect_word("REPLACE")
            first = "CREATE OR REPLACE"
        second = self._next().upper
        if second == "BRANCH" and first.endswith("REPLACE"):
            raise self._error(
                "a branch cannot be replaced, because that would lose its versions; use DROP "
                "BRANCH and CREATE BRANCH, or another name"
            )
        if second == "TAG" and first.endswith("REPLACE"):
            return self._replaced_tag(first == "REPLACE", arguments)
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
        raise LeftToSparkError

    def _columns_from(self, is_new: bool, arguments: CallArguments) -> str:
        try:
            names = self._names()
            self._expect_word("FROM")
        except StatementError:
            if is_new:
                # The names have types: this is a statement of Spark.
                raise LeftToSparkError from None
            raise
        arguments.add_names("columns", names)
        source = self._parts("the name of a table or view")
        arguments.add("source", literal(quoted(*source)))
        return self._call("add_columns_from" if is_new else "update_columns_from", arguments)

    def _reference(self, is_new: bool, category: str, arguments: CallArguments) -> str:
        if self._accept_word("IF"):
            if is_new:
                self._expect_word("NOT")
            self._expect_word("EXISTS")
            arguments.add("if_not_exists" if is_new else "if_exists", "true")
        arguments.add("name", literal(self._identifier(f"the name of a {category.lower()}")))
        if is_new:
            self._as_of(arguments)
        return self._call(f"{'create' if is_new else 'delete'}_{category.lower()}", arguments)

    def _replaced_tag(self, must_exist: bool, arguments: CallArguments) -> str:
        arguments.add("name", literal(self._identifier("the name of a tag")))
        if not must_exist:
            arguments.add("or_replace", "true")
        self._as_of(arguments)
        return self._call("update_tag" if must_exist else "create_tag", arguments)

    def _as_of(self, arguments: CallArguments) -> None:
        """Read the version, tag or branch that a tag or branch is created from, if one is named."""
        if self._accept_word("AS"):
            self._expect_word("OF")
            if self._accept_word("TAG"):
                arguments.add("tag", literal(self._identifier("the name of a tag")))
            elif self._accept_word("BRANCH"):
                arguments.add("branch", literal(self._identifier("the name of a branch")))
                if self._accept_word("VERSION"):
                    arguments.add("version", self._value())
            elif self._accept_word("VERSION"):
                arguments.add("version", self._value())
            else:
                raise self._error("expected VERSION, BRANCH or TAG")

    def _create_index(self) -> str:
        """Rewrite Spark's `CREATE INDEX i ON t (column)`, which does not replace an index."""
        if_not_exists = self._accept_word("IF")
        if if_not_exists:
            self._expect_words("NOT", "EXISTS")
        name = self._identifier("the name of an index")
        self._expect_word("ON")
        self._accept_word("TABLE")
        arguments = self._table()
        arguments.add("name", literal(name))
        method = "BTREE"
        if self._accept_word("USING"):
            method = self._identifier("the type of an index")
        arguments.add("method", literal(method))
        arguments.add_names("columns", self._names())
        if if_not_exists:
            arguments.add("if_not_exists", "true")
        options = self._named_values(arguments)
        self._add_options(arguments, {"replace": "false", **options})
        return self._call("create_index", arguments)

    def _drop_index(self) -> str:
        """Rewrite Spark's `DROP INDEX i ON t`."""
        self._expect_word("INDEX")
        if_exists = self._accept_word("IF")
        if if_exists:
            self._expect_word("EXISTS")
        name = self._identifier("the name of an index")
        self._expect_word("ON")
        self._accept_word("TABLE")
        arguments = self._table()
        arguments.add("name", literal(name))
        if if_exists:
            arguments.add("if_exists", "true")
        return self._call("drop_index", arguments)

    def _index_statement(self, first: str, arguments: CallArguments) -> str:
        if first in ("CREATE", "DROP") and self._accept_word("IF"):
            if first == "CREATE":
                self._expect_word("NOT")
            self._expect_word("EXISTS")
            arguments.add("if_not_exists" if first == "CREATE" else "if_exists", "true")
        arguments.add("name", literal(self._identifier("the name of an index")))
        if first == "CREATE":
            self._expect_word("USING")
            arguments.add("method", literal(self._identifier("the type of an index")))
            arguments.add_names("columns", self._names())
        if first != "DROP" and (options := self._named_values(arguments)):
            self._add_options(arguments, options)
        return self._call(f"{first.lower()}_index", arguments)

    def _add_options(self, arguments: CallArguments, options: Mapping[str, str]) -> None:
        pairs = [f"{literal(name)}, CAST({value} AS STRING)" for name, value in options.items()]
        arguments.add("options", f"map({', '.join(pairs)})")
