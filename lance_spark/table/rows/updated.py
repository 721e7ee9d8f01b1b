"""Rows with stable ids that were updated since they were created."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import distinct
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.ids import created_versions_of, updated_versions_of
from lance_spark.table.rows.u64_segments import UInt64Array

_OFFSET = np.uint64(0xFFFFFFFF)


class UpdatedRows:
    """Finds rows whose last update is not their creation."""

    def __init__(self, paths: TablePaths, fragments: Sequence[Fragment]) -> None:
        self._paths = paths
        self._fragments = {
            fragment.id: fragment for fragment in fragments if _may_have_updates(fragment)
        }
        self._flags: dict[int, npt.NDArray[np.bool_]] = {}

    def of(self, addresses: UInt64Array) -> UInt64Array:
        """Return the addresses of updated rows among some addresses, in order, each once.

        Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
        """
        ordered = distinct(addresses)
        ids, starts = np.unique(ordered >> np.uint64(32), return_index=True)
        updated = [ordered[:0]]
        bounds = pairwise([*starts.tolist(), len(ordered)])
        for fragment_id, (start, stop) in zip(ids.tolist(), bounds, strict=True):
            if fragment_id in self._fragments:
                own = ordered[start:stop]
                updated.append(own[self._updated(fragment_id)[own & _OFFSET]])
        return np.concatenate(updated)

    def _updated(self, fragment_id: int) -> npt.NDArray[np.bool_]:
        if fragment_id not in self._flags:
            fragment = self._fragments[fragment_id]
            versions = [
                np.ones(fragment.physical_rows, np.uint64) if recorded is None else recorded
                for recorded in (
                    created_versions_of(fragment, self._paths),
                    updated_versions_of(fragment, self._paths),
                )
            ]
            self._flags[fragment_id] = versions[0] != versions[1]
        return self._flags[fragment_id]


def _may_have_updates(fragment: Fragment) -> bool:
    created = fragment.inline_lineage(Lineage.CREATED)
    return created is None or created != fragment.inline_lineage(Lineage.UPDATED)
