"""DataFrames of pandas, with blobs as files, bytes or descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS

if TYPE_CHECKING:
    import pandas as pd

    from lance_spark.dataset.scanning.methods import ScannerMethods

_MODES = ("lazy", "bytes", "descriptions")


def to_pandas(dataset: ScannerMethods, options: Mapping[str, Any], blob_mode: str) -> pd.DataFrame:
    """Return rows as a DataFrame; see `Dataset.to_pandas`.

    Parameters
    ----------
    options : mapping
        Arguments of `Dataset.to_table` and of `pyarrow.Table.to_pandas`.
    """
    try:
        import pandas  # noqa: F401 - the conversion of pyarrow needs it
    except ImportError:
        raise InvalidInputError("to_pandas needs the package pandas; install it") from None
    if blob_mode not in _MODES:
        raise InvalidInputError(f"blob_mode must be one of {', '.join(_MODES)}, not {blob_mode!r}")
    names = inspect.signature(dataset.scanner).parameters
    scan = {name: value for name, value in options.items() if name in names}
    others = {name: value for name, value in options.items() if name not in names}
    if blob_mode == "bytes":
        return dataset.to_table(**{**scan, "blob_handling": "all_binary"}).to_pandas(**others)
    blobs = _blob_columns(dataset, scan) if blob_mode == "lazy" else []
    if not blobs:
        return dataset.to_table(**scan).to_pandas(**others)
    is_wanted = bool(scan.get("with_row_address")) or ROW_ADDRESS.name in (
        scan.get("columns") or ()
    )
    table = dataset.to_table(**scan if is_wanted else {**scan, "with_row_address": True})
    addresses = table[ROW_ADDRESS.name].to_numpy()
    order = [name for name in table.column_names if is_wanted or name != ROW_ADDRESS.name]
    frame = table.select([name for name in order if name not in blobs]).to_pandas(**others)
    for name in blobs:
        files = dataset.take_blobs(name, addresses=addresses)
        frame.insert(order.index(name), name, files)
    return frame


def _blob_columns(dataset: ScannerMethods, scan: Mapping[str, Any]) -> list[str]:
    """Return the blob columns of a scan, which are top-level columns."""
    schema = dataset._table.schema
    names = scan.get("columns")
    if isinstance(names, Mapping):
        names = [name for name, text in names.items() if name == text]
    return [
        field.name
        for field in schema.fields
        if field.is_blob and (names is None or field.name in names)
    ]
