"""The declaration of an option of Spark, and the classes whose fields are options.

A field that `option` makes says all that is known of an option:

    batch_size: int | None = option(number(), "rows of a batch at most ...")

The parsers (`values`), the list of names in errors, and the page of the options follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from lance_spark.keywords import declared_by

#: Returns the value of an option from its name and its text. Raises InvalidOptionError.
Parser = Callable[[str, str], Any]
#: What of a table an option of a read chooses: nothing if it adds rows that no version has.
Chosen: TypeAlias = Literal["version", "columns", "rows", "nothing"]
_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option.

    Attributes
    ----------
    name : str
        In lower case.
    parse : Parser
    text : str
        What it does, in Markdown.
    shown : str
        The name as errors and the page of the options spell it.
    spellings : tuple of str
        Other names, which other connectors and formats have.
    is_listed : bool
        Whether errors name it. Options that only `LanceTable` sets are not listed.
    is_internal : bool
        Whether only the classes in the JVM set it: the page does not have it.
    chooses : str
        What of a table a read with it has: ``version``; ``columns`` of a version; ``rows`` of a
        version, or how they are read; or ``nothing`` of these.
    """

    name: str
    parse: Parser
    text: str
    shown: str
    spellings: tuple[str, ...]
    is_listed: bool
    is_internal: bool
    chooses: Chosen

    def row(self) -> str:
        """Return the row of the page of the options."""
        names = ", ".join(f"`{name}`" for name in (self.shown, *self.spellings))
        return f"| {names} | {self.text} |"


def option(
    parse: Parser,
    text: str,
    default: Any = None,
    *,
    name: str = "",
    camel_case: bool = False,
    spellings: tuple[str, ...] = (),
    is_listed: bool = True,
    is_internal: bool = False,
    chooses: Chosen = "rows",
) -> Any:
    """Return the field of a class of options.

    Parameters
    ----------
    name : str
        By default that of the field.
    camel_case : bool
        Whether the name is shown in camel case, as Spark and Delta have it.
    """
    declared = (parse, text, name, camel_case, spellings, is_listed, is_internal, chooses)
    return field(default=default, metadata={_KEY: declared})


def keyword_option(
    group: type, name: str, parse: Parser, text: str = "", *, chooses: Chosen = "rows"
) -> Any:
    """Return the field of an option that a group of keywords declares (`lance_spark.keywords`).

    Parameters
    ----------
    text : str
        What the page of the options says, if that is more than the declaration says.
    """
    keyword = declared_by(group)[name].keyword
    if not text:
        text = keyword.text[0].lower() + keyword.text[1:].rstrip(".").replace("``", "`")
        text += f"; `{str(keyword.default).lower()}` by default"
    return option(parse, text, keyword.default, chooses=chooses)


class Options:
    """Base of classes whose fields are options."""

    #: The options by their names, in the order of the fields.
    declared: ClassVar[Mapping[str, Option]]
    _attributes: ClassVar[Mapping[str, str]]


_Class = TypeVar("_Class", bound=Options)


def declares(cls: type[_Class]) -> type[_Class]:
    """Decorate a dataclass of options: find its declarations."""
    declared, attributes = {}, {}
    for item in fields(cls):  # type: ignore[arg-type]
        if _KEY not in item.metadata:
            continue
        parse, text, name, camel_case, *others = item.metadata[_KEY]
        name = name or item.name
        shown = _camel_case(name) if camel_case else name
        declared[name] = Option(name, parse, text, shown, *others)
        attributes[name] = item.name
    cls.declared, cls._attributes = declared, attributes
    return cls


def parsed(cls: type[Options], plain: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the options of a class that are given, by the names of the fields.

    Raises
    ------
    InvalidOptionError
    """
    return {
        cls._attributes[name]: declared.parse(declared.shown, plain[name])
        for name, declared in cls.declared.items()
        if name in plain
    }


def _camel_case(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))
