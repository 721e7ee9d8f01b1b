"""Classes of `lance.namespace` and the requests of its clients, imported at first use.

Their import takes a second of each process that collects tests. pytest asks each module that a test
module has for names of its own, none of which is the name of a class.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if not name[0].isupper():
        raise AttributeError(name)
    for module in ("lance.namespace", "lance_namespace_urllib3_client.models"):
        if hasattr(import_module(module), name):
            return getattr(import_module(module), name)
    raise AttributeError(name)
