"""Token dictionaries as finite state transducers."""
