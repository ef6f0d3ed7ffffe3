"""How far an attempt is on a host, and the notices that a host gets from its cloud."""

from enum import Enum


class Phase(str, Enum):
    """In the order in which an attempt goes through them; `stopping` may be left out, as any but the last."""

    FETCHING = "fetching"  #: bundles come from the bucket, the host is taken over
    SETUP = "setup"  #: mounts, the environment, the job's own set-up
    CLEARING = "clearing"  #: whatever holds the TPU is ended
    PREFLIGHT = "preflight"  #: devices and hosts are checked
    RUNNING = "running"  #: the program runs
    STOPPING = "stopping"  #: it was told to stop
    EXITED = "exited"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(str(self.value), form)


PREEMPTED = "preempted"
MAINTENANCE = "maintenance"
NOTICES = ("", PREEMPTED, MAINTENANCE)
