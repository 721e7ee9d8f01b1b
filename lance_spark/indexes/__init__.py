"""Types of indexes: each has its files, search, build, merge and check in one folder.

`registry` names the types and, by dotted path, what each of them has. The planner of scans, builds,
compactions and checks know no type: they ask the registry for a *part* of a type, which is imported
then. So a read of a plain table imports no index, and a type whose folder is absent is only
missed by tables that have such an index.

To add a type of index, write a folder here, and an entry in `registry`:

| part of an entry | class or signature | asked by |
| --- | --- | --- |
| `search` | `scan.indexes.search.IndexSearch` | filters: rows for which a comparison holds |
| `zones` | `scan.indexes.search.ZoneSearch` | filters: zones that may have such rows |
| `documents` | `scan.indexes.search.DocumentIndex` | filters and builds of values in documents |
| `bounds` | `scan.pruning.bounds.ReadBounds` | minimum, maximum and count without a scan |
| `zone_statistics` | `scan.pruning.bounds.ReadZones` | the same, from zones |
| `held_fragments` | `scan.pruning.bounds.HeldFragments` | bitmaps that other clients got wrong |
| `builders` | `mutations.indexes.builder.Builder` | creation, extension and merge of segments |
| `remapping` | `mutations.compaction.address_map.Remapping` | compactions, which move rows |
| `check` | `mutations.indexes.checks.rows.SegmentCheck` | checks against the column |
| `described` | `mutations.indexes.existing.Described` | listings, statistics |
| `prewarm` | `mutations.indexes.existing.Prewarm` | `Dataset.prewarm_index` |

All parts are optional. A type without `search`, `zones` and `documents` answers no filters, and one
without `builders` cannot be created.
"""
