"""Things of users that options name: a text `package.module:name`, which also works where programs
are not shared.
"""

from __future__ import annotations

import importlib
from typing import Any

from lance_spark.errors import InvalidOptionError


def import_object(option: str, text: str, used: str) -> Any:
    """Return what an option names.

    Parameters
    ----------
    option : str
    text : str
        ``package.module:name``.
    used : str
        Where it has to be installed: "wherever tables are ...".

    Raises
    ------
    InvalidOptionError
        There is no such thing.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidOptionError(f"{option} {text!r}: give package.module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"{option} {text!r} cannot be imported: {error}; it has to be installed wherever "
            f"tables are {used}"
        ) from error
