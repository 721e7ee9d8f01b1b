"""The files of INVERTED indexes: postings, positions, token dictionaries."""
