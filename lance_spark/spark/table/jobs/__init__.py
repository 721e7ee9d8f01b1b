"""The Spark jobs behind the methods of `LanceTable`."""
