"""BLOOMFILTER indexes: a filter of the values of each zone."""
