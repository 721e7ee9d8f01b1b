"""The Spark jobs that methods of `LanceTable` run."""
