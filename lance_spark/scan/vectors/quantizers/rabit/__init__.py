"""RQ (RaBitQ): residuals are rotated at random, and stored by the signs and sizes of dimensions."""
