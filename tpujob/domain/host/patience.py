"""How long the check before a program may take. Pure."""

import math

#: Seconds on one host of few chips: JAX is read from a cold disk (20 to 30), libtpu starts the chips (10 to 30), two
#: small programs are compiled and run (10 to 20). *Inferred*
#: (live: preflight), with half as much again: no figures are published.
ONE_HOST = 90.0
#: Seconds more each time that the hosts double: all wait for the slowest one, in JAX's meeting and in the global sum,
#: and the slowest of many is slower. An estimate.
EACH_DOUBLING = 20.0
#: Seconds more for each chip: libtpu joins all chips of a slice into one topology before any of them can be used.
#: An estimate.
EACH_CHIP = 0.05
#: Seconds between the first and the last host of a slice that have fetched the same data. An estimate.
STAGING_APART = 600.0


def preflight_seconds(hosts: int, chips: int, *, staged: bool = False) -> float:
    """Seconds that the check of so many hosts with so many chips in all may take: 90 for one host of 4 chips, 223 for
    64 hosts of 256 chips, 495 for 1,024 hosts of 4,096 chips. What takes longer is late, which is not wrong. `staged`:
    data is brought to the hosts first, which some of them end before others."""
    plain = ONE_HOST + EACH_DOUBLING * math.log2(max(1, hosts)) + EACH_CHIP * chips
    return plain + (STAGING_APART if staged else 0.0)
