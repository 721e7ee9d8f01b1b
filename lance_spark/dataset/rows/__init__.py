"""Methods of `Dataset` that return rows in other forms: samples, DataFrames, bytes, SQL."""
