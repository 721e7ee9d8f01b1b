"""Arguments of public calls: values of another type than the signature says are refused by the
argument's name.

| annotation | what is taken |
| --- | --- |
| `int` | whole numbers, those of numpy too, and no `bool` |
| `float` | numbers |
| `str`, `bool` | themselves |
| `Mapping[...]` | mappings |
| `Sequence[str]` | several strings, and not one string |
| `Sequence[...]`, `Collection[...]`, `Iterable[...]` | what can be iterated over, and no string |

`| None` may follow. Arguments with any other annotation are left to the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, cast

from lance_spark.errors import InvalidInputError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Check = Callable[[Any], bool]


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_list_of_strings(value: object) -> bool:
    # What can be iterated over once is left to the call.
    return _is_list(value) and not (
        isinstance(value, list | tuple) and any(not isinstance(item, str) for item in value)
    )


_CHECKS: dict[str, tuple[_Check, str]] = {
    "int": (_is_integer, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
    "Sequence[str]": (_is_list_of_strings, "a list of names"),
    "Sequence": (_is_list, "a list"),
    "Collection": (_is_list, "a list"),
    "Iterable": (_is_list, "a list"),
}
#: Arguments that mean the same in every call, and must not be less.
_LEAST = {"conflict_retries": 0, "max_retries": 0}
#: Values of these types are shown in errors. Others can be long, or have secrets in them.
_SHOWN = (bool, int, float)


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function refuse arguments of another type than its signature says; see the module.

    The annotations have to be strings, as ``from __future__ import annotations`` makes them.

    Raises
    ------
    InvalidInputError
        From the function: names the argument.
    """
    signature = inspect.signature(function)
    checks = {
        name: check
        for name, parameter in signature.parameters.items()
        if (check := _check_of(parameter)) is not None
    }
    # What comes after the named arguments is for `*args`, which is left to the call.
    places = tuple(
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind
        in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    )

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in (*zip(places, args, strict=False), *kwargs.items()):
            if value is not None and name in checks:
                is_right, expected = checks[name]
                if not is_right(value):
                    raise InvalidInputError(f"{name} must be {expected}, not {_shown(value)}")
                if name in _LEAST:
                    check_least(name, cast(int, value), _LEAST[name])
        return function(*args, **kwargs)

    return call


def check_least(name: str, value: int, least: int) -> None:
    """Refuse a number that is too small.

    Raises
    ------
    InvalidInputError
    """
    if value < least:
        raise InvalidInputError(f"{name} must be at least {least}, not {value}")


def _check_of(parameter: inspect.Parameter) -> tuple[_Check, str] | None:
    if not isinstance(parameter.annotation, str) or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ):
        return None
    # The last part of "... | None"; other unions have no entry.
    name = parameter.annotation.removesuffix(" | None")
    if name in _CHECKS:
        return _CHECKS[name]
    head, bracket, _ = name.partition("[")
    return _CHECKS.get(head) if bracket and name.endswith("]") and " | " not in head else None


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        # A list of names with something else in it.
        return f"a list with {', '.join(sorted({type(item).__name__ for item in value}))}"
    if isinstance(value, str):
        return f"the string {value!r}"
    return repr(value) if isinstance(value, _SHOWN) else type(value).__name__
