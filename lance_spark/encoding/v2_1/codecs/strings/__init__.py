"""Codecs of strings and binary values: compressed by a symbol table, or by a general compressor."""
