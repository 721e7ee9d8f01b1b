"""Ways to read from stores: prefetched, in parallel, and several files as one."""
