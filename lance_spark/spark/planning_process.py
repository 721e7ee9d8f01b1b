"""The Python processes in which Spark plans data sources.

Spark forks such a process for each step of planning, uses it for many queries, and collects all
garbage after each. The modules of pyspark, Arrow and this package have some hundred thousand
objects, so that the collection takes longer than the plan of a small query, and the next step waits
for it.
"""

from __future__ import annotations

import gc
import sys

#: First argument of the process: pyspark's module that runs the step.
_STEPS = "pyspark.sql.worker."
#: The number of modules that were loaded when objects were left out last.
_frozen = {"modules": 0}


def leave_modules_uncollected() -> None:
    """Leave the objects of loaded modules out of the collection of garbage, in such a process.

    It is called when a step begins, while no table is open. The collector keeps what it does not
    look at, so that other processes, such as a driver or a task, are left as they are.
    """
    if len(sys.modules) != _frozen["modules"] and is_planning_process():
        _frozen["modules"] = len(sys.modules)
        gc.freeze()


def is_planning_process() -> bool:
    """Return whether Spark started this process to plan data sources."""
    return len(sys.argv) > 1 and sys.argv[1].startswith(_STEPS)
