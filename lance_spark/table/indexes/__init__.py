"""Index sections of manifests, and their updates by operations."""
