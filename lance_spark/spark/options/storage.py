"""Options of the store among the options of the source.

- The names of `KNOWN` stand among the plain options, as other connectors have them, or below a
  prefix;
- below `storage_options.` or `storage.`, or in the JSON object `storage_options`, any name may
  stand: what is not in `KNOWN` reaches the file system as it is.

What they mean is said in `lance_spark.storage.options.fsspec_options`. They travel as they were
given. Values may be secrets: nothing here puts one in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import LanceError
from lance_spark.storage.options.fsspec_options import KNOWN, parse_flag, to_fsspec
from lance_spark.storage.uri import parse_uri

__all__ = ["KNOWN", "checked", "parse_flag"]


def checked(options: Mapping[str, Any], path: str | None) -> dict[str, Any]:
    """Return options of the store as they were given, if the store at a path can have them.

    Parameters
    ----------
    options : mapping
    path : str or None
        Of the table. Without one, as with one that is none, there is nothing to check.

    Raises
    ------
    InvalidOptionError
        A value is none that the option can have, or the option is not supported for this store.
    """
    if path is not None and options:
        try:
            scheme = parse_uri(path).scheme
        except LanceError:
            # Whoever opens the table says so.
            return dict(options)
        to_fsspec(scheme, options, {})
    return dict(options)
