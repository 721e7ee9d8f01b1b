"""Processes of tests: forks of one that has imported what they need, once, and no pylance, whose threads forks do not survive.

A test process has one such server, whose modules are those that were asked for last: so all are asked for here.
"""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.crash.operations", "tests.soak.worker", "tests.support.stores.killed"]
)
