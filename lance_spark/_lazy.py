"""Lazy imports of public names, so that importing a package does not import what it exports.

Executors import `lance_spark` for single modules, and must not wait for all others to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(namespace: dict[str, Any], exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names on first use.

    Parameters
    ----------
    namespace : dict
        The package's `globals()`.
    exports : mapping of str to str
        The module that defines each public name.
    """

    def getattr_(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(exports[name]), name)
        namespace[name] = value
        return value

    return getattr_
