"""Names of options about change feeds and streams, apart from what parses them: most reads and
writes have none.
"""

from __future__ import annotations

#: Of reads: which changes, and how much of them at a time.
FEED_NAMES = (
    "read_change_feed",
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    "max_fragments_per_trigger",
    "max_bytes_per_trigger",
    "skip_change_commits",
)
LOOKBACK = "lance.streaming.dedupe.lookback.versions"
#: Of streams that are written.
STREAM_NAMES = ("streaming_query_id", LOOKBACK)
#: The same in the habit of Spark's users.
SAME = {name.replace("_", ""): name for name in (*FEED_NAMES, "streaming_query_id")}
#: What Spark itself adds to the options of a stream.
OF_SPARK = frozenset({"checkpointlocation", "queryname"})
