"""Groups of keyword arguments that several public functions have: each is declared once.

A group is a `typing.TypedDict` in a module with ``from __future__ import annotations``. The
annotation of each key has a `Keyword`: its text for the docstrings, its default and its bounds. A
function takes a group by one parameter:

    class CommitKeywords(TypedDict, total=False):
        commit_message: Annotated[str | None, Keyword("Stored in the transaction.")]

    def delete(self, filters: str | None = None, **keywords: Unpack[CommitKeywords]) -> Self:

Type checkers and editors know the names and types from the group. `lance_spark.arguments` checks
the arguments of public functions, and gives them the signature of `signature_of` and the docstring
of `docstring_of`, in which the keywords stand one by one: for `help` and the reference pages. The
procedures of SQL have the parameters of the same signatures. A group that inherits from another
group has its keywords, too.

`parameters_of` gives several methods the parameters of one function, those that have places, too.

A function that takes other keywords beside those of a group, such as options of a read, has a
decorator, because a `TypedDict` cannot say so:

    @also_takes(IndexSearchKeywords)
    def search(self, query: QueryLike, **options: Any) -> DataFrame:
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from numbers import Integral
from typing import (
    Any,
    Concatenate,
    ForwardRef,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

from lance_spark.errors import InvalidOptionError

_Group = TypeVar("_Group")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_P = ParamSpec("_P")
_R = TypeVar("_R")
#: The attribute of a method with the function whose parameters it has.
_SOURCE = "_has_parameters_of"
#: The attribute of a function with the group of `also_takes`.
_ALSO = "_group_of_keywords"
#: The type in an annotation, before the declaration.
_ANNOTATED = re.compile(r"Annotated\[(.+?), Keyword\(.*\)\]")
_UNPACKED = re.compile(r"Unpack\[([\w.]+)\]")
#: The title of a section of a docstring.
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
#: Width of a line of a docstring, without the indent of a method.
_WIDTH = 92


@dataclass(frozen=True, slots=True)
class Keyword:
    """The declaration of a keyword argument.

    Attributes
    ----------
    text : str
        What it does, for docstrings, pages and procedures.
    default : object
    minimum : int, optional
        The least value.
    """

    text: str
    default: Any = None
    minimum: int | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """A keyword of a group: its name, its type as an annotation writes it, its declaration."""

    name: str
    type: str
    keyword: Keyword

    def check(self, value: object) -> None:
        """Check that a value is not below the minimum.

        Raises
        ------
        InvalidOptionError
            The message names the keyword.
        """
        minimum = self.keyword.minimum
        if minimum is None or value is None:
            return
        if not isinstance(value, Integral) or value < minimum:
            raise InvalidOptionError(f"{self.name} must be at least {minimum}, not {value!r}")

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a signature."""
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(
            self.name, kind, default=self.keyword.default, annotation=self.type
        )

    def lines(self) -> str:
        """Return the lines of a docstring's section of parameters."""
        name = self.type.removesuffix(" | None")
        optional = ", optional" if name != self.type else ""
        text = textwrap.indent(textwrap.fill(self.keyword.text, _WIDTH), "    ")
        return f"{self.name} : {name}{optional}\n{text}"


@cache
def declared_by(group: type) -> Mapping[str, Declared]:
    """Return the keywords of a group by their names, in the order of the declaration."""
    return {name: _declared(name, hint) for name, hint in group.__annotations__.items()}


def _declared(name: str, hint: ForwardRef) -> Declared:
    """Return a keyword from its annotation ``Annotated[type, Keyword(...)]``."""
    holder = type(name, (), {"__annotations__": {name: hint}})
    names = _Names(vars(sys.modules[str(hint.__forward_module__)]))
    keyword = get_args(get_type_hints(holder, localns=names, include_extras=True)[name])[-1]
    dtype = _ANNOTATED.fullmatch(" ".join(hint.__forward_arg__.split()))
    assert isinstance(keyword, Keyword)
    assert dtype is not None
    return Declared(name, dtype[1], keyword)


