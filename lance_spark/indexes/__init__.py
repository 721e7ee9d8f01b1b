"""Types of indexes: each has its files, search, build, merge and check in one folder.

`registry` names the types and, by dotted path, what each of them has. The planner of scans, builds,
compactions and checks know no type: they ask the registry for a *part* of a type, which is imported
then. So a read of a plain table imports no index, and a type whose folder is absent is only
missed by tables that have such an index.

To add a type of index, write a folder here, and an entry in `registry`:

| part of an entry | class or signature | asked by |
| --- | --- | --- |
| `search` | `IndexSearch` in `indexes.search` | filters: rows for which a comparison holds |
| `zones` | `ZoneSearch` in `indexes.search` | filters: zones that may have such rows |
| `documents` | `DocumentIndex` in `indexes.search` | filters, builds |
| `bounds` | `ReadBounds` in `indexes.search` | minimum, maximum and count without a scan |
| `zone_statistics` | `ReadZones` in `indexes.search` | the same, from zones |
| `held_fragments` | `HeldFragments` in `indexes.search` | wrong bitmaps |
| `builders` | `Builder` in `indexes.builds` | creation, extension, merge |
| `remapping` | `Remapping` in `indexes.address_map` | compactions, which move rows |
| `check` | `SegmentCheck` in `indexes.checks` | checks against the column |
| `described` | `Described` in `indexes.details` | listings, statistics |
| `prewarm` | `Prewarm` in `indexes.details` | `Dataset.prewarm_index` |

All parts are optional. A type without `search`, `zones` and `documents` answers no filters, and one
without `builders` cannot be created.
"""
