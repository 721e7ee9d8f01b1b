"""`lance.namespace` and the requests of its clients, imported at first use.

Its import takes a second of each process that collects tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    for module in ("lance.namespace", "lance_namespace_urllib3_client.models"):
        if hasattr(import_module(module), name):
            return getattr(import_module(module), name)
    raise AttributeError(name)
