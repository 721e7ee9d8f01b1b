"""Methods of `Dataset` with the names of pylance, compared with pylance."""
