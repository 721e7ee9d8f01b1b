"""The table format: manifests, fragments, deletions, transactions, commits, references."""
