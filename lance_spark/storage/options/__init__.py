"""Storage options, as other Lance clients spell them, and the arguments of fsspec they become."""
