"""Imports objects of users that options name as `package.module:name`.

Other processes, such as executors, can import them too.
"""

from __future__ import annotations

import importlib
from typing import Any

from lance_spark.errors import InvalidOptionError


def import_object(option: str, text: str, used: str) -> Any:
    """Return the object that an option names.

    Parameters
    ----------
    option : str
    text : str
        ``package.module:name``.
    used : str
        Completes "wherever tables are ..." in the error.

    Raises
    ------
    InvalidOptionError
        The text is malformed, or the object cannot be imported.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidOptionError(f"{option} {text!r}: must be package.module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"{option} {text!r} cannot be imported: {error}; it must be installed wherever "
            f"tables are {used}"
        ) from error
