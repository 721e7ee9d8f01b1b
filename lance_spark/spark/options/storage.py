"""Options of the store among the options of the data source.

- The names of `KNOWN` may be given as plain options, as other connectors have them, or with a
  prefix;
- with the prefix `storage_options.` or `storage.`, or in the JSON object `storage_options`, any
  name may be given: a name that is not in `KNOWN` is passed to the file system unchanged.

`lance_spark.storage.options.fsspec_options` documents their meaning. Values may be secrets, so no
message here shows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import LanceError
from lance_spark.storage.options.fsspec_options import KNOWN, parse_flag, to_fsspec
from lance_spark.storage.uri import parse_uri

__all__ = ["KNOWN", "checked", "parse_flag"]


def checked(options: Mapping[str, Any], path: str | None) -> dict[str, Any]:
    """Return options of the store unchanged, once it is certain that the store of a path accepts
    them.

    Parameters
    ----------
    options : mapping
    path : str or None
        Of the table. Without a valid path the options are not checked.

    Raises
    ------
    InvalidOptionError
        A value is invalid, or this store does not support the option.
    """
    if path is not None and options:
        try:
            scheme = parse_uri(path).scheme
        except LanceError:
            # Opening the table reports the invalid path.
            return dict(options)
        to_fsspec(scheme, options, {})
    return dict(options)
