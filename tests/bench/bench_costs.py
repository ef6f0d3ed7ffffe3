"""Count again what an hour of a job costs beside its slices: the table of docs/cost.md.

Run: python -m tests.bench.bench_costs [HOSTS ...]. `tests/support/costed_hour.py` describes what is counted.
"""

import sys

from tests.support.costed_hour import CASES, HEAD


def main() -> None:
    sizes = {int(word) for word in sys.argv[1:]}
    print("\n".join(HEAD))
    for case in CASES:
        if case.hosts in sizes or not sizes:
            print(case.row(case.played()), flush=True)


if __name__ == "__main__":
    main()
