"""Reports about tables for people: versions, fragments, data files, columns, pages, encodings.

`facts_of` collects a report about an open `Dataset`; `as_text` and `as_html` render it. Nothing is
changed, and only metadata is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark._lazy import lazy_exports

if TYPE_CHECKING:
    from lance_spark.inspect.collect import facts_of
    from lance_spark.inspect.html import as_html
    from lance_spark.inspect.pages import ColumnPages, PageFacts
    from lance_spark.inspect.report import (
        BaseFacts,
        ColumnTotal,
        FileFacts,
        FragmentFacts,
        IndexFacts,
        PartitionFacts,
        PastVersion,
        SchemaColumn,
        SegmentFacts,
        TableFacts,
        VersionFacts,
    )
    from lance_spark.inspect.text import as_text

__all__ = [
    "BaseFacts",
    "ColumnPages",
    "ColumnTotal",
    "FileFacts",
    "FragmentFacts",
    "IndexFacts",
    "PartitionFacts",
    "PageFacts",
    "PastVersion",
    "SchemaColumn",
    "SegmentFacts",
    "TableFacts",
    "VersionFacts",
    "as_html",
    "as_text",
    "facts_of",
]

if not TYPE_CHECKING:
    _MODULES = {
        "ColumnPages": "pages",
        "PageFacts": "pages",
        "as_html": "html",
        "as_text": "text",
        "facts_of": "collect",
    }
    __getattr__ = lazy_exports(
        globals(), {name: f"{__name__}.{_MODULES.get(name, 'report')}" for name in __all__}
    )
