"""A folder on the path of Spark's Python processes for this format, and of no others."""

#: The property of the JVM that has the path of the folder.
PROPERTY = "org.lancespark.startup"
