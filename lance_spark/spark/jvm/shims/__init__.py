"""What is private in Spark and py4j, in Java and in Python, and what differs between releases.

| file | |
| --- | --- |
| `SparkRelease.java`, in a folder for each release | what differs between releases |
| `SparkShims.java` | methods and fields that are private, or not callable from Spark's compiler |
| `SparkField.java` | fields of case classes that are read or replaced by their names |
| `SparkClasses.java` | classes that are told apart by their names |
| `pyspark_names.py` | the same of pyspark and py4j |

`tests/spark/jvm/test_shims.py` says for each use what Spark has to have.
"""
