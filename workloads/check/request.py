"""`python -m workloads.check.request`: the check of any function. Standard input has a `Request` as JSON."""

import sys

from workloads.check.command import check_function

if __name__ == "__main__":
    check_function(sys.stdin.read())
