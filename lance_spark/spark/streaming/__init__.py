"""Streams: a table as the source or the sink of a streaming query."""
