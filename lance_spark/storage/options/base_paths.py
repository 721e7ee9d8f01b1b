"""Storage options of base paths, given among the storage options of a table.

| storage option | means |
| --- | --- |
| `base_<id>.<name>` | the setting `<name>` of the base path with that id |
| `base_store_params` | a mapping from the path of a base path to all settings of its store |
| any other | a setting of the table, and of each base path on the same server |

An entry of `base_store_params` is complete: the base path inherits nothing. The names are as in
pylance. They reach executors with the storage options, and are never written to the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.storage.uri import parse_uri

#: Storage option: storage options of base paths, by their paths.
BASE_STORE_PARAMS = "base_store_params"
_SCOPED = re.compile(r"base_(?P<id>[0-9]{1,10})\.(?P<name>.+)", re.IGNORECASE | re.DOTALL)


def with_base_params(
    options: Mapping[str, Any] | None, params: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return storage options with the settings of base paths, if any are given.

    Raises InvalidOptionError: they are not a mapping from paths to mappings.
    """
    merged = dict(options or {})
    if params:
        merged[BASE_STORE_PARAMS] = {**_params(merged), **_checked(params)}
    return merged


def check_base_params(options: Mapping[str, Any], paths: Collection[str], table: str) -> None:
    """Refuse settings of a base path that a table does not have.

    - `options`: Storage options of the table.
    - `paths`: Paths or URIs of its base paths.
    - `table`: Name of the table in errors.

    Raises InvalidOptionError: an entry of `base_store_params` is about another path, or
    `base_store_params` is malformed.
    """
    locations = [parse_uri(path) for path in paths]
    for key in _params(options):
        if not any(_is_same(key, location.uri) for location in locations):
            raise InvalidOptionError(
                f"{table}: {BASE_STORE_PARAMS}: the table has no base path {_display(key)}; its "
                "base paths are "
                f"{', '.join(location.display for location in locations) or 'none'}"
            )


def _display(key: str) -> str:
    """Return a path as errors show it; what is not a path may be a secret."""
    try:
        return parse_uri(key).display
    except InvalidInputError:
        return "of that name"


def is_of_base(name: str) -> bool:
    """Return whether a storage option is for base paths only."""
    return name.lower() == BASE_STORE_PARAMS or _SCOPED.fullmatch(name) is not None


def options_of_base(
    options: Mapping[str, Any], number: int, path: str, *, inherits: bool
) -> dict[str, Any]:
    """Return the storage options of a base path.

    - `options`: Storage options of the table.
    - `number`: Id of the base path.
    - `path`: Its path or URI.
    - `inherits`: Whether the settings of the table may be sent to the server of the base path.

    Raises InvalidOptionError: `base_store_params` is not a mapping from paths to mappings.
    """
    base_uri = parse_uri(path).uri
    for key, settings in _params(options).items():
        if _is_same(key, base_uri):
            return dict(settings)
    settings_of_base = {}
    if inherits:
        settings_of_base = {name: value for name, value in options.items() if not is_of_base(name)}
    for name, value in options.items():
        scoped = _SCOPED.fullmatch(name)
        if scoped is not None and int(scoped["id"]) == number:
            # Last, as the last of two names for one setting is used.
            settings_of_base.pop(scoped["name"], None)
            settings_of_base[scoped["name"]] = value
    return settings_of_base


def _is_same(key: str, uri: str) -> bool:
    try:
        return parse_uri(key).uri == uri
    except InvalidInputError:
        return False


def _params(options: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    names = [name for name in options if name.lower() == BASE_STORE_PARAMS]
    return _checked(options[names[0]]) if names else {}


def _checked(value: object) -> dict[str, Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    # The error shows no part of the value, which holds secrets.
    if not isinstance(value, Mapping) or not all(
        isinstance(path, str) and isinstance(settings, Mapping) for path, settings in value.items()
    ):
        raise InvalidOptionError(
            f"storage option {BASE_STORE_PARAMS}: it must be a mapping from the path of each base "
            "path to its storage options, "
            'such as {"s3://bucket/folder": {"region": "eu-west-1"}}'
        )
    return dict(value)
