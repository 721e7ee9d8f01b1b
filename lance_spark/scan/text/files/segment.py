"""Opens a segment of an INVERTED index, in any format."""

from __future__ import annotations

from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.text.files.first_format import FirstFormatPart
from lance_spark.scan.text.files.index import TextIndexPart
from lance_spark.scan.text.files.layout import FIRST_FORMAT, layout_of
from lance_spark.scan.text.parameters import TextParameters


def open_index(files: IndexFiles) -> tuple[TextParameters, list[TextIndexPart]]:
    """Return the parameters and the parts of a segment.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    UnsupportedFeatureError
        The segment has a tokenizer, or a format, that this release does not know.
    """
    layout = layout_of(files)
    part = FirstFormatPart if layout.format_version == FIRST_FORMAT else TextIndexPart
    return layout.parameters, [part(files, number, layout) for number in layout.parts]
