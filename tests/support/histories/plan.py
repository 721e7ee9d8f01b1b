"""The steps of a random history, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.histories.steps import MAKERS

FRESH = 0
#: How many versions before the newest version a change is planned.
AGES = (FRESH,) * 8 + (1, 1, 2, 3)
#: Steps that are not a change of one version, with how often they are chosen.
OTHERS = {"restore": 1, "tag": 1, "branch": 1, "cleanup": 1, "clone": 1, "late_append": 3}

#: Other weights in histories of tables with vectors.
VECTOR_WEIGHTS = {
    "add_column": 1,
    "compact": 6,
    "create_index": 2,
    "optimize_indices": 6,
    "replace_data": 4,
    "restore": 2,
    "update_columns": 6,
}


@dataclass(frozen=True)
class Step:
    """A step: the change, the client, the seed, and how many versions ago it was planned."""

    kind: str
    ours: bool
    seed: int
    age: int

    def __str__(self) -> str:
        return (
            f"{self.kind} by {'us' if self.ours else 'pylance'}, seed {self.seed}, age {self.age}"
        )


@dataclass(frozen=True)
class Plan:
    """All steps of a history; of a table with an index of vectors from the start, if it says so."""

    seed: int
    steps: tuple[Step, ...]
    has_vectors: bool = False

    @classmethod
    def of_seed(cls, seed: int, *, has_vectors: bool = False) -> Plan:
        random = Random(seed)
        makers = {maker.__name__: weight for maker, weight in MAKERS.items()}
        weights = {**makers, **OTHERS, **(VECTOR_WEIGHTS if has_vectors else {})}
        stale = random.random() < 0.6
        steps = [
            Step(
                random.choices(list(weights), list(weights.values()))[0],
                random.random() < 0.5,
                random.randrange(1 << 30),
                random.choice(AGES) if stale else FRESH,
            )
            for _ in range(random.randrange(15, 31))
        ]
        return cls(seed, tuple(steps), has_vectors)
