"""The fragments of a version, with what short reads ask of all of them: it is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lance_spark.table.fragments.fragment import Fragment


class ListedFragments(tuple[Fragment, ...]):
    """Fragments in the order of a table, with their rows counted."""

    @cached_property
    def row_ends(self) -> npt.NDArray[np.int64]:
        """The live rows up to the end of each fragment."""
        return np.cumsum([fragment.num_rows for fragment in self], dtype=np.int64)

    @cached_property
    def physical_ends(self) -> npt.NDArray[np.int64]:
        """The physical rows, with deleted rows, up to the end of each fragment."""
        return np.cumsum([fragment.physical_rows for fragment in self], dtype=np.int64)

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """The positions of the fragments by their ids."""
        return {fragment.id: position for position, fragment in enumerate(self)}

    @cached_property
    def by_id(self) -> Mapping[int, Fragment]:
        """The fragments by their ids."""
        return {fragment.id: fragment for fragment in self}

    @property
    def num_rows(self) -> int:
        """The live rows of all fragments."""
        return int(self.row_ends[-1]) if self else 0


def row_ends(fragments: Sequence[Fragment]) -> npt.NDArray[np.int64]:
    """Return the live rows up to the end of each fragment."""
    if isinstance(fragments, ListedFragments):
        return fragments.row_ends
    return ListedFragments(fragments).row_ends


def by_id(fragments: Iterable[Fragment]) -> Mapping[int, Fragment]:
    """Return fragments by their ids."""
    if isinstance(fragments, ListedFragments):
        return fragments.by_id
    return ListedFragments(fragments).by_id
