"""The options of a read, parsed and checked once from the mapping that Spark passes.

| given | treated as |
| --- | --- |
| an option of this direction, or a setting of the store | parsed |
| an option of the other direction | ignored: a temporary view has one mapping for both |
| a property of a table of Spark's catalog | ignored: Spark repeats only options as `option.NAME` |
| any other name | refused, with the nearest known name |

Other Lance connectors use the same names (`declared`). Spark compares them without regard to case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from lance_spark.errors import InvalidOptionError
from lance_spark.keywords import declared_by
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.spark.options.declared import ReadFields
from lance_spark.spark.options.names import FEED_NAMES, SYNONYMS, TIME_NAMES
from lance_spark.spark.options.option import parsed
from lance_spark.spark.options.split import naming_path, split_options
from lance_spark.spark.options.values import moment

NO_PATH = (
    "option path is missing: set it to the folder or URI of the table, as in "
    '.format("lance").load("/data/t.lance"). Spark\'s catalog keeps the path of a table that was '
    "created without columns, by CREATE TABLE t USING lance LOCATION '...'"
)
_SEARCH_NAMES = tuple(declared_by(IndexSearchKeywords))


@dataclass(frozen=True)
class ReadOptions(ReadFields):
    """Options of a read.

    Attributes
    ----------
    path : str
    feed : mapping of str to str
        Options of change feeds and streams, which `FeedOptions` parses.
    storage_options : mapping, not shown by `repr`
        Arguments of the fsspec file system.
    """

    path: str
    feed: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_search(self) -> bool:
        """Whether rows are found by a full-text query, or by their vectors."""
        return self.full_text_query is not None or self.nearest is not None

    @property
    def search_keywords(self) -> IndexSearchKeywords:
        """The keywords of searches by indexes."""
        return cast(IndexSearchKeywords, {name: getattr(self, name) for name in _SEARCH_NAMES})

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's options.

        Raises
        ------
        InvalidOptionError
            An option is unknown, its value is invalid, or two options exclude each other.
        """
        with naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> ReadOptions:
        parts = split_options(options)
        plain = _with_tag(parts.plain)
        references = [name for name in ("version", "tag", "timestamp") if name in plain]
        if len(references) > 1:
            raise InvalidOptionError(
                f"options {' and '.join(references)} exclude each other: set only one"
            )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH)
        if "nearest" in plain and "full_text_query" in plain:
            raise InvalidOptionError(
                "options nearest and full_text_query exclude each other: set only one, or use "
                "LanceTable.hybrid_search"
            )
        values = parsed(ReadFields, plain)
        if "timestamp" in values:
            values["timestamp"] = moment(values["timestamp"], values.get("timezone"))
        if values.get("fresh"):
            _check_fresh(plain)
        return cls(
            parts.path,
            feed={name: plain[name] for name in FEED_NAMES if name in plain},
            storage_options=parts.storage,
            **values,
        )


def with_offsets(options: Mapping[str, str], zone: str | None) -> dict[str, str]:
    """Return options whose times have an offset.

    Parameters
    ----------
    zone : str or None
        The zone of the session, for times without an offset if no option has a zone.
    """
    names = {option: SYNONYMS.get(option.lower(), option.lower()) for option in options}
    zones = [options[option] for option, name in names.items() if name == "timezone"]
    result = dict(options)
    for option, name in names.items():
        if name in TIME_NAMES:
            time = moment(options[option], zones[0] if zones else zone, option)
            result[option] = options[option] if time is None else time.isoformat()
    return result


def _with_tag(plain: dict[str, str]) -> dict[str, str]:
    """Return the options of a read with the tag, if the option version names one."""
    version = plain.get("version", "")
    if "tag" in plain or not any(character.isalpha() for character in version):
        return plain
    return {**{name: text for name, text in plain.items() if name != "version"}, "tag": version}


def _check_fresh(plain: Mapping[str, str]) -> None:
    """Check that no option is given that excludes the rows of a MemWAL."""
    for name in ("version", "tag", "timestamp", "fragment_ids", *FEED_NAMES):
        if name in plain:
            raise InvalidOptionError(
                f"options fresh and {name} exclude each other: the rows of a MemWAL belong to the "
                "newest version, and are in no fragment; set only one"
            )
