"""Kernels: they compute arrays from arrays, with Arrow or NumPy, as Spark computes each value."""
