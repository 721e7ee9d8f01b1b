"""Errors of public methods name the table, whatever raises them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction, signature, unwrap
from typing import Any, ParamSpec, TypeVar

from lance_spark.arguments import checks_arguments
from lance_spark.errors import naming
from lance_spark.storage.uri import parse_uri

_T = TypeVar("_T")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def names_table_by(name_of: Callable[[Any], str]) -> Callable[[type[_T]], type[_T]]:
    """Make the public methods and properties of a class name the table in the errors that they raise.

    See `lance_spark.errors.naming`. Arguments of a wrong type are refused before; see `lance_spark.arguments`.

    Parameters
    ----------
    name_of : callable
        Returns the root of the table of an object, without secrets.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        # Inherited methods too: those of a mixin do not know which class they end up in.
        members: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            members.update(vars(base))
        for name, member in members.items():
            if name.startswith("_"):
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(cls, name, property(_named(member.fget, name_of), doc=member.__doc__))
            elif isfunction(member):
                setattr(cls, name, _named(checks_arguments(member), name_of))
        return cls

    return decorate


def names_table_at(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function name the table at its argument ``uri`` in the errors that it raises; see `names_table`."""
    checked = checks_arguments(function)
    signature_of = signature(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        uri = signature_of.bind(*args, **kwargs).arguments["uri"]
        with naming(parse_uri(uri).display):
            return checked(*args, **kwargs)

    return call


def _named(method: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    if isgeneratorfunction(unwrap(method)):

        @wraps(method)
        def generate(self: object, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with naming(name_of(self)):
                yield from method(self, *args, **kwargs)

        return generate

    @wraps(method)
    def call(self: object, /, *args: Any, **kwargs: Any) -> Any:
        with naming(name_of(self)):
            return method(self, *args, **kwargs)

    return call


#: For classes whose objects have the open table as ``_table``.
names_table = names_table_by(lambda handle: handle._table.store.display)
