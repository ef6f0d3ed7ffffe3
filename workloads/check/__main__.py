"""`python -m workloads.check`: the check of any function, for `tpujob fit`. Standard input has a `Request` as JSON."""

import sys

from workloads.check.command import check_function

if __name__ == "__main__":
    check_function(sys.stdin.read())
