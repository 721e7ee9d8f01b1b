"""Commits: transactions, the atomic creation of the next manifest, and conflict retries."""
