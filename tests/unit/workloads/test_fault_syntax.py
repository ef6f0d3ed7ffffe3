"""Faults as they are written, and a clear line for what is not one."""

import pytest

from tpujob.contract import Fault
from tpujob.contract.faults import parse


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", None),
        ("nan:step=7", Fault("nan", 7)),
        ("nan:step=7,device=2", Fault("nan", 7, device=2)),
        ("nan:device=2,step=7,transient=1", Fault("nan", 7, device=2, transient=True)),
        ("nan:step=7,where=data", Fault("nan", 7, where="data")),
        ("nan:step=7,where=model,transient=0", Fault("nan", 7, where="model")),
        ("hang:step=1", Fault("hang", 1)),
        ("oom:step=20", Fault("oom", 20)),
        ("exit:step=3,code=9", Fault("exit", 3, code=9)),
        ("exit:step=3", Fault("exit", 3, code=1)),
        ("preflight:device=2", Fault("preflight", device=2)),
    ],
)
def test_valid_faults_are_parsed(text: str, fault: Fault | None) -> None:
    assert parse(text) == fault


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nam:step=7", "'nam:step=7': no such fault: 'nam'; did you mean 'nan'?"),
        ("flood:step=7", "no such fault: 'flood'; there are nan, hang, oom, exit, preflight"),
        ("nan", "'nan': from which step on? Write nan:step=7"),
        ("nan:stpe=7", "nan has no 'stpe'; did you mean 'step'?"),
        ("hang:step=7,device=1", "hang has no 'device'"),
        ("nan:step=7,device", "'device' is not key=value"),
        ("nan:step=0", "step=0 is not a whole number from 1 on"),
        ("oom:step=0", "step=0 is not a whole number from 1 on"),
        ("preflight:step=1", "preflight has no 'step'"),
        ("nan:step=1,step=2", "step is given twice"),
        ("nan:step=1,", "'' is not key=value"),
        ("nan:step=seven", "step=seven is not a whole number from 1 on"),
        ("nan:step=7,device=-1", "device=-1 is not a whole number from 0 on"),
        ("nan:step=7,transient=yes", "transient=yes is not a whole number from 0 to 1"),
        ("nan:step=7,where=devise", "where=devise; did you mean 'device'?"),
        ("exit:step=7,code=256", "code=256 is not a whole number from 0 to 255"),
    ],
)
def test_an_invalid_fault_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(ValueError, match=r"^'") as refused:
        parse(text)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
