"""Predicates with three truth values: parsed, typed by the rules of Spark, evaluated on batches."""
