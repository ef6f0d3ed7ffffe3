"""What a bad physical host does to the programs that start on it. `workloads/contract/` defines the syntax."""

from tpujob.emulator.tpu.records import ApiError
from workloads.contract import faults

USUAL_HOST_FAULT = "nan:step=20,device=0"  #: for a bad host without a named fault


def check(fault: str) -> None:
    """Raises ApiError with the reason if programs would not understand it."""
    try:
        faults.parse(fault)
    except ValueError as error:
        usual = f"{USUAL_HOST_FAULT}, hang:step=20, oom:step=20, exit:step=20,code=1 or preflight:device=0"
        raise ApiError("INVALID_ARGUMENT", f"{error}; write it as {usual}") from error
