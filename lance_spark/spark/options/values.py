"""Parsers of option values: they get the name of the option, and its text.

They raise InvalidOptionError, which names the option, what was expected and what was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError
from lance_spark.keywords import declared_by
from lance_spark.spark.quoting import split_names, unquoted
from lance_spark.storage.options import parse_flag, to_fsspec
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import new_bases
from lance_spark.table.paths import BasePath

# --------------------------------------------------------------------------------------------------
# The declaration of an option of Spark, and the classes whose fields are options.
#
# A field that `option` makes says all that is known of an option:
#
#     batch_size: int | None = option(number(), "rows of a batch at most ...")
#
# The parsers (`values`), the list of names in errors, and the page of the options follow from it.

#: Returns the value of an option from its name and its text. Raises InvalidOptionError.
Parser = Callable[[str, str], Any]
#: What of a table an option of a read chooses: nothing if it adds rows that no version has.
Chosen: TypeAlias = Literal["version", "columns", "rows", "nothing"]
_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option.

    - `name`: In lower case.
    - `text`: What it does, in Markdown.
    - `shown`: The name as errors and the page of the options spell it.
    - `spellings`: Other names, which other connectors and formats have.
    - `is_listed`: Whether errors name it. Options that only `LanceTable` sets are not listed.
    - `is_internal`: Whether only the classes in the JVM set it: the page does not have it.
    - `chooses`: What of a table a read with it has: ``version``; ``columns`` of a version; ``rows``
      of a version, or how they are read; or ``nothing`` of these.
    - `for_streams`: Whether streams and change feeds take it. If not, they refuse it.
    """

    name: str
    parse: Parser
    text: str
    shown: str
    spellings: tuple[str, ...]
    is_listed: bool
    is_internal: bool
    chooses: Chosen
    for_streams: bool

    def row(self) -> str:
        """Return the row of the page of the options."""
        names = ", ".join(f"`{name}`" for name in (self.shown, *self.spellings))
        end = "" if self.for_streams else ". Not for streams and change feeds"
        return f"| {names} | {self.text}{end} |"


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
    for_streams: bool = True,
) -> Any:
    """Return the field of a class of options.

    - `name`: By default that of the field.
    - `camel_case`: Whether the name is shown in camel case, as Spark and Delta have it.
    """
    others = (spellings, is_listed, is_internal, chooses, for_streams)
    return field(default=default, metadata={_KEY: (parse, text, name, camel_case, *others)})


def keyword_option(
    group: type,
    name: str,
    parse: Parser,
    text: str = "",
    *,
    chooses: Chosen = "rows",
    for_streams: bool = True,
) -> Any:
    """Return the field of an option that a group of keywords declares (`lance_spark.keywords`).

    - `text`: What the page of the options says, if that is more than the declaration says.
    """
    keyword = declared_by(group)[name].keyword
    if not text:
        text = keyword.text[0].lower() + keyword.text[1:].rstrip(".").replace("``", "`")
        text += f"; `{str(keyword.default).lower()}` by default"
    return option(parse, text, keyword.default, chooses=chooses, for_streams=for_streams)


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

    Raises InvalidOptionError.
    """
    return {
        cls._attributes[name]: declared.parse(declared.shown, plain[name])
        for name, declared in cls.declared.items()
        if name in plain
    }


def _camel_case(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))


# --------------------------------------------------------------------------------------------------
# Parsers of option values: they get the name of the option, and its text.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE_VERSIONS = ("stable", "legacy", "0.1", "2.0", "2.1", "2.2")
_INT64_MAX = 2**63 - 1
_MAX_FRAGMENTS = 10_000_000
_BASE_KEYS = frozenset({"path", "name", "is_dataset_root", "id"})
_MAX_BASE_ID = 2**32 - 1


def as_it_is(name: str, text: str) -> str:
    """Return the text."""
    return text


def number(minimum: int = 1, maximum: int = _INT64_MAX) -> Parser:
    """Return the parser of a whole number."""

    def parse(name: str, text: str) -> int:
        if re.fullmatch(r"\s*\+?[0-9]{1,20}\s*", text) and minimum <= int(text) <= maximum:
            return int(text)
        raise InvalidOptionError(
            f"option {name} must be a whole number from {minimum} to {maximum}, not {shown(text)}"
        )

    return parse


def flag(name: str, text: str) -> bool:
    """Return whether a text is true."""
    return parse_flag(name, text)


def choice(*choices: str) -> Parser:
    """Return the parser of one of some words, in lower case."""

    def parse(name: str, text: str) -> str:
        value = text.strip().lower()
        if value not in choices:
            raise InvalidOptionError(
                f"option {name} must be one of {', '.join(choices)}, not {shown(text)}"
            )
        return value

    return parse


def non_blank(name: str, text: str) -> str:
    """Return a text that is not blank."""
    if not text.strip():
        raise InvalidOptionError(f"option {name} is empty: set a name, or remove the option")
    return text


def zone(name: str, text: str) -> str:
    """Return the name or the offset of a time zone."""
    text = non_blank(name, text).strip()
    from lance_spark.predicates.times import tzinfo_of

    try:
        tzinfo_of(text)
    except ValueError:
        raise InvalidOptionError(
            f"option {name} must be a name such as Europe/Berlin, or an offset such as +01:00, "
            f"not {shown(text)}"
        ) from None
    return text


def moment(text: str | None, zone: str | None, name: str = "timestamp") -> datetime | None:
    """Return a time in UTC.

    - `text`: A timestamp in one of Spark's forms, or in ISO 8601.
    - `zone`: The zone of a text without an offset; None if it is not known.

    Raises InvalidOptionError: the text is not a time, or has no offset and the zone is not known.
    """
    if text is None:
        return None
    from lance_spark.predicates import times

    try:
        try:
            parsed = datetime.fromisoformat(text.strip())
        except ValueError:
            # Spark's other forms, such as a region in place of the offset.
            return _EPOCH + timedelta(microseconds=times.parse_micros(text, True, zone))
        if parsed.tzinfo is not None:
            return parsed.astimezone(UTC)
        if zone is not None:
            micros = (parsed.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
            return _EPOCH + timedelta(microseconds=times.to_instant(micros, zone))
    except (ValueError, OverflowError):
        raise InvalidOptionError(
            f"option {name} must be a time such as 2026-01-31 12:00:00, or with an offset as in "
            f"2026-01-31T12:00:00+01:00, not {shown(text)}"
        ) from None
    raise InvalidOptionError(
        f"option {name}: {shown(text)} has no offset, and the zone of the session is not known "
        "here; write 2026-01-31T12:00:00+01:00, set the option timezone, or call "
        "lance_spark.enable(spark)"
    )


def column_names(name: str, text: str) -> tuple[str, ...]:
    """Return the column names of a JSON list, or of a text with commas between them.

    Raises InvalidOptionError: the text is neither, or a name occurs twice.
    """
    names = json_list(text) if text.lstrip().startswith("[") else split_names(text)
    if names is None or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidOptionError(
            f"option {name} must be comma-separated names, or a JSON list such as "
            f'["id", "point.x"], not {shown(text)}'
        )
    columns = tuple(unquoted(name.strip()) for name in names)
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise InvalidOptionError(f"option {name} names {', '.join(repeated)} more than once")
    return columns


def fragment_ids(name: str, text: str) -> tuple[int, ...]:
    """Return increasing fragment ids, of a text of ids and ranges such as ``3,7-9``."""
    ranges: list[range] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
        if match is None:
            raise InvalidOptionError(
                f"option {name} must be comma-separated ids and ranges, such as 3,7-9, "
                f"not {shown(text)}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        ranges.append(range(first, last + 1))
    if sum(map(len, ranges)) > _MAX_FRAGMENTS:
        raise InvalidOptionError(
            f"option {name} names more than {_MAX_FRAGMENTS:,} fragments; leave it out"
        )
    return tuple(sorted({fragment_id for ids in ranges for fragment_id in ids}))


def file_version(name: str, text: str) -> str:
    """Return a file version that this release writes."""
    version = text.strip().lower()
    if version not in _FILE_VERSIONS:
        raise InvalidOptionError(
            f"option {name} must be one of {', '.join(_FILE_VERSIONS)}, not {shown(text)}"
        )
    return version


def filter_tree(name: str, text: str) -> dict[str, Any]:
    """Return the tree of a condition (`filter_trees`)."""
    tree = parsed_json(text)
    if not isinstance(tree, dict):
        raise InvalidOptionError(
            f"option {name} must be a JSON object that LanceTable sets: use the option filter"
        )
    return tree


def parsed_json(text: str) -> Any:
    """Return a JSON value; None if the text is not valid JSON."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def json_list(text: str) -> list[Any] | None:
    """Return a JSON list; None if the text is not a JSON list."""
    value = parsed_json(text)
    return value if isinstance(value, list) else None


