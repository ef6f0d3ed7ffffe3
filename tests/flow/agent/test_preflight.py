"""The preflight: what it finds, what passes, and how long hosts wait for each other."""

import json
from typing import Any

import pytest

from tests.support.addresses import free_address
from tests.support.agent_host import JOB, NO_LIBTPU, Host, until
from tpujob.agent.setup import preflight
from tpujob.domain.host import reports


def order(**changes: Any) -> dict[str, Any]:
    """Return the plan's order for the preflight of one host with four chips."""
    default = {"slice": "tj-000042-1", "chips": 4, "hosts": 1, "coordinator": "", "seconds": 120}
    return {**default, "required": True, **changes}


def emulated(host: Host) -> Host:
    """Give the host a JAX with four devices."""
    host.env.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="4")
    return host


def notes(host: Host, attempt: int = 1) -> dict[str, str]:
    """Return the lines of the preflight in the log, by the name of the check."""
    lines = [line.split(": ", 2) for line in host.bucket.log(attempt)]
    return {
        line[1]: line[2] for line in lines if line[0] == "[tpujob] pre-flight" and len(line) > 2
    }


def together(
    pair: tuple[Host, Host], attempt: int = 1, command: str = "echo ran", **changes: Any
) -> list[dict[str, Any]]:
    """Start both hosts at once, and return their last reports."""
    places = {"coordinator": free_address(), "meeting": free_address()}
    check = order(**{"hosts": 2, "chips": 8, **places, **changes})
    for number, host in enumerate(pair):
        host.start(command, host=number, hosts=2, attempt=attempt, preflight=check)
    bucket = pair[0].bucket

    def ended() -> list[dict[str, Any]] | None:
        reports = [bucket.report(attempt, number) for number in (0, 1)]
        return reports if all(r.get("phase") == "exited" for r in reports) else None

    return until(ended, f"both ends; {[bucket.report(attempt, n) for n in (0, 1)]}", 300)


# One host ------------------------------------------------------------------------------------------------------------


def test_each_check_is_one_line(host: Host) -> None:
    host.env["PYTHONPATH"] = NO_LIBTPU
    report = host.run("echo ran", preflight=order(required=False))
    assert (report["exit_code"], report["cause"]) == (0, None)
    lines = notes(host)
    assert [*lines] == ["disk", "workdir", "clock", "device", "versions", "devices"]
    assert "were not checked" in lines["devices"]
    assert host.bucket.list(f"jobs/{JOB}/attempts/1/preflight") == [], "it left something behind"
    assert host.bucket.log()[-1] == "ran"


def test_a_program_that_needs_jax_is_not_started_without_it(host: Host) -> None:
    host.env["PYTHONPATH"] = NO_LIBTPU
    report = host.run(["python3", "-c", "print('ran')"], preflight=order())
    assert (report["cause"], report["exit_code"]) == ("SETUP", None), "no fault of the machine"
    assert report["error"] == (
        "jax has no libtpu to reach a TPU on host 0, in the host's own Python; add jax[tpu] to it, "
        "or leave out `env` and the bundled program brings its own"
    )
    assert "ran" not in host.bucket.log()


def test_a_stop_ends_the_check(host: Host) -> None:
    check = order(hosts=2, coordinator=free_address(), meeting=free_address(), seconds=100)
    host.start("echo never", host=0, hosts=2, preflight=check)
    host.phase("preflight")
    host.agent("stop", "--grace", 1)
    assert host.ended()["exit_code"] == -15
    assert "never" not in host.bucket.log()


# Two hosts -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_hosts_check_together_and_agree_to_skip_it_for_an_hour(pair: tuple[Host, Host]) -> None:
    for host in pair:
        emulated(host)
    assert [r["exit_code"] for r in together(pair, command="exit 75")] == [75, 75]
    assert notes(pair[0])["devices"] == "4 of cpu, 8 in all, gave right answers"
    (pair[1].home / "code").write_text("70")
    ends = together(pair, attempt=2, command="exit $(cat ~/code || echo 0)")
    assert "less than an hour ago" in notes(pair[0], 2)["devices"]
    assert [r["exit_code"] for r in ends] == [0, 70]
    # a bad end casts doubt on the devices; one such host is enough for both to check again
    for host in pair:
        host.env["JAX_NUM_CPU_DEVICES"] = "3"
    ends = together(pair, attempt=3)
    assert [r["cause"] for r in ends] == ["PREFLIGHT", "PREFLIGHT"]
    assert ends[0]["error"] == "jax finds 3 chips on this host, and 4 were expected"
    assert "ran" not in pair[0].bucket.log(3)


