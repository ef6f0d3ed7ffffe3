"""What an hour of a job costs beside its slices: the table of docs/cost.md, counted again.

Run: python -m tests.bench.bench_costs [HOSTS ...]. What is counted, and how: `tests/support/costed_hour.py`.
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
