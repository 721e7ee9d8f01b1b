"""Which documents match a query, and their scores."""