@pytest.mark.slow
def test_all_hosts_name_the_one_whose_device_gives_wrong_numbers(pair: tuple[Host, Host]) -> None:
    for host in pair:
        emulated(host)
    pair[1].env["TPUJOB_FAULT"] = "preflight:device=3"
    own, other = together(pair)[::-1]
    assert own["cause"] == other["cause"] == "BAD_HOST"
    read = reports.read_report(1, json.dumps(own))[1]
    assert read is not None
    assert read.verdict is not None
    assert (read.verdict.blame, read.verdict.host) == ("device", 1)
    assert own["error"].startswith(f"{read.verdict.device} multiplies wrongly: 1 of ")
    assert other["error"].startswith("host 1: ")
    assert other["verdict"] == own["verdict"] | {"text": other["error"]}
    assert "ran" not in pair[0].bucket.log()
    assert not (pair[1].home / ".tpujob" / "preflight.json").exists()


@pytest.mark.slow
def test_a_check_that_hangs_is_ended_and_says_where(host: Host) -> None:
    stuck = host.home / "stuck"
    stuck.mkdir()
    (stuck / "jax.py").write_text("import time\ntime.sleep(1000)")
    emulated(host).env["PYTHONPATH"] = str(stuck)
    report = host.run("echo never", preflight=order(seconds=20))
    assert report["cause"] == "PREFLIGHT"
    assert report["error"].startswith("the check of the devices was not done within ")
    assert report["error"].endswith(" s, at the import of jax")
    assert report["late"] is True
    assert not any("agent/setup/devices.py" in command for command in host.processes().values())


def test_a_host_that_never_joins_the_check_is_named(host: Host) -> None:
    check = order(
        hosts=2, coordinator=free_address(), meeting=free_address(), seconds=0.5, required=False
    )
    report = host.run("echo never", host=0, hosts=2, preflight=check)
    assert report["cause"] == "PREFLIGHT"
    assert report["error"].startswith("host 1 did not come to the pre-flight within ")
    assert (report["late"], report["unreached"]) == (True, None), "nothing was found wrong"
    host.start("echo never", host=1, hosts=2, preflight=check, attempt=2)
    report = until(
        lambda: host.bucket.report(2, 1).get("cause") and host.bucket.report(2, 1), "end"
    )
    assert report["error"].startswith("host 0 did not come to the pre-flight within ")


def test_hosts_with_different_versions_are_named(pair: tuple[Host, Host]) -> None:
    old = pair[1].home / "old" / "jax-0.4.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.4.1\n")
    pair[1].env["PYTHONPATH"] = str(old.parent)
    reports = together(pair)
    assert [r["cause"] for r in reports] == ["SETUP", "SETUP"], "no fault of a machine"
    assert {r["error"] for r in reports} == {reports[0]["error"]}, "all say the same"
    assert reports[0]["error"].startswith("host 1 has jax 0.4.1, and ")


# Parts ---------------------------------------------------------------------------------------------------------------


def message(host: int, jax: str = "1", code: str = "a") -> dict[str, Any]:
    return {"host": host, "versions": {"jax": jax}, "bundles": [code]}


@pytest.mark.parametrize(
    ("messages", "odd"),
    [
        ([message(0), message(1), message(2)], ""),
        ([message(0), message(1, "2"), message(2)], "host 1 has jax 2, and 1 is expected"),
        ([message(0, "2"), message(1), message(2)], "host 0 has jax 2, and 1 is expected"),
        ([message(0, "2"), message(1)], "host 1 has jax 1, and 2 is expected"),
        ([message(0), message(1, "")], "host 1 has jax none, and 1 is expected"),
        ([message(0), message(1, code="b")], "host 1 has code b, and a is expected"),
    ],
)
def test_the_host_that_differs_is_named(messages: list[dict[str, Any]], odd: str) -> None:
    assert preflight.find_difference(messages) == odd
