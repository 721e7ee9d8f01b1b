"""LABEL_LIST indexes: a set of rows for each item of lists."""
