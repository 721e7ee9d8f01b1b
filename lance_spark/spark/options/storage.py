"""Storage options among the options of the data source.

- The names in `KNOWN` can be plain options, as in other connectors.
- With the prefix `storage_options.` or `storage.`, or in the JSON object `storage_options`, any
  name is possible. Names not in `KNOWN` are passed to the file system unchanged.

`lance_spark.storage.options.fsspec_options` defines their meaning. Tasks receive the options
unchanged. Values can be secrets, so no message here shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import LanceError
from lance_spark.storage.options.fsspec_options import KNOWN, parse_flag, to_fsspec
from lance_spark.storage.uri import parse_uri

__all__ = ["KNOWN", "checked", "parse_flag"]


def checked(options: Mapping[str, Any], path: str | None) -> dict[str, Any]:
    """Check storage options for the store of a path, and return them unchanged.

    Parameters
    ----------
    options : mapping
    path : str or None
        Path of the table. Without a valid path, nothing is checked.

    Raises
    ------
    InvalidOptionError
        A value is not valid, or this store does not support the option.
    """
    if path is not None and options:
        try:
            scheme = parse_uri(path).scheme
        except LanceError:
            # Opening the table reports the error.
            return dict(options)
        to_fsspec(scheme, options, {})
    return dict(options)
