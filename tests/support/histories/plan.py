"""What happens in a random history: its steps, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.histories.steps import MAKERS

FRESH = 0
#: Changes are planned on versions so much older than the newest one.
AGES = (FRESH,) * 8 + (1, 1, 2, 3)
#: Kinds of steps that are no change of one version alone, with how often they are chosen.
OTHERS = {"restore": 1, "tag": 1, "branch": 1, "cleanup": 1, "clone": 1, "late_append": 3}


@dataclass(frozen=True)
class Step:
    """What is done, by whom, with which randomness, planned how many versions ago."""

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
    """A whole history before it happens."""

    seed: int
    steps: tuple[Step, ...]

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        random = Random(seed)
        makers = {maker.__name__: weight for maker, weight in MAKERS.items()}
        weights = {**makers, **OTHERS}
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
        return cls(seed, tuple(steps))
