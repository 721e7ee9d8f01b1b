"""DataFrames of pandas, with blobs as files, bytes or descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.dataset.blobs import open_blobs
from lance_spark.dataset.scan_keywords import ScanKeywords
from lance_spark.errors import InvalidInputError
from lance_spark.predicates.tree import Column
from lance_spark.scan.blob_files import DEFAULT_BUFFER_SIZE
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS

if TYPE_CHECKING:
    import pandas as pd

_MODES = ("lazy", "bytes", "descriptions")


def to_pandas(scanner: Any, options: Mapping[str, Any], blob_mode: str) -> pd.DataFrame:
    """Return the rows of a scan as a DataFrame; see `Dataset.to_pandas`.

    - `scanner`: The class imports this module.
    - `options`: Arguments of `pyarrow.Table.to_pandas`.
    """
    try:
        import pandas  # noqa: F401 - the conversion of pyarrow needs it
    except ImportError:
        raise InvalidInputError("to_pandas needs the package pandas; install it") from None
    if blob_mode not in _MODES:
        raise InvalidInputError(f"blob_mode must be one of {', '.join(_MODES)}, not {blob_mode!r}")
    if blob_mode == "bytes":
        table = _changed(scanner, blob_handling="all_binary").to_table()
        return table.to_pandas(**options)
    blobs = _blob_columns(scanner) if blob_mode == "lazy" else {}
    if not blobs:
        return scanner.to_table().to_pandas(**options)
    is_wanted = ROW_ADDRESS.name in scanner.projected_schema.names
    table = (scanner if is_wanted else _changed(scanner, with_row_address=True)).to_table()
    addresses = table[ROW_ADDRESS.name].to_numpy()
    order = [name for name in table.column_names if is_wanted or name != ROW_ADDRESS.name]
    frame = table.select([name for name in order if name not in blobs]).to_pandas(**options)
    for name, column in blobs.items():
        files = open_blobs(scanner._reader, column, {"addresses": addresses}, DEFAULT_BUFFER_SIZE)
        frame.insert(order.index(name), name, files)
    return frame


def parted(
    options: Mapping[str, Any], scan: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those arguments that are of a function that scans, and the others."""
    names = inspect.signature(scan).parameters
    own = {name: value for name, value in options.items() if name in names}
    return own, {name: value for name, value in options.items() if name not in names}


def _changed(scanner: Any, **options: Unpack[ScanKeywords]) -> Any:
    return type(scanner)(scanner._reader, scanner._request.with_options(**options))


def _blob_columns(scanner: Any) -> dict[str, str]:
    """Return the blob columns of a scan, which are top-level columns, by their names in it."""
    request = scanner._request
    if request.computed is not None:
        return {
            name: value.path[0].name
            for name, value in request.computed.values.items()
            if isinstance(value, Column) and len(value.path) == 1 and value.path[0].is_blob
        }
    names = request.columns
    return {
        field.name: field.name
        for field in scanner._reader.table.schema.fields
        if field.is_blob and (names is None or field.name in names)
    }
