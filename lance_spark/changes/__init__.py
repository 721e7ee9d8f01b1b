"""Changes of rows and columns that need a scan or new files: planned, run on any number of workers, committed once."""
