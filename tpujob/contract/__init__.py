"""The contract between tpujob and the programs that it runs: variables, exit codes, events, faults.

Standard library only, Python 3.8 and later: it travels with the agent and with the bundled programs. What backend and
agent agree on is `tpujob/protocol/`; `workloads/frame/` has the frame of programs.
"""

from tpujob.contract import faults
from tpujob.contract.context import OUT, PREFIX, ProgramContext
from tpujob.contract.events import DONE, EVENTS, REPLAY, VERDICT, Blame, Reporter
from tpujob.contract.exits import Exit
from tpujob.contract.faults import Fault

__all__ = [
    "DONE",
    "EVENTS",
    "OUT",
    "PREFIX",
    "REPLAY",
    "VERDICT",
    "Blame",
    "Exit",
    "Fault",
    "ProgramContext",
    "Reporter",
    "faults",
]  # fmt: skip
