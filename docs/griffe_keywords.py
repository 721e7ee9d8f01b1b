"""An extension of griffe: pages show the keywords of a group one by one.

A function that takes ``**keywords: Unpack[Group]``, or the parameters of another function, has in
the site the signature and the docstring that it has at run time; see `lance_spark.keywords`.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe

from lance_spark.keywords import docstring_of, has_keywords, signature_of

#: Decorators of `lance_spark.keywords` that give functions a group.
_DECORATORS = {"also_takes", "parameters_of"}


class Keywords(griffe.Extension):
    """Replaces the parameters of functions that take a group."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Change a function that was read from its source."""
        *_, last = func.parameters or [None]
        is_group = last is not None and str(last.annotation or "").startswith("Unpack[")
        decorators = {decorator.callable_path.rpartition(".")[2] for decorator in func.decorators}
        if not is_group and decorators.isdisjoint(_DECORATORS):
            return
        module = func.module.path
        function: Any = import_module(module)
        for name in func.path.removeprefix(f"{module}.").split("."):
            function = getattr(function, name)
        function = inspect.unwrap(function)
        if not has_keywords(function):
            return
        for name in [parameter.name for parameter in func.parameters]:
            del func.parameters[name]
        for parameter in signature_of(function).parameters.values():
            func.parameters.add(_converted(parameter))
        if func.docstring is not None:
            func.docstring.value = docstring_of(function) or ""


def _converted(parameter: inspect.Parameter) -> griffe.Parameter:
    """Return a parameter as griffe keeps it."""
    is_annotated = parameter.annotation is not parameter.empty
    return griffe.Parameter(
        parameter.name,
        annotation=parameter.annotation if is_annotated else None,
        kind=griffe.ParameterKind(parameter.kind.description),
        default=None if parameter.default is parameter.empty else repr(parameter.default),
    )
