"""INVERTED indexes rewritten with the row addresses after a compaction.

`lance_spark.scan.text.files.index` has the layout of the files. Deleted rows are left out of the
postings, which are decoded for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from google.protobuf.message import DecodeError

from lance_spark.mutations.compaction.address_map import AddressMap, Remapping, rewritten
from lance_spark.mutations.indexes import text
from lance_spark.proto import index_old_pb2, table_pb2
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.text.files.part_writer import MAX_FORMAT, default_format
from lance_spark.scan.text.files.postings import PostingFormat
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.text.files.stored_parts import StoredPart
from lance_spark.scan.text.parameters import BLOCK_SIZE, TOKENIZERS, TextParameters
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths


def can_remap_text(index: table_pb2.IndexMetadata) -> bool:
    """Return whether this release writes the format of a segment of type INVERTED."""
    try:
        details = index_old_pb2.InvertedIndexDetails.FromString(index.index_details.value)
    except DecodeError:
        return False
    code = details.code_config
    return (
        details.base_tokenizer in TOKENIZERS
        and not (code.split_identifiers or code.index_operators)
        and not details.document_granularity
        and details.block_size == BLOCK_SIZE
        and default_format(TextParameters()) <= details.posting_format_version <= MAX_FORMAT
        # The writer makes a tokenizer, although it splits no text.
        and (not details.stem or find_spec("Stemmer") is not None)
    )


def remap_text(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    Parameters
    ----------
    paths : TablePaths
    index : table_pb2.IndexMetadata
        A segment of type INVERTED.
    address_map : AddressMap
    version : tuple of int
        File version of the table.
    parts : sequence of object
        None: no task builds a part.

    Returns
    -------
    RewrittenIndex or None
        None if this release does not write the format of the segment.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    files = IndexFiles(paths, index)
    parameters = text.existing(files)
    _, existing = open_index(files)
    if any(part.layout.posting_format != PostingFormat() for part in existing):
        return None
    stored = (
        StoredPart(part, *address_map.new_addresses(part.documents.row_ids)) for part in existing
    )
    with SegmentWriter(paths, version) as segment:
        text.write(segment, (), parameters, stored)
        written = segment.finish()
    return rewritten(index, segment, written)


REMAPPING = Remapping(remap_text, can_remap_text)
