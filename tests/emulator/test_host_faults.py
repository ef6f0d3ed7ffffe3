"""Which faults a physical host can be given, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from tpujob.emulator.tpu import host_faults
from tpujob.emulator.tpu.records import ApiError


@pytest.mark.parametrize(
    "fault",
    [
        host_faults.USUAL,
        "nan:step=0",
        "nan:step=7,device=3,transient=1,where=data",
        "nan:where=model,step=7",
        "hang:step=5",
        "oom:step=5",
        "exit:step=5,code=70",
    ],
)
def test_a_fault_that_programs_understand(fault: str) -> None:
    host_faults.check(fault)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("rust", "the kind must be one of nan, hang, oom, exit"),
        ("nan", "nan needs step"),
        ("nan:device=1", "nan needs step"),
        ("exit:step=5", "exit needs code"),
        ("exit:", "exit needs step and code"),
        ("hang:step=5,device=1", "hang takes step, not 'device'"),
        ("nan:step=soon", "'soon' is no step"),
        ("nan:step=-1", "'-1' is no step"),
        ("nan:step=1,where=moon", "'moon' is no where"),
        ("nan:step=1,transient=yes", "'yes' is no transient"),
        ("nan:step=1,step=2", "step is given twice"),
        ("nan:step=1,", "not ''"),
        ("exit:step=1,code=256", "'256' is no code"),
    ],
)
def test_a_fault_that_none_would_understand(fault: str, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        host_faults.check(fault)
    assert "exit:step=20,code=1" in refused.value.message, "it does not say how to write one"
