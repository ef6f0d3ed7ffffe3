"""What a bad physical host does to the programs that land on it. How it is written is said in `workloads/contract/`."""

from __future__ import annotations

from tpujob.emulator.tpu.records import ApiError
from workloads.contract import faults

USUAL = "nan:step=20,device=0"  #: where none is named


def check(fault: str) -> None:
    """Raises ApiError, saying what is wrong with it."""
    try:
        faults.parse(fault)
    except ValueError as error:
        usual = f"{USUAL}, hang:step=20, oom:step=20, exit:step=20,code=1 or preflight:device=0"
        raise ApiError("INVALID_ARGUMENT", f"{error}; write it as {usual}") from error
