"""Reasons why an outcome may differ from that with Parquet: the file `reasons.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.spark_suites.outcomes import Outcome

#: The pattern of all files.
ANY = "*"
REASONS = Path(__file__).with_name("reasons.toml")


@dataclass(frozen=True)
class Reason:
    """A reason, with the differences that it explains: all that is given must match.

    - `file`: Pattern of the file of a statement, or the module of a test, as in a shell.
    - `text`: Regular expression that is found in the statement, or in the name of the test.
    - `differs`: Regular expression that is found in the difference.
    """

    reason: str
    file: str = ANY
    text: str = ""
    differs: str = ""

    def explains(self, outcome: Outcome, difference: str) -> bool:
        """Return whether this is the reason of a difference."""
        return (
            fnmatch(outcome.file, self.file)
            and re.search(self.text, outcome.text, re.IGNORECASE) is not None
            and re.search(self.differs, difference) is not None
        )


@dataclass
class Reasons:
    """All reasons, and how often each explained a difference."""

    reasons: list[Reason]
    uses: dict[Reason, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = REASONS) -> Reasons:
        """Read a file of reasons."""
        entries = tomllib.loads(path.read_text()).get("reason", [])
        return cls([Reason(**entry) for entry in entries])

    def find(self, outcome: Outcome, difference: str) -> str:
        """Return the first reason of a difference; empty if there is none."""
        for reason in self.reasons:
            if reason.explains(outcome, difference):
                self.uses[reason] = self.uses.get(reason, 0) + 1
                return reason.reason
        return ""

    def unused(self, files: set[str], is_all: bool) -> list[Reason]:
        """Return the reasons that explained nothing, of those for files that were run.

        - `is_all`: Whether all files were run, so that a reason for any file has to explain something.
        """
        return [
            reason
            for reason in self.reasons
            if reason not in self.uses
            and (is_all or reason.file != ANY)
            and any(fnmatch(file, reason.file) for file in files)
        ]
