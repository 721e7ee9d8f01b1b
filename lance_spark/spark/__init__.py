"""The Spark data source: the only room that imports pyspark."""
