"""Index sections of a manifest, and how operations keep them right."""
