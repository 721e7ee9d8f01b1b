"""Processes of tests: forks of a server that has imported the modules that the processes need. It
must not import pylance, whose threads do not survive a fork.

A test process has one such server, whose modules are those that were asked for last: so all are asked for here.
"""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.crash.operations",
        "tests.soak.worker",
        "tests.support.stores.killed",
        "tests.support.stores.shard_writers",
    ]
)
