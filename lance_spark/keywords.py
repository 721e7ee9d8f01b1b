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

A function that hands keywords on has a decorator. They are the keywords of a group, or of another
function; a `TypedDict` cannot say that there are others, such as options of a read:

    @also_takes(IndexSearchKeywords)
    def search(self, query: QueryLike, **options: Any) -> DataFrame:

    @also_takes(scan_request, others=False)
    def head(self, num_rows: int, **options: Any) -> pa.Table:

Each process that reads a table imports these functions, and few ask for their signatures. So a
signature is made when somebody reads it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from itertools import pairwise, zip_longest
from numbers import Integral
from types import FunctionType
from typing import (
    Any,
    Concatenate,
    ForwardRef,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
)

from lance_spark.errors import InvalidOptionError

_Group = TypeVar("_Group")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_P = ParamSpec("_P")
_R = TypeVar("_R")
#: The attribute of a method with the function whose parameters it has.
_SOURCE = "_has_parameters_of"
#: The attribute of a function with what `also_takes` says.
_ALSO = "_hands_on"
#: An annotation: the type, and the declaration.
_ANNOTATED = re.compile(r"Annotated\[(.+?), (Keyword\(.*\)),?\s*\]")
_UNPACKED = re.compile(r"Unpack\[([\w.]+)\]")
#: The title of a section of a docstring.
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
#: The first line of a parameter, and of the parameters that have no name.
_PARAMETER = re.compile(r"\n(?=\S)")
_OTHERS = re.compile(r"^\*\*\w+$", re.MULTILINE)
#: Width of a line of a docstring, without the indent of a method.
_WIDTH = 95


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
    """A keyword of a group: its name, its type as an annotation writes it, its declaration.

    Attributes
    ----------
    lines : str
        Its lines in the section of parameters of a docstring.
    """

    name: str
    type: str
    keyword: Keyword
    lines: str

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


@cache
def declared_by(group: type) -> Mapping[str, Declared]:
    """Return the keywords of a group by their names, in the order of the declaration."""
    return {name: _declared(name, hint) for name, hint in group.__annotations__.items()}


@cache
def _declared(name: str, hint: ForwardRef) -> Declared:
    """Return a keyword from its annotation ``Annotated[type, Keyword(...)]``.

    The type is left as a text: many types are known to type checkers only.
    """
    text = " ".join(hint.__forward_arg__.split())
    annotation = _ANNOTATED.fullmatch(text)
    if annotation is None:
        # Keywords of internal functions alone have a type, and no text.
        return Declared(name, text, Keyword(""), f"{name} : {text}")
    dtype, declaration = annotation.groups()
    names = vars(sys.modules[str(hint.__forward_module__)])
    keyword: Keyword = eval(declaration, names)  # noqa: S307 - an annotation of this package
    return Declared(name, dtype, keyword, _lines_of(name, dtype, keyword.text))


def _lines_of(name: str, dtype: str, text: str) -> str:
    """Return the lines of a parameter in a docstring."""
    required = dtype.removesuffix(" | None")
    lines = [f"{name} : {required}{', optional' if required != dtype else ''}", "   "]
    for word in text.split():
        if len(lines[-1]) + len(word) > _WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


class _Handed(NamedTuple):
    """The keywords that a function hands on; see `also_takes`."""

    source: type | Callable[..., Any]
    others: bool
    leaves_out: frozenset[str]


class LateSignature(inspect.Signature):
    """A signature that is made when it is first read."""

    __slots__ = ("_make",)
    _make: Callable[[], inspect.Signature]

    @classmethod
    def of(cls, make: Callable[[], inspect.Signature]) -> LateSignature:
        """Return the signature that a function makes."""
        late = cls.__new__(cls)
        late._make = make
        return late

    def __getattr__(self, name: str) -> Any:
        # Only the attributes of `Signature` can have no values yet.
        if name not in inspect.Signature.__slots__:
            raise AttributeError(name)
        made = self._make()
        parameters = list(made.parameters.values())
        super().__init__(parameters, return_annotation=made.return_annotation)
        return object.__getattribute__(self, name)


def also_takes(
    source: type | Callable[..., Any], *, others: bool = True, leaves_out: Collection[str] = ()
) -> Callable[[_Function], _Function]:
    """Return a decorator of functions that take the keywords of a group or of another function.

    The last parameter of the function is ``**options: Any``. It has the keywords that a call gives:
    `of_group` and `without_group` part those of a group from the others.

    Parameters
    ----------
    source : type or callable
        A group, or a function, whose first parameter stands for the object of a method.
    others : bool
        Whether it takes any other keywords, too.
    leaves_out : collection of str
        Keywords of the source that it does not take.
    """
    handed = _Handed(source, others, frozenset(leaves_out))

    def decorate(function: _Function) -> _Function:
        setattr(function, _ALSO, handed)
        return function

    return decorate


def _handed(function: Callable[..., Any]) -> _Handed | None:
    """Return what `also_takes` says of a function."""
    return getattr(inspect.unwrap(function), _ALSO, None)


def takes_others(function: Callable[..., Any]) -> bool:
    """Return whether a function takes other keywords beside those of its signature."""
    handed = _handed(function)
    return handed is not None and handed.others


