"""Options for base paths: the base paths of a new table, and the targets of new data files."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options.values import column_names, flag, json_list
from lance_spark.table.bases import TargetBases, new_bases
from lance_spark.table.paths import BasePath

#: Names of the options.
NAMES = ("initial_bases", "target_bases", "target_all_bases")
_KEYS = frozenset({"path", "name", "is_dataset_root", "id"})
_MAX_ID = 2**32 - 1


def initial_bases(plain: Mapping[str, str]) -> tuple[BasePath, ...]:
    """Return the base paths in the option initial_bases; empty if the option is not set.

    Raises
    ------
    InvalidOptionError
        The value is not a JSON list of objects with a path, or two entries share a name, path or
        id.
    """
    text = plain.get("initial_bases")
    if text is None:
        return ()
    given = json_list(text)
    if given is None or not all(_is_base(item) for item in given):
        # A path can contain a password, so the message shows no part of the value.
        raise InvalidOptionError(
            'option initial_bases must be a JSON list such as [{"path": "s3://bucket/cold", '
            '"name": "cold"}]; each entry needs a path, and can have a name, is_dataset_root '
            "(true or false) and an id (a whole number)"
        )
    bases = [
        BasePath(
            item.get("id") or 0,
            item["path"],
            item.get("is_dataset_root") or False,
            item.get("name"),
        )
        for item in given
    ]
    try:
        return new_bases(bases)
    except InvalidInputError as error:
        raise InvalidOptionError(f"option initial_bases: {error}") from None


def target_bases(plain: Mapping[str, str]) -> TargetBases:
    """Return the targets of new data files: the options target_bases and target_all_bases.

    Raises
    ------
    InvalidOptionError
        Both options are set, or a value is not valid.
    """
    names = column_names("target_bases", plain.get("target_bases"))
    every = flag("target_all_bases", plain) if "target_all_bases" in plain else None
    return TargetBases(names, every)


def _is_base(given: object) -> bool:
    if not isinstance(given, dict) or not set(given) <= _KEYS:
        return False
    path, name, number = given.get("path"), given.get("name"), given.get("id")
    return (
        isinstance(path, str)
        and bool(path.strip())
        and (name is None or isinstance(name, str))
        and isinstance(given.get("is_dataset_root", False), bool)
        and (number is None or (type(number) is int and 0 <= number <= _MAX_ID))
    )
