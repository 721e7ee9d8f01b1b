"""BTREE indexes: values in order, in pages."""