def json_of(name: str, text: str) -> Any:
    """Return the value of a JSON text that the classes in the JVM set."""
    return parsed_json(text)


def json_object(description: str) -> Parser:
    """Return the parser of a JSON object. Its error shows no part of the text.

    - `description`: What the object is, after "must be a JSON object".
    """

    def parse(name: str, text: str) -> dict[str, Any]:
        value = parsed_json(text)
        if not isinstance(value, dict):
            # The text may hold secrets.
            raise InvalidOptionError(f"option {name} must be a JSON object {description}")
        return value

    return parse


def shown(text: str) -> str:
    """Return a text as messages quote it. Long texts are cut."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def checked_storage(options: Mapping[str, Any], path: str | None) -> dict[str, Any]:
    """Return options of the store, checked for the store of a path.

    Values may be secrets, so no message shows one. Without a valid path nothing is checked. Raises
    InvalidOptionError: a value is invalid, or this store does not support the option.
    """
    if path is not None and options:
        try:
            scheme = parse_uri(path).scheme
        except LanceError:
            # Opening the table reports the invalid path.
            return dict(options)
        to_fsspec(scheme, options, {})
    return dict(options)


def base_paths(name: str, text: str) -> tuple[BasePath, ...]:
    """Return the base paths of a new table.

    Raises InvalidOptionError: the value is not a JSON list of objects with a path, or two of them
    share a name, path or id.
    """
    entries = json_list(text)
    if entries is None or not all(_is_base(entry) for entry in entries):
        # A path may hold a password, so the message shows no part of the value.
        raise InvalidOptionError(
            f'option {name} must be a JSON list such as [{{"path": "s3://bucket/cold", '
            '"name": "cold"}]; each entry needs a path, and can have a name, is_dataset_root (true '
            "or false) and an id (a whole number)"
        )
    bases = [
        BasePath(
            entry.get("id") or 0,
            entry["path"],
            entry.get("is_dataset_root") or False,
            entry.get("name"),
        )
        for entry in entries
    ]
    try:
        return new_bases(bases)
    except InvalidInputError as error:
        raise InvalidOptionError(f"option {name}: {error}") from None


def _is_base(entry: object) -> bool:
    if not isinstance(entry, dict) or not set(entry) <= _BASE_KEYS:
        return False
    path, name, number = entry.get("path"), entry.get("name"), entry.get("id")
    return (
        isinstance(path, str)
        and bool(path.strip())
        and (name is None or isinstance(name, str))
        and isinstance(entry.get("is_dataset_root", False), bool)
        and (number is None or (type(number) is int and 0 <= number <= _MAX_BASE_ID))
    )
