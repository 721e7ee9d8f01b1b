"""Option names for partial overwrites, schema merging and repeated writes.

Their parser is another module, because most writes set none of these options.
"""

from __future__ import annotations

RULE_NAMES = (
    "merge_schema",
    "txn_app_id",
    "txn_version",
    "replace_where",
    "partition_overwrite_mode",
    "partition_by",
    # From the optimizer rule: the session settings, which the parser of `replace_where` needs.
    "session_settings",
)
#: The spelling without underscores, which Spark users expect.
SAME = {name.replace("_", ""): name for name in RULE_NAMES}
