"""The model as the emulator serves it: under a lock, with failing calls, pages of lists, and counts of calls."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tpujob.emulator.cloud.records import Latencies
from tpujob.emulator.cloud.stock import HOSTS_PER_GENERATION, HostStock
from tpujob.emulator.cloud.world import World
from tpujob.emulator.storage import StorageFaults
from tpujob.emulator.storage.faults import Billed


@dataclass(slots=True)
class CallFault:
    """A fault of the next `count` calls of a method, which fail before or after they take effect."""

    method: str  #: `CreateNode`; `*`: any
    code: str  #: name of a gRPC status; `OK`: only the delay
    count: int
    when: Literal["pre", "post"] = "pre"
    delay_s: float = 0.0  #: how long the call hangs first
    message: str = ""


@dataclass(slots=True)
class CallFaults:
    """The faults of calls in force, the oldest first."""

    pending: list[CallFault] = field(default_factory=list[CallFault])

    def take(self, method: str) -> CallFault | None:
        """Return the fault for this call, if any, and count the fault down."""
        for fault in self.pending:
            if fault.method in ("*", method):
                fault.count -= 1
                if fault.count <= 0:
                    self.pending.remove(fault)
                return fault
        return None


class ServedWorld(World):
    """The model for several threads: every caller holds `lock`."""

    def __init__(
        self,
        clock: Callable[[], float],
        latencies: Latencies | None = None,
        *,
        hosts_per_generation: int = HOSTS_PER_GENERATION,
        page_size: int = 1000,
        host_env: Mapping[str, str] | None = None,
        storage_faults: StorageFaults | None = None,
        billed: Billed | None = None,
    ) -> None:
        """`storage_faults`, `billed`: the emulated storage's faults, and its counter of billed requests."""
        super().__init__(clock, latencies, stock=HostStock(hosts_per_generation), host_env=host_env)
        self.lock = threading.Condition()  #: notified when a timer or an effect is added
        self.page_size = page_size  #: maximal length of one page of a list
        self.call_faults = CallFaults()
        self.storage_faults = storage_faults or StorageFaults()
        self.billed = billed or Billed()
        self.calls: Counter[str] = Counter()  #: number of calls of this API, by method

    def has_work(self) -> None:
        self.lock.notify_all()
