"""Groups of keyword arguments: what callers see of them."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import pytest

from lance_spark.arguments import checks_arguments, pylance_keywords
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.keywords import (
    Keyword,
    LateSignature,
    also_takes,
    checked,
    of_group,
    parameters_of,
    without_group,
)
from lance_spark.table.commit.options import RetryProgressKeywords

ROOT = Path(__file__).parent.parent


class Speed(TypedDict, total=False):
    speed: Annotated[int, Keyword("How fast.", 7, minimum=1)]


class Ride(Speed, total=False):
    label: Annotated[str | None, Keyword("A name.")]


@pylance_keywords(unused=["colour"])
@checks_arguments
def ride(wheels: int, **keywords: Unpack[Ride]) -> Ride:
    """Ride.

    Parameters
    ----------
    wheels : int
        How many.

    Returns
    -------
    Ride
    """
    return checked(Ride, keywords)


def test_signatures_and_docstrings_have_each_keyword() -> None:
    text = "(wheels: 'int', *, speed: 'int' = 7, label: 'str | None' = None) -> 'Ride'"
    assert str(inspect.signature(ride)) == text
    documented = "wheels : int\n    How many.\nspeed : int\n    How fast.\nlabel : str, optional"
    assert f"{documented}\n    A name.\n\nReturns\n" in (ride.__doc__ or "")


def test_keywords_are_checked() -> None:
    assert ride(2, colour="red") == {"speed": 7, "label": None}  # type: ignore[call-arg]
    assert ride(2, speed=1, label="a") == {"speed": 1, "label": "a"}
    with pytest.raises(InvalidOptionError, match="speed must be at least 1, not 0"):
        ride(2, speed=0)
    with pytest.raises(InvalidInputError, match="label must be a string"):
        ride(2, label=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'sped'"):
        ride(2, sped=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidOptionError, match="'sped' is unknown; the options are label, speed"):
        checked(Ride, {"sped": 3})
    assert of_group(Speed, {"speed": 2, "label": "b"}) == {"speed": 2}


@checks_arguments
@also_takes(Ride)
def tour(wheels: int, **options: Any) -> dict[str, Any]:
    """Ride far.

    Parameters
    ----------
    wheels : int
    **options
        Others.
    """
    return without_group(Ride, options)


def test_keywords_stand_beside_others() -> None:
    text = "speed: 'int' = 7, label: 'str | None' = None, **options: 'Any') -> 'dict[str, Any]'"
    assert str(inspect.signature(tour)) == f"(wheels: 'int', *, {text}"
    assert (tour.__doc__ or "").endswith(
        "label : str, optional\n    A name.\n**options\n    Others."
    )
    assert tour(2, speed=3, far="yes") == {"far": "yes"}
    with pytest.raises(InvalidOptionError, match="speed must be at least 1, not 0"):
        tour(2, speed=0)


def test_signatures_are_made_when_they_are_read() -> None:
    made = []

    def make() -> inspect.Signature:
        made.append(True)
        return inspect.signature(trip)

    signature = LateSignature.of(make)
    assert not made
    assert len(signature.parameters) == 3
    assert signature == inspect.signature(trip) == copy.copy(signature) == signature.replace()
    assert signature.bind(1, distance=2).arguments == {"engine": 1, "distance": 2}
    assert made == [True]


def trip(engine: object, distance: int, **keywords: Unpack[Ride]) -> int:
    """Start.

    Parameters
    ----------
    distance : int
        In miles.

    Raises
    ------
    InvalidOptionError
    """
    return distance * keywords.get("speed", 7)


class Car:
    @checks_arguments
    @parameters_of(trip)
    def start(self, *arguments: Any, **keywords: Any) -> list[int]:
        """Go.

        Returns
        -------
        list of int
        """
        return [trip(self, *arguments, **keywords)]


def test_methods_have_the_parameters_of_a_function() -> None:
    text = "distance: 'int', *, speed: 'int' = 7, label: 'str | None' = None) -> 'list[int]'"
    assert str(inspect.signature(Car.start)) == f"(self, {text}"
    assert (Car.start.__doc__ or "").startswith(
        "Go.\n\nParameters\n----------\ndistance : int\n    In miles.\nspeed : int\n"
    )
    assert Car().start(2, speed=3) == [6]
    with pytest.raises(InvalidInputError, match="distance must be a whole number"):
        Car().start("far")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="range"):
        Car().start(2, range=3)  # type: ignore[call-arg]


def test_keywords_of_commits_are_declared_once() -> None:
    # Parameters that pylance takes by their place, and calls with options of types of indexes.
    exceptions = {"add_bases", "create_scalar_index", "create_index"}
    shared = set(RetryProgressKeywords.__annotations__) - {"progress_callback"}
    found = {
        function.name
        for folder in ("dataset", "spark/table")
        for path in (ROOT / "lance_spark" / folder).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.arg in shared
    }
    assert found - exceptions == {"conflict_retries", "commit_batch"}


def test_groups_are_imported_when_modules_are() -> None:
    """Pages and checks of arguments look a group up in the module of its function."""
    for path in (ROOT / "lance_spark").rglob("*.py"):
        text = path.read_text()
        tree = ast.parse(text if "Unpack[" in text else "")
        only_for_types = {
            alias.name
            for block in tree.body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.args.kwarg is not None:
                group = re.fullmatch(
                    r"Unpack\[(\w+)\]", ast.unparse(function.args.kwarg.annotation)
                )
                assert group is None or group[1] not in only_for_types, f"{path}: {group[1]}"
