"""The system's clock."""

import time


class SystemClock:
    """Implements `ports.Clock`."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
