"""A fault injected on one of two hosts, and where the next attempt begins: real runs of the perceptron."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.workload_rig import Host, Job
from tpujob.contract import Exit
from workloads.data import bundled
from workloads.data.rows import Order

SMALL = (
    *("--hidden=64,32", "--batch=64", "--keep=3", "--log-every=1000", "--checkpoint-every=10"),
    "--decay-steps=40",
)


def _verdict(host: Host) -> dict[str, Any]:
    return json.loads((host.out / "verdict.json").read_text())


def _saved(job: Job) -> list[int]:
    folders = (Path(job.workdir) / "checkpoints").iterdir()
    return sorted(int(folder.name) for folder in folders if folder.name.isdigit())


@pytest.mark.long
def test_a_bad_device_is_named_by_both_hosts_and_the_next_attempt_precedes_it(job: Job) -> None:
    job.on_host[1] = {"TPUJOB_FAULT": "nan:step=27,device=1"}
    with job.start(*SMALL, "--steps=40", hosts=2) as hosts:
        hosts[1].until(lambda host: host.events("step"))
        hosts[1].tell(signal.SIGUSR1)
        codes = [host.code() for host in hosts]
    logs = [host.log.read_text() for host in hosts]
    assert codes == [Exit.DEVICE] * 2, "\n".join(logs)
    for host in hosts:
        verdict = _verdict(host)
        assert (verdict["step"], verdict["host"], verdict["blame"]) == (27, 1, "device")
        assert verdict["device"] == "device 1 of host 1"
        assert host.events("step")[-1]["step"] == 27
    assert "most recent call first" in logs[1], "asked for its stacks it did not show them"
    assert _saved(job) == [10, 20]

    job.on_host.clear()
    job.environment["TPUJOB_RESUME_BEFORE"] = "15"
    [again] = job.run(*SMALL, "--steps=30")
    assert [event["step"] for event in again.events("resume")] == [10]
    assert (
        "not going on from the checkpoint of step 20: not before step 15" in again.log.read_text()
    )
    assert _saved(job) == [10, 20, 30]

    job.environment["TPUJOB_RESUME_BEFORE"] = "5"
    [anew] = job.run(*SMALL, "--steps=10")
    assert not anew.events("resume")
    assert "no older checkpoint is left: from the beginning" in anew.log.read_text()
    assert _saved(job) == [10]


def test_a_bad_row_is_named_by_both_hosts_as_the_training_set_numbers_it(job: Job) -> None:
    job.on_host[1] = {"TPUJOB_FAULT": "nan:step=3,where=data,device=1"}
    with job.start(*SMALL, "--steps=20", "--tensor=1", "--fsdp=0", hosts=2) as hosts:
        codes = [host.code() for host in hosts]
    assert codes == [Exit.NONFINITE] * 2, "\n".join(host.log.read_text() for host in hosts)
    # the second of two devices has the last 16 of the host's rows, and those are every second one of the batch
    place = 2 * 16 + 1
    train = bundled.digits().train
    [row] = Order(len(train), seed=0).rows(np.array([2 * 64 + place]))
    for host in hosts:
        verdict = _verdict(host)
        named = [verdict[field] for field in ("step", "blame", "host", "device")]
        assert named == [3, "data", None, ""]
        assert verdict["rows"] == [row]
        assert f"the loss of row {row} of the training set is not" in verdict["text"]


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (
            "oom:step=3",
            Exit.ERROR,
            "MemoryError: injected fault: no memory is left on this host at step 3",
        ),
        ("exit:step=3,code=9", 9, "injected fault: ending with 9 at step 3"),
        ("preflight:device=1", Exit.DONE, "step 20 is committed"),  # not for the program
        (
            "nan:stpe=3",
            Exit.CONFIG,
            "a TPUJOB_ variable cannot be used: 'nan:stpe=3': nan has no 'stpe'",
        ),
    ],
)
def test_other_injected_faults(job: Job, fault: str, code: int, line: str) -> None:
    job.environment["TPUJOB_FAULT"] = fault
    with job.start(*SMALL, "--steps=20") as [host]:
        assert host.code() == code, host.log.read_text()
    assert line in host.log.read_text()


def test_an_injected_hang_blocks_and_shows_where(job: Job) -> None:
    job.environment["TPUJOB_FAULT"] = "hang:step=3"
    with job.start(*SMALL, "--steps=20") as [host]:
        host.until(lambda host: host.events("step"))
        host.until(_shows_that_it_is_in("fault_injection.py"))
        assert host.process.poll() is None
        assert [event["step"] for event in host.events("step")] == [1]


def _shows_that_it_is_in(file: str) -> Callable[[Host], bool]:
    """Whether the stacks, asked for again and again, come to show that file."""

    def asked(host: Host) -> bool:
        host.tell(signal.SIGUSR1)
        return file in host.log.read_text()

    return asked