def group_of(function: Callable[..., Any]) -> type | None:
    """Return the group that a function takes by its last parameter.

    The annotation must be a string, as ``from __future__ import annotations`` makes it, and the
    name of the group be known in the module of the function.
    """
    handed = _handed(function)
    if handed is not None:
        is_group = isinstance(handed.source, type)
        return cast(type, handed.source) if is_group else group_of(handed.source)
    owner = getattr(function, _SOURCE, None) or inspect.unwrap(function)
    code = owner.__code__
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    place = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    name = _UNPACKED.fullmatch(owner.__annotations__.get(code.co_varnames[place], ""))
    return None if name is None else cast(type, owner.__globals__[name[1]])


def has_keywords(function: Callable[..., Any]) -> bool:
    """Return whether the signature of a function has more than its own code says."""
    function = inspect.unwrap(function)
    return hasattr(function, _SOURCE) or group_of(function) is not None or bool(_handed(function))


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function with the keywords that it takes one by one."""
    function = inspect.unwrap(function)
    signature = inspect.signature(function)
    handed, group = _handed(function), group_of(function)
    if handed is None and group is None:
        return signature
    *own, last = signature.parameters.values()
    names = {parameter.name for parameter in own}
    if handed is not None:
        names |= handed.leaves_out
    added: list[inspect.Parameter] = []
    if handed is not None and not isinstance(handed.source, type):
        _, *parameters = signature_of(handed.source).parameters.values()
        by_name = inspect.Parameter.KEYWORD_ONLY
        added = [
            parameter.replace(kind=by_name)
            for parameter in parameters
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
    elif group is not None:
        added = [declared.parameter() for declared in declared_by(group).values()]
    added = [parameter for parameter in added if parameter.name not in names]
    others = [last] if takes_others(function) else []
    return signature.replace(parameters=[*own, *added, *others])


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

    def decorate(method: Callable[..., _R]) -> Callable[Concatenate[Any, _P], _R]:
        code = cast(FunctionType, method).__code__

        def make() -> inspect.Signature:
            this = inspect.Parameter(code.co_varnames[0], inspect.Parameter.POSITIONAL_OR_KEYWORD)
            _, *shared = inspect.signature(source).parameters.values()
            returned = method.__annotations__.get("return", inspect.Signature.empty)
            return inspect.Signature([this, *shared], return_annotation=returned)

        setattr(method, _SOURCE, source)
        method.__signature__ = LateSignature.of(make)  # type: ignore[attr-defined]
        return method

    return decorate


def show_keywords(wrapper: Callable[..., Any]) -> None:
    """Give the wrapper of a function the signature and docstring with the function's keywords."""
    if has_keywords(wrapper):
        signature = LateSignature.of(partial(signature_of, wrapper))
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        wrapper.__doc__ = docstring_of(wrapper)


def shows_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function whose signature and docstring have the keywords that it hands on.

    `lance_spark.arguments.checks_arguments` does the same, and checks the arguments.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return function(*args, **kwargs)

    show_keywords(call)
    return call


def docstring_of(function: Callable[..., Any]) -> str | None:
    """Return the docstring of a function with the keywords that it takes.

    A docstring without sections refers to another function, and stays as it is.
    """
    function = inspect.unwrap(function)
    text = inspect.cleandoc(function.__doc__ or "")
    if not _SECTION.search(text):
        return function.__doc__
    source = getattr(function, _SOURCE, None)
    if source is not None:
        text = _with_parameters(text, _parameters_in(source))
    handed, group = _handed(function), group_of(function)
    left_out: Collection[str] = () if handed is None else handed.leaves_out
    if handed is not None and not isinstance(handed.source, type):
        own = {*inspect.signature(function).parameters, *left_out}
        parts = _PARAMETER.split(_parameters_in(handed.source))
        taken = [part for part in parts if not own.issuperset(_names_of(part))]
        text = _with_parameters(text, "\n".join(taken))
    if group is not None:
        declared = declared_by(group).values()
        lines = [item.lines for item in declared if item.name not in left_out]
        text = _with_parameters(text, "\n".join(lines))
    return text


def _with_parameters(text: str, lines: str) -> str:
    """Return a docstring with further parameters, before those that have no name."""
    if not lines:
        return text
    others = _OTHERS.search(text)
    if others is not None:
        return f"{text[: others.start()]}{lines}\n{text[others.start() :]}"
    sections = list(_SECTION.finditer(text))
    for section, following in zip_longest(sections, sections[1:]):
        if section[1] == "Parameters":
            end = len(text) if following is None else following.start()
            tail = f"\n{text[end:]}" if following is not None else ""
            return f"{text[:end].rstrip()}\n{lines}\n{tail}"
    start = sections[0].start()
    return f"{text[:start].rstrip()}\n\nParameters\n----------\n{lines}\n\n{text[start:]}"


def _parameters_in(function: Callable[..., Any]) -> str:
    """Return the lines of the section of parameters of a docstring."""
    text = inspect.cleandoc(function.__doc__ or "")
    sections = list(_SECTION.finditer(text))
    for section, following in pairwise(sections):
        if section[1] == "Parameters":
            return text[section.end() : following.start()].strip("\n")
    return ""


def _names_of(part: str) -> list[str]:
    """Return the names of the parameters that some lines of a docstring describe."""
    return part.partition("\n")[0].partition(" : ")[0].split(", ")


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
