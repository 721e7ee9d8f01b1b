"""Load: many processes on one table for a while; and `make soak`, which runs that, the faults and the hostile inputs."""
