"""For training programs, on every host: `from tpujob_events import tell`. Standard library only, Python 3.8 and later.

The agent adds this package's folder to the end of PYTHONPATH, so that it replaces no module of the program. It imports
nothing of tpujob: a copy beside a program works anywhere. The modules beside this file are each for one trainer.
"""

import json
import os
import signal
import sys
import time
from typing import Any, List

INTERRUPTED = 75  #: the exit code after a save that `stopping` asked for: run me again

_stops: List[int] = []  # SIGTERM, each time that it arrived
_state = {"handles_stops": False, "has_warned": False}


def tell(kind: str, /, **facts: Any) -> None:
    """Append one fact to `events.jsonl` in TPUJOB_OUT; outside tpujob in `./run`. Kinds: `step` (step, steps, loss),
    `checkpoint` (step), `resume` (step), `metric` (name, value), `phase` (name). Reading a scalar of JAX or PyTorch
    waits for its device. A file that cannot be written ends nothing: stderr has the reason, once."""
    record = {"t": round(time.time(), 3), "kind": kind, **facts}
    line = json.dumps(record, default=_as_plain) + "\n"
    folder = os.environ.get("TPUJOB_OUT") or "run"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "events.jsonl"), "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        if not _state["has_warned"]:
            _state["has_warned"] = True
            sys.stderr.write("going on, though not all is reported: %s\n" % error)


def stopping() -> bool:
    """Return whether SIGTERM has arrived: save now, and end with INTERRUPTED. The first call, on the main thread,
    begins to handle the signal; an earlier handler of the program is called, too."""
    if not _state["handles_stops"]:
        earlier = signal.getsignal(signal.SIGTERM)

        def handle(number: int, frame: Any) -> None:
            _stops.append(number)
            if callable(earlier):
                earlier(number, frame)

        signal.signal(signal.SIGTERM, handle)
        _state["handles_stops"] = True
    return bool(_stops)


def _as_plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
