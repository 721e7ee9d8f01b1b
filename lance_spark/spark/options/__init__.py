"""Parsers of the options of reads and writes."""
