"""Runs all cases, or those whose name contains the arguments, and prints the table of results."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from tests.interop.shadow.cases import CASES
from tests.interop.shadow.expected import EXPECTED
from tests.interop.shadow.outcomes import BOTH, DIFFERENT, FINE, MORE, REFUSED, SAME, compare


def main(words: list[str]) -> int:
    counts: dict[str, Counter[str]] = {}
    unexpected = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            if words and not any(word in str(case) for word in words):
                continue
            result, theirs, own = compare(case, Path(folder) / str(number))
            counts.setdefault(case.topic, Counter())[result] += 1
            wanted, reason = EXPECTED.get(str(case), (SAME, ""))
            is_expected = result == wanted or (wanted == SAME and result in FINE)
            if is_expected and wanted == SAME and not words:
                continue
            mark = "" if is_expected else "UNEXPECTED "
            unexpected += not is_expected
            print(f"{mark}{result}: {case}: {reason}")
            if mark or words:
                print(
                    f"  pylance: {theirs.value if theirs.error is None else repr(theirs.error)}"[
                        :600
                    ]
                )
                print(f"  here:    {own.value if own.error is None else repr(own.error)}"[:600])
    names = (SAME, BOTH, REFUSED, MORE, DIFFERENT)
    print(f"\n{'':12}" + "".join(f"{name:>13}" for name in names))
    for topic, results in counts.items():
        print(f"{topic:12}" + "".join(f"{results[name]:>13}" for name in names))
    total = sum(counts.values(), Counter())
    print(f"{'all':12}" + "".join(f"{total[name]:>13}" for name in names))
    return 1 if unexpected else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
