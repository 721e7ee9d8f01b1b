"""ZONEMAP indexes: bounds and counts of zones."""
