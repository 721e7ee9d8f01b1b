"""The types of indexes whose segments can be merged from their files."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.mutations.indexes.merging import btree, keyed, zoned
from lance_spark.mutations.indexes.merging.sources import Merging

MERGINGS: Mapping[str, Merging] = {
    "BTREE": Merging(btree.can_merge, btree.merge),
    "BITMAP": Merging(keyed.can_merge_bitmaps, keyed.merge_bitmaps),
    "LABEL_LIST": Merging(keyed.can_merge_lists, keyed.merge_lists),
    "NGRAM": Merging(keyed.can_merge_ngrams, keyed.merge_ngrams),
    "ZONEMAP": Merging(zoned.can_merge_zone_maps, zoned.merge_zone_maps),
    "BLOOMFILTER": Merging(zoned.can_merge_filters, zoned.merge_filters),
}
