"""An extension of griffe: pages show the keywords of a group one by one.

A function that takes ``**keywords: Unpack[Group]`` has in the site the signature and the docstring
that it has at run time; see `lance_spark.keywords`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import griffe

from lance_spark.keywords import declared_by, docstring_of, group_of


class Keywords(griffe.Extension):
    """Replaces the last parameter of functions that take a group."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Change a function that was read from its source."""
        *_, last = func.parameters or [None]
        if last is None or not str(last.annotation or "").startswith("Unpack["):
            return
        module = func.module.path
        function: Any = import_module(module)
        for name in func.path.removeprefix(f"{module}.").split("."):
            function = getattr(function, name)
        function = getattr(function, "__wrapped__", function)
        group = group_of(function)
        if group is None:
            return
        del func.parameters[last.name]
        for name, declared in declared_by(group).items():
            func.parameters.add(
                griffe.Parameter(
                    name,
                    annotation=declared.type,
                    kind=griffe.ParameterKind.keyword_only,
                    default=repr(declared.keyword.default),
                )
            )
        if func.docstring is not None:
            func.docstring.value = docstring_of(function, group) or ""
