"""The output of `tpujob emulator`, without a running emulator."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Tpujob
from tests.support.golden import golden
from tpujob.cli.commands.emulator import faults, options
from tpujob.cli.commands.emulator.status_page import status_page
from tpujob.emulator.fault_commands import COMMANDS, parameters

LISTS = ("stockouts", "quotas", "calls", "storage", "api_bugs", "unreachable", "bad_hosts")
NO_FAULTS: dict[str, Any] = {**dict.fromkeys(LISTS, ()), "max_run_s": 0.0}


HOST = {"index": 0, "address": "127.1.1.1", "physical": "us-central2-b-h001"}
SLICE = {
    "name": "tj-000042-1",
    "job": "000042",
    "type": "v4-8",
    "zone": "us-central2-b",
    "pricing": "spot",
    "state": "READY",
    "queued": "ACTIVE",
    "initiator": "",
    "gone_in_s": None,
    "maintenance": False,
    "unreachable": False,
    "age_s": 95,
    "hosts": [{**HOST, "fault": "nan:step=20", "factor": 1, "silent": False, "hung": True}],
}
ZONES = [
    {"zone": zone, "stock": {"v4": {"hosts": 64, "used": 1}, "v6e": {"hosts": 64, "used": 0}}}
    for zone in ("us-central2-b", "us-east5-a")
]


def test_status() -> None:
    call = {"method": "GetNode", "code": "UNAVAILABLE", "delay_s": 0, "when": "pre", "count": 1}
    faults = NO_FAULTS | {
        "calls": [call, call | {"count": 3}],
        "api_bugs": ["wedge"],
        "max_run_s": 3600,
        "unreachable": ["us-east5-a"],
        "bad_hosts": [{"physical": "us-central2-b-h001", "fault": "nan:step=20"}],
    }
    status = {"slices": [SLICE], "zones": ZONES, "faults": faults, "schedule": None}
    golden("emulator-status", status_page(status, 80))
    assert "\x1b[1mSlice" in status_page(status, 80, color=True)


def test_status_of_a_cloud_where_nothing_is() -> None:
    status = {"slices": [], "zones": ZONES, "faults": NO_FAULTS, "schedule": None}
    nothing = "There are no slices.\n\nNo faults are set."
    assert status_page(status, 80) == nothing
    status |= {"profile": "bare", "cut": True}
    faults = "\n\nHosts are cut off from each other.\n\nNew hosts are bare."
    assert status_page(status, 80) == f"{nothing}{faults}"


class Willing:
    """An emulator that does all it is asked, and says what that was."""

    def do(self, command: str, **values: Any) -> dict[str, Any]:
        return {"next": [], "text": f"{command} {values}"}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("preempt 7 --notice 0s", {"target": "7", "notice_s": "0s"}),
        ("cut --off", {"off": True}),
        ("quota z v4 0 --pricing spot", {"zone": "z", "type": "v4", "limit": "0", "pricing": "spot"}),
        ("max-run 1.5h", {"for_s": "1.5h"}),
    ],
)  # fmt: skip
def test_a_fault_is_sent_as_it_is_given(
    tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch, words: str, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(options, "client", Willing)
    assert tpujob("emulator", *words.split()).out == f"{words.split()[0]} {values}\n"


def test_every_word_of_a_fault_is_a_parameter_of_its_command() -> None:
    for name, (words, _) in faults.FAULTS.items():
        takes = parameters(COMMANDS[name])
        names = [faults.WORDS[word][0] for word in words.split()]
        assert sorted(names) == sorted(takes), name
        needed = [key for key, parameter in takes.items() if parameter.default is parameter.empty]
        assert needed == [faults.WORDS[word][0] for word in words.split() if word[0] not in "-["]
    assert faults.FAULTS.keys() == COMMANDS.keys()


def test_a_plan_that_cannot_be_read_names_what_is_wrong(
    tpujob: Tpujob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "client", Willing)
    none, broken = tmp_path / "none.yaml", tmp_path / "broken.yaml"
    broken.write_text("- [")
    assert (
        f"{none}: there is no such file" in tpujob("emulator", "schedule", str(none), code=65).err
    )
    error = tpujob("emulator", "schedule", str(broken), code=65).err
    assert error.startswith(f"tpujob: {broken}: not valid YAML: ")
    assert "a file with steps" in tpujob("emulator", "schedule", code=2).err
    assert "--seed 7" in tpujob("emulator", "chaos", code=2).err
