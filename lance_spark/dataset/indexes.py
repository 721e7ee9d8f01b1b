"""The arguments of `Dataset` for indexes, as requests of builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import spelled
from lance_spark.indexes.builds import builder_of
from lance_spark.indexes.vectors.columns import METRIC_KEYS
from lance_spark.mutations.indexes.create import IndexConfig, IndexRequest, config_of

if TYPE_CHECKING:
    from lance_spark.table.open import OpenTable

#: The metric of an index of vectors by default, as pylance spells it.
_DEFAULT_METRIC = "L2"


def scalar_request(
    table: OpenTable,
    column: str,
    index_type: str | IndexConfig,
    options: Mapping[str, Any],
    **request: Any,
) -> IndexRequest:
    """Return the request of `Dataset.create_scalar_index`.

    Parameters
    ----------
    table : OpenTable
    column, index_type, options
        As the caller gave them.
    **request
        Other attributes of `IndexRequest`.

    Raises
    ------
    InvalidInputError
        The type is no type, or options are given beside a configuration.
    """
    if "format_version" in options and options["format_version"] is None:
        # pylance takes this parameter for all index types, and ignores None.
        options = {key: value for key, value in options.items() if key != "format_version"}
    config = config_of(index_type, options)
    return IndexRequest(
        column=spelled(table.schema.to_arrow(), column),
        index_type=config.index_type,
        options=config.parameters,
        **request,
    )


def vector_config(
    index_type: str | IndexConfig, options: Mapping[str, Any], **named: Any
) -> IndexConfig:
    """Return the type and all parameters of an index of vectors.

    Parameters
    ----------
    index_type, options
        As the caller gave them.
    **named
        Parameters of `Dataset.create_index` that are no options. None is left out.

    Raises
    ------
    InvalidInputError
        The type is no type of vectors.
    """
    config = config_of(index_type, options)
    if builder_of(config.index_type).train is None:
        raise InvalidInputError(
            f"index type {config.index_type!r} is not one of vectors: use create_scalar_index"
        )
    return _with_named(config, named)


def segment_config(
    index_type: str | IndexConfig, options: Mapping[str, Any], **named: Any
) -> IndexConfig:
    """Return the type and all parameters of a segment; see `vector_config`."""
    config = config_of(index_type, options)
    if builder_of(config.index_type).train is None:
        named["metric"] = None
    return _with_named(config, named)


def _with_named(config: IndexConfig, named: Mapping[str, Any]) -> IndexConfig:
    if named["metric"] == _DEFAULT_METRIC and any(key in config.parameters for key in METRIC_KEYS):
        # Another name of the parameter stands in the place of its default.
        named = {**named, "metric": None}
    given = {key: value for key, value in named.items() if value is not None}
    twice = sorted(given.keys() & config.parameters.keys())
    if twice:
        raise InvalidInputError(f"{twice[0]} is given twice: also in the parameters of the type")
    return IndexConfig(config.index_type, {**given, **config.parameters})


def one_column(column: str | Sequence[str]) -> str:
    """Return the name of the only column; pylance takes lists, too."""
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1:
        raise InvalidInputError(f"an index has one column, not {len(names)}")
    return names[0]
