"""NGRAM indexes: the rows of each trigram of texts."""
