"""Cells of a matrix of cases: in `make test` those in which each pair of values occurs, in
`make test-long` all of them (`LANCE_SPARK_TEST_LONG=1`). Random cases: some, or many. Tests with
the marker `sample`: a part of their parameters, or all.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

#: Whether all cells are tried.
ALL_CELLS = os.environ.get("LANCE_SPARK_TEST_LONG") == "1"
#: Chooses the parameters of tests with the marker `sample`.
SEED = "0"


def cells(*axes: Sequence[object], all_cells: bool = ALL_CELLS) -> list[tuple[object, ...]]:
    """Return cells of the product of axes, in the order of the product.

    Examples
    --------
    >>> cells("ab", "xy", (1, 2), all_cells=False)
    [('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 2), ('b', 'y', 1)]
    """
    product = list(itertools.product(*map(range, map(len, axes))))
    chosen = product if all_cells else sorted(_with_all_pairs(product))
    return [tuple(axis[place] for axis, place in zip(axes, cell, strict=True)) for cell in chosen]


def _with_all_pairs(product: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return cells that have all pairs: the next cell is the one with the most new pairs."""
    pairs_of = {cell: set(itertools.combinations(enumerate(cell), 2)) for cell in product}
    missing = set(itertools.chain.from_iterable(pairs_of.values()))
    chosen = []
    while missing:
        best = max(product, key=lambda cell: len(pairs_of[cell] & missing))
        chosen.append(best)
        missing -= pairs_of[best]
    return chosen


def every_other(values: Iterable[T], number: int, *, all_cells: bool = ALL_CELLS) -> list[T]:
    """Return the values with even or with odd places, by the number of a table; all of them if all
    cells are tried. Two tables with neighbouring numbers have all values.
    """
    return [value for place, value in enumerate(values) if all_cells or (place + number) % 2 == 0]


def number_of(few: int, many: int, *, all_cells: bool = ALL_CELLS) -> int:
    """Return how many random cases are tried, or rows are compared: many if all cells are tried.

    Examples
    --------
    >>> number_of(10, 25, all_cells=False)
    10
    """
    return many if all_cells else few


def sample(cases: Sequence[Mapping[str, int]], part: int, name: str) -> list[int]:
    """Return the places of one of `part` cases, in which each value of each parameter occurs.

    Parameters
    ----------
    cases : sequence of mapping of str to int
        The values of each case, by the name of the parameter.
    part : int
    name : str
        Of the test. With `SEED` it decides which cases are chosen.

    Examples
    --------
    >>> cases = [{"x": x, "y": y} for x in range(4) for y in range(2)]
    >>> [cases[place]["x"] for place in sample(cases, 2, "test")]
    [0, 1, 2, 3]
    """
    places = list(range(len(cases)))
    random.Random(f"{SEED} {name}").shuffle(places)
    values = {value for case in cases for value in case.items()}
    # A parameter with a value of its own in each case rules no case out.
    counts = {key: len({case[key] for case in cases}) for key in cases[0]}
    missing = {(key, value) for key, value in values if counts[key] < len(cases)}
    chosen = []
    for place in places:
        if missing & cases[place].items():
            missing -= cases[place].items()
            chosen.append(place)
    rest = [place for place in places if place not in chosen]
    chosen += rest[: max(-(-len(cases) // part) - len(chosen), 0)]
    return sorted(chosen)
