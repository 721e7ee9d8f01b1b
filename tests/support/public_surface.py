"""Writes tests/public_surface.txt: all public names, signatures and options.

Run `make pages` after a change of the public API, and review the difference.
`tests/test_public_surface.py` fails while the file differs from the package.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

from lance_spark.__main__ import make_parser
from lance_spark.spark.options import declared
from lance_spark.storage.options import KNOWN

ROOT = Path(__file__).parents[2]
PATH = ROOT / "tests" / "public_surface.txt"
MODULES = (
    "lance_spark",
    "lance_spark.dataset",
    "lance_spark.errors",
    "lance_spark.inspect",
    "lance_spark.query",
    "lance_spark.spark.table",
)
WIDTH = 100
#: Prefixes of names of storage options.
_PREFIXES = ("aws_", "azure_", "azure_storage_", "google_")
HEADER = """\
The public API: names, signatures and options. Written by `make pages`.
A change of this file is a change for users: review it, and describe it in CHANGELOG.md.
"""


def surface() -> str:
    """Return the text of the file."""
    listed: dict[int, str] = {}
    lines = [*HEADER.splitlines(), ""]
    for name in MODULES:
        module = import_module(name)
        lines += [f"# {name}", ""]
        for public in sorted(module.__all__):
            lines += _described(public, getattr(module, public), name, listed)
        lines.append("")
    lines += _options()
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _described(name: str, value: Any, module: str, listed: dict[int, str]) -> list[str]:
    if isinstance(value, ModuleType):
        return [f"module {name}", ""]
    if isinstance(value, str) or not (inspect.isclass(value) or inspect.isfunction(value)):
        return [f"{name}: {'str' if isinstance(value, str) else value}", ""]
    if id(value) in listed:
        return [f"{name}: as in {listed[id(value)]}", ""]
    listed[id(value)] = module
    if inspect.isfunction(value):
        return [*_signature(f"def {name}", value, ""), ""]
    # Inherited members are listed with the class itself.
    bases = [base.__name__ for base in value.__bases__ if not base.__name__.endswith("Methods")]
    bases = [base for base in bases if base not in ("object", "ABC")]
    lines = [f"class {name}({', '.join(bases)})" if bases else f"class {name}"]
    for member in _members(value):
        lines += member
    return [*lines, ""]


def _members(cls: type) -> Iterator[list[str]]:
    fields = _fields(cls)
    yield [f"    {name}: {annotation}" for name, annotation in fields.items()]
    if issubclass(cls, Exception) and "__init__" in vars(cls):
        yield _signature("    def __init__", cls.__init__, "    ")
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("lance_spark"):
            members.update(vars(base))
    for name in sorted(members):
        if not name.startswith("_") and name not in fields:
            lines = _member(name, members[name])
            # Conversions from and to protobuf messages are internal.
            if "_pb2" not in " ".join(lines):
                yield lines


def _member(name: str, member: Any) -> list[str]:
    if isinstance(member, property | cached_property):
        function = member.fget if isinstance(member, property) else member.func
        returned = inspect.signature(function).return_annotation  # type: ignore[arg-type]
        return [f"    property {name}: {returned}"]
    if isinstance(member, classmethod | staticmethod):
        decorator = f"    @{type(member).__name__}"
        return [decorator, *_signature(f"    def {name}", member.__func__, "    ")]
    # A call of such a class returns an object of another class.
    if hasattr(member, "target"):
        return _signature(f"    class {name}", member, "    ")
    return _signature(f"    def {name}", member, "    ") if inspect.isfunction(member) else []


def _fields(cls: type) -> dict[str, Any]:
    if dataclasses.is_dataclass(cls):
        return {field.name: field.type for field in dataclasses.fields(cls) if field.name[0] != "_"}
    # The annotations of a TypedDict are forward references.
    if is_typeddict(cls):
        return {name: hint.__forward_arg__ for name, hint in cls.__annotations__.items()}
    return {}


def _signature(head: str, function: Any, indent: str) -> list[str]:
    """Return a signature, on one line or with one parameter on each."""
    signature = inspect.signature(function)
    parts: list[str] = []
    had_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            had_star = True
        if parameter.kind is parameter.KEYWORD_ONLY and not had_star:
            parts.append("*")
            had_star = True
        parts.append(_parameter(parameter))
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {returned}"
    line = f"{head}({', '.join(parts)}){arrow}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{head}(", *(f"{indent}    {part}," for part in parts), f"{indent}){arrow}"]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name  # type: ignore[call-overload]
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def _options() -> Iterator[str]:
    for title, listed in (
        ("options of a read", ("path", *declared.READ_NAMES)),
        ("further options of a write", declared.WRITE_NAMES),
        ("other spellings of options", (f"{a} = {b}" for a, b in declared.SYNONYMS.items())),
        ("options of a column: <column>.<name>", declared.COLUMN_KEYS),
        (f"storage options, also with the prefixes {', '.join(_PREFIXES)}", _storage_options()),
        ("settings of the Spark session", _settings()),
    ):
        yield f"# {title}"
        yield ""
        yield from sorted(listed)
        yield ""
    yield "# commands of python -m lance_spark"
    yield ""
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, parser in action.choices.items():
                yield " ".join([command, *_arguments(parser)])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.dest != "help":
            name = "/".join(action.option_strings)
            yield f"[{name} {action.metavar}]" if name else str(action.metavar)


def _storage_options() -> set[str]:
    prefixed = {
        name
        for name in KNOWN
        if any(name.startswith(p) and name.removeprefix(p) in KNOWN for p in _PREFIXES)
    }
    return set(KNOWN - prefixed)


def _settings() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "lance_spark").rglob("*.py"))
    return {name for text in sources for name in re.findall(r"spark\.lance\.[A-Za-z.]*\w", text)}


if __name__ == "__main__":
    PATH.write_text(surface())
    print(f"wrote {PATH}")
