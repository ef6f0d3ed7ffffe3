"""Which faults a physical host can be given: those that programs understand, and no others."""

from __future__ import annotations

import pytest

from tpujob.emulator.faults import USUAL_HOST_FAULT, inject_hosts
from tpujob.emulator.tpu.records import ApiError


@pytest.mark.parametrize(
    "fault",
    [USUAL_HOST_FAULT, "nan:where=model,step=7", "exit:step=5", "preflight:device=2"],
)
def test_a_fault_that_programs_understand_is_accepted(fault: str) -> None:
    inject_hosts.check_fault(fault)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("rust", "no such fault: 'rust'"),
        ("nan:step=0", "step=0 is not a whole number from 1 on"),
        ("hang:step=5,device=1", "hang has no 'device'"),
    ],
)
def test_a_fault_that_no_program_would_understand_is_refused(fault: str, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        inject_hosts.check_fault(fault)
    assert "exit:step=20,code=1" in refused.value.message, "it does not say how to write one"
