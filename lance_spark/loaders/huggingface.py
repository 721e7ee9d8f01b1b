"""A table as an `IterableDataset` of Hugging Face. Needs the package datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.arguments import check_least
from lance_spark.dataset.dataset import Dataset
from lance_spark.loaders.source import TableSource

if TYPE_CHECKING:
    import datasets

__all__ = ["to_iterable_dataset"]


def to_iterable_dataset(
    dataset: Dataset | str | os.PathLike[str],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: Any = None,
    *,
    batch_size: int = 1024,
    dataset_options: Mapping[str, Any] | None = None,
) -> datasets.IterableDataset:
    """Return the rows of a version as a stream of examples, each fragment as a shard.

    The stream is that of the package datasets: ``shuffle`` changes the order of the shards,
    ``split_dataset_by_node`` and the workers of torch share them, and ``state_dict`` continues it.
    Each process opens the version for itself.

    Parameters
    ----------
    dataset : Dataset, str or path
    columns, filter
        As in `Dataset.scanner`.
    batch_size : int
        Rows that are read at once.
    dataset_options : mapping, optional
        Arguments of `open_dataset`, if a path is given.

    Raises
    ------
    InvalidInputError
        An argument is not valid.

    Examples
    --------
    >>> rows = to_iterable_dataset("/data/t.lance", ["text", "label"])
    >>> loader = torch.utils.data.DataLoader(rows.with_format("torch"), batch_size=32)
    """
    import datasets

    check_least("batch_size", batch_size, 1)
    source = TableSource(dataset, dataset_options)
    arguments = {"columns": columns, "filter": filter, "batch_size": batch_size}
    schema = source.dataset.scanner(**arguments).projected_schema
    ids = [fragment.id for fragment in source.dataset.fragments]
    return datasets.IterableDataset.from_generator(
        _examples,
        features=datasets.Features.from_arrow_schema(schema),
        # The package splits lists among processes.
        gen_kwargs={"fragments": ids, "source": source, "arguments": arguments},
    )


def _examples(
    fragments: Sequence[int], source: TableSource, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for number in fragments:
        fragment = source.dataset.get_fragment(number)
        assert fragment is not None
        for batch in fragment.to_batches(**arguments):
            yield from batch.to_pylist()
