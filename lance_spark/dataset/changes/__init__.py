"""Methods of `Dataset` that change a whole table, merge rows or add columns from other rows."""
