"""Elastic jobs: at each start, the size of slice that is worth its wait. Pure.

A smaller slice has a part s of the chips and, about, of the speed. To begin on it at once is better than to wait W for
the largest one if W > d + x/s, where d is the time of a start and x what a later change of slices costs beyond that.
How long a wait will be is not known. So a job waits for d + x/s and then takes the smaller slice.
"""

from tpujob.domain.hardware import accelerators
from tpujob.domain.spec import JobSpec

#: seconds from the answer to a request until the first step, and what a change of slices costs beyond that
START, CHANGE = 720.0, 120.0


def times_smaller(spec: JobSpec, type: str) -> int:
    """Return how often a slice of that type fits the largest one of an elastic job; 1 for every other job."""
    if not spec.tpu.elastic:
        return 1
    return accelerators.find(spec.tpu.types[0]).chips // accelerators.find(type).chips


def patience(spec: JobSpec, type: str) -> float:
    """Return the seconds that an elastic job waits for larger slices before it requests this type; 0 for the largest,
    and for every other job."""
    times = times_smaller(spec, type)
    return START + CHANGE * times if times > 1 else 0.0
