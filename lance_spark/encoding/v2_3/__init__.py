"""File version 2.3, read only: structure beside values. The version is not stable yet."""
