"""Files of secondary indexes: the layout, the writer and the search of each type."""
