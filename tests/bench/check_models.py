"""Llamas of 1.24B and 8B, compiled for real slices without a TPU, against the memory that they may
take. Needs the extra `check`, 6 GB of memory and, on two cores, about five minutes."""

import subprocess
import sys

from pydantic import TypeAdapter

from workloads.check import report
from workloads.check.command import code_of
from workloads.check.finding import GIB, Finding

ONE_B = ["--preset=1b", "--stacked", "--remat=full", "--sequence=2048", "--fsdp=0"]
EIGHT_B = ["--preset=8b", "--stacked", "--remat=full", "--sequence=4096", "--fsdp=0"]
#: arguments, targets, and the GiB of a chip that they may take at one row a chip
MODELS = [(ONE_B, {"v4-128": 6.0, "v5e-16": 4.0}), (EIGHT_B, {"v5p-128": 12.0})]


def check(arguments: list[str], targets: list[str]) -> list[Finding]:
    command = [sys.executable, "-m", "workloads.lm", *arguments, f"--check={','.join(targets)}"]
    command += ["--check-batch-per-chip=1", "--check-tokens=10B", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return TypeAdapter(list[Finding]).validate_json(done.stdout)


def main() -> int:
    """Print the tables, and what is over its limit; return 0 if nothing is."""
    wrong: list[str] = []
    for arguments, limits in MODELS:
        findings = check(arguments, list(limits))
        work = report.Work(10e9, "tokens")
        sys.stdout.write(report.page(" ".join(["lm", *arguments]), findings, work) + "\n\n")
        if code_of(findings):
            wrong += [f"{f.target}: {f.reason}" for f in findings if f.fit != "yes"]
        for finding in findings:
            takes = finding.program.peak_bytes / GIB if finding.program else 0
            limit = limits[finding.target]
            if takes > limit:
                wrong.append(f"{finding.target}: {takes:.2f} GiB of {limit} that it may take")
    sys.stdout.write("\n".join(wrong) + "\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
