"""The parameters of existing indexes, with which new segments of them are written."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from lance_spark.errors import CorruptFileError
from lance_spark.scan.indexes import rtree
from lance_spark.scan.indexes.btree import LOOKUP_FILE, rows_of_page
from lance_spark.scan.indexes.files import IndexFiles, number_in
from lance_spark.scan.indexes.zoned import bloom_filter, zone_map, zones


def of_btree(files: IndexFiles) -> dict[str, Any]:
    """Return the rows of a page."""
    with closing(files.open(LOOKUP_FILE)) as lookup:
        return {"zone_size": rows_of_page(lookup)}


def of_zone_map(files: IndexFiles) -> dict[str, Any]:
    """Return the rows of a zone."""
    with closing(files.open(zone_map.FILE)) as file:
        return {"rows_per_zone": number_in(file, "rows_per_zone", zones.DEFAULT_ROWS)}


def of_bloom_filter(files: IndexFiles) -> dict[str, Any]:
    """Return the rows of a filter, and the probability of an answer in vain."""
    with closing(files.open(bloom_filter.FILE)) as file:
        rows = number_in(file, "bloomfilter_item", zones.DEFAULT_ROWS)
        text = file.schema.metadata.get("bloomfilter_probability", b"")[:40]
    try:
        probability = float(text) if text else bloom_filter.DEFAULT_PROBABILITY
    except ValueError:
        raise CorruptFileError(
            f"{file.source.name}: bloomfilter_probability={text!r} must be a number; rebuild the "
            "index"
        ) from None
    return {"number_of_items": rows, "probability": probability}


def of_rtree(files: IndexFiles) -> dict[str, Any]:
    """Return the rows of a page."""
    with closing(files.open(rtree.FILE)) as file:
        return {"page_size": rtree.page_size_of(file)}
