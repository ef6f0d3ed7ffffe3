"""A slice on the emulated Cloud TPU, asked for and looked at through the port."""

from tests.support.records import a_slice
from tests.support.tpu_rig import Cloud, until
from tests.support.waiting import LONG
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, SliceState
from tpujob.emulator import inject
from tpujob.ports import Slices

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample tpujob"
SLICE = a_slice(name="tj-000007-1")


def ask(
    slices: Slices, slice: Slice = SLICE, job_id: str = "000007", timeout: float = LONG
) -> None:
    slices.create(slice, job_id=job_id, public_key=KEY, timeout=timeout)


def look(slices: Slices, slice: Slice = SLICE) -> SliceSeen:
    return slices.look(slice, timeout=LONG)


def wait_for(slices: Slices, state: SliceState, slice: Slice = SLICE) -> Present:
    def there() -> Present | None:
        seen = look(slices, slice)
        return seen if isinstance(seen, Present) and seen.state is state else None

    present = until(there, f"{slice.name} {state}")
    assert present is not None
    return present


def gone(slices: Slices, slice: Slice = SLICE) -> None:
    until(lambda: look(slices, slice) == Absent(), f"{slice.name} absent")


def fail(cloud: Cloud, method: str, code: str, when: str = "pre", message: str = "") -> None:
    cloud.do(inject.api_error, method, code, after=when == "post", message=message)
