"""Names of options about what a write means for the rows and columns that there are, apart from
what parses them: most have none.
"""

from __future__ import annotations

RULE_NAMES = (
    "merge_schema",
    "txn_app_id",
    "txn_version",
    "replace_where",
    "partition_overwrite_mode",
    "partition_by",
    # Of the optimizer rule, which tells the settings that `replace_where` is read by.
    "session_settings",
)
#: The same in the habit of Spark's users.
SAME = {name.replace("_", ""): name for name in RULE_NAMES}