class _Names(dict[str, Any]):
    """The names of a module; types that only type checkers know are any type."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def also_takes(group: type) -> Callable[[_Function], _Function]:
    """Return a decorator of functions that take a group beside any other keywords.

    The last parameter of the function is ``**options: Any``. It has the keywords of the group
    that a call gives, too: `of_group` and `without_group` part them.
    """

    def decorate(function: _Function) -> _Function:
        setattr(function, _ALSO, group)
        return function

    return decorate


def takes_others(function: Callable[..., Any]) -> bool:
    """Return whether a function takes other keywords beside its group."""
    return hasattr(inspect.unwrap(function), _ALSO)


def group_of(function: Callable[..., Any]) -> type | None:
    """Return the group that a function takes by its last parameter.

    The annotation must be a string, as ``from __future__ import annotations`` makes it, and the
    name of the group be known in the module of the function.
    """
    if takes_others(function):
        return cast(type, getattr(inspect.unwrap(function), _ALSO))
    *_, last = inspect.signature(function).parameters.values() or [None]
    if last is None or last.kind is not inspect.Parameter.VAR_KEYWORD:
        return None
    name = _UNPACKED.fullmatch(str(last.annotation))
    if name is None:
        return None
    owner = getattr(function, _SOURCE, None) or inspect.unwrap(function)
    return cast(type, owner.__globals__[name[1]])


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function with the keywords of its group one by one."""
    signature = inspect.signature(inspect.unwrap(function))
    group = group_of(function)
    if group is None:
        return inspect.signature(function)
    *own, last = signature.parameters.values()
    keywords = [declared.parameter() for declared in declared_by(group).values()]
    others = [last] if takes_others(function) else []
    return signature.replace(parameters=[*own, *keywords, *others])


def parameters_of(
    source: Callable[Concatenate[Any, _P], object],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Any, _P], _R]]:
    """Return a decorator of methods that take the parameters of a function but its first one.

    Type checkers know them. The signature has them, and a docstring with sections gets them.

    Parameters
    ----------
    source : callable
        Its first parameter stands for the object of the method.
    """
    _, *shared = inspect.signature(source).parameters.values()

    def decorate(method: Callable[..., _R]) -> Callable[Concatenate[Any, _P], _R]:
        own = inspect.signature(method)
        this = next(iter(own.parameters.values()))
        setattr(method, _SOURCE, source)
        method.__signature__ = own.replace(parameters=[this, *shared])  # type: ignore[attr-defined]
        return method

    return decorate


def docstring_of(function: Callable[..., Any], group: type) -> str | None:
    """Return the docstring of a function with the keywords of its group.

    A docstring without sections refers to another function, and stays as it is.
    """
    text = inspect.cleandoc(function.__doc__ or "")
    sections = list(_SECTION.finditer(text))
    if not sections:
        return function.__doc__
    added = [declared.lines() for declared in declared_by(group).values()]
    source = getattr(function, _SOURCE, None)
    if source is not None:
        added.insert(0, _parameters_in(source))
    titles = [section[1] for section in sections]
    others = re.search(r"^\*\*\w+$", text, re.MULTILINE)
    if others is not None:
        position, separator = others.start(), "\n"
    elif "Parameters" in titles:
        following = sections[titles.index("Parameters") + 1 :]
        position = following[0].start() if following else len(text)
        separator = "\n"
    else:
        added = ["Parameters", "----------", *added]
        position = sections[0].start()
        separator = "\n\n"
    head, tail = text[:position].rstrip("\n"), text[position:]
    joined = "\n".join(added)
    if others is not None:
        return f"{head}\n{joined}\n{tail}\n"
    return f"{head}{separator}{joined}\n" + (f"\n{tail}" if tail else "")


def _parameters_in(function: Callable[..., Any]) -> str:
    """Return the lines of the section of parameters of a docstring."""
    text = inspect.cleandoc(function.__doc__ or "")
    sections = list(_SECTION.finditer(text))
    for section, following in pairwise(sections):
        if section[1] == "Parameters":
            return text[section.end() : following.start()].strip("\n")
    return ""


def checked(group: type[_Group], given: Any) -> _Group:
    """Return the keywords of a group, with defaults for those that are not given.

    Raises
    ------
    InvalidOptionError
        A keyword is unknown, or below its minimum.
    """
    declared = declared_by(cast(type, group))
    for name, value in given.items():
        if name not in declared:
            raise InvalidOptionError(
                f"option {name!r} is unknown; the options are {', '.join(sorted(declared))}"
            )
        declared[name].check(value)
    values = {name: item.keyword.default for name, item in declared.items()}
    return cast(_Group, {**values, **given})


def of_group(group: type[_Group], keywords: Mapping[str, object]) -> _Group:
    """Return the keywords that belong to a group."""
    declared = declared_by(cast(type, group))
    return cast(_Group, {name: value for name, value in keywords.items() if name in declared})


def without_group(group: type, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that do not belong to a group."""
    declared = declared_by(group)
    return {name: value for name, value in keywords.items() if name not in declared}
