"""The public names of pylance, found by inspection.

| names of | are found in |
| --- | --- |
| a module | `__all__`, else what the module defines |
| a class | what it and its bases in pylance define; fields of dataclasses and typed dicts |
| `LanceDataset`, `LanceScanner` | also what they inherit from pyarrow |
| modules that need other packages | their source |

A name that several modules export counts once, in the module that comes first.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import pkgutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lance

#: Parsed, because they cannot be imported without torch or tqdm.
_PARSED = ("lance.torch", "lance.vector")
#: Helpers of pylance's own tests, of its installation and of its imports.
INTERNAL = ("lance.conftest", "lance.dependencies", "lance.download")
#: Classes of which inherited members of pyarrow count, too.
_WITH_PYARROW = ("LanceDataset", "LanceScanner")


@dataclass(frozen=True, slots=True)
class Name:
    """A public name of pylance.

    Attributes
    ----------
    path : str
        Dotted path: module, class and member.
    owner : str
        Dotted path of the module or class.
    value : object
        What it is; None if it was parsed.
    """

    path: str
    owner: str
    value: Any = None

    @property
    def name(self) -> str:
        return self.path.removeprefix(self.owner + ".")


def public_names() -> list[Name]:
    """Return all public names of pylance, each once."""
    seen: set[int] = set()
    names: list[Name] = []
    for module in ("lance", *_modules()):
        if module.startswith(_PARSED):
            names += _parsed(module)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                names += _names_of_module(module, seen)
    return names


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(lance.__path__, "lance."):
        is_private = any(part.startswith("_") for part in module.name.split("."))
        if not is_private and module.name not in INTERNAL:
            yield module.name


def _names_of_module(module: str, seen: set[int]) -> Iterator[Name]:
    loaded = import_module(module)
    exported: Sequence[str] | None = getattr(loaded, "__all__", None)
    if exported is None:
        exported = [
            name
            for name, value in vars(loaded).items()
            if getattr(value, "__module__", None) == module
        ]
    for name in sorted(exported):
        if name.startswith("_"):
            continue
        value = getattr(loaded, name)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield from _name(f"{module}.{name}", module, value, seen)


def _name(path: str, owner: str, value: Any, seen: set[int]) -> Iterator[Name]:
    yield Name(path, owner, value)
    if inspect.isclass(value):
        for member in sorted(_members(value)):
            inner = inspect.getattr_static(value, member, None)
            if inspect.isclass(inner):
                seen.add(id(inner))
                yield from _name(f"{path}.{member}", path, inner, seen)
            else:
                yield Name(f"{path}.{member}", path, getattr(value, member, None))


def _members(value: type) -> set[str]:
    bases = [base for base in value.__mro__ if _is_of_pylance(base)]
    members = {name for base in bases for name in vars(base)}
    if value.__name__ in _WITH_PYARROW:
        members |= set(dir(value))
    if not issubclass(value, enum.Enum):
        for base in bases:
            members |= set(getattr(base, "__annotations__", ()))
    return {name for name in members if not name.startswith("_")}


def _is_of_pylance(base: type) -> bool:
    """Return whether a class is of pylance; compiled classes name other modules."""
    module = base.__module__.partition(".")[0]
    return module in ("lance", "_lib") or (
        module == "builtins" and getattr(builtins, base.__name__, None) is not base
    )


def _parsed(module: str) -> Iterator[Name]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        path = f"{module}.{node.name}"
        yield Name(path, module)
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                yield Name(f"{path}.{member.name}", path)
