"""`Dataset.optimize`: methods of `Dataset` that pylance has in an object of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.arguments import checks_arguments, pylance_keywords
from lance_spark.dataset.indexes import ExtendIndexesKeywords
from lance_spark.dataset.write_options import REFUSED_OF_COMPACTION, UNUSED_OF_COMPACTION
from lance_spark.mutations.compaction.options import CompactKeywords
from lance_spark.table.cleanup.automatic import PREFIX, cleanup_config

if TYPE_CHECKING:
    from lance_spark.mutations.compaction.task import CompactionMetrics


class DatasetOptimizer:
    """Compaction, indexes and automatic cleanup of a table. Made by `Dataset.optimize`.

    The object keeps its version. `compact_files` and `optimize_indices` return the new one, as the
    methods of `Dataset` do.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    @pylance_keywords(unused=UNUSED_OF_COMPACTION, refused=REFUSED_OF_COMPACTION)
    @checks_arguments
    def compact_files(self, **keywords: Unpack[CompactKeywords]) -> tuple[Any, CompactionMetrics]:
        """Merge small fragments; see `Dataset.compact_files`.

        An option that is None has its default.
        """
        result: tuple[Any, CompactionMetrics] = self._dataset.compact_files(
            **given_options(keywords)
        )
        return result

    @checks_arguments
    def optimize_indices(
        self,
        index_names: Sequence[str] | None = None,
        **keywords: Unpack[ExtendIndexesKeywords],
    ) -> Any:
        """Extend indexes to new rows; see `Dataset.optimize_indices`."""
        return self._dataset.optimize_indices(index_names, **keywords)

    def enable_auto_cleanup(self, auto_cleanup_config: dict[str, int]) -> None:
        """Turn on cleanup after commits.

        Parameters
        ----------
        auto_cleanup_config : mapping
            ``interval``: versions between two cleanups; ``older_than_seconds``.

        Raises
        ------
        InvalidOptionError
            An option is unknown, or not a number from 0 on.
        CommitConflictError, StorageError
        """
        self._dataset.update_config(cleanup_config(auto_cleanup_config))

    def disable_auto_cleanup(self) -> None:
        """Turn off cleanup after commits.

        Raises
        ------
        CommitConflictError, StorageError
        """
        keys = [key for key in self._dataset.config() if key.startswith(PREFIX)]
        if keys:
            self._dataset.delete_config_keys(keys)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a compaction that have an effect."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and name not in UNUSED_OF_COMPACTION
    }
