"""Lazy imports of public names, so that importing a package does not import what it exports.

Executors import `lance_spark` for single modules, and must not wait for all others to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(namespace: dict[str, Any], exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names on first use.

    - `namespace`: The package's `globals()`.
    - `exports`: The module that defines each public name, or that is the name itself.
    """
    package = namespace["__name__"]

    def load(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(exports[name])
        is_module = exports[name] == f"{package}.{name}"
        value = namespace[name] = module if is_module else getattr(module, name)
        return value

    return load
