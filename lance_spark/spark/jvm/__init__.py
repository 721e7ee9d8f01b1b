"""What runs in the JVM of Spark: Java sources, how they are compiled and loaded, `enable`."""
