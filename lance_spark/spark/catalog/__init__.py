"""Tables by name: the functions that the catalog in the JVM calls (`calls`)."""
