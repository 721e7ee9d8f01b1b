"""RTREE indexes: the boxes of geometries."""
