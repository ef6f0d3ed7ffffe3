"""The plan of each host."""

import json
from dataclasses import replace

from tests.support.records import a_job, respec
from tpujob.contract import ProgramContext
from tpujob.domain.host import plan as launch
from tpujob.domain.host.plan import preflight_seconds
from tpujob.domain.model import Endpoint


def test_the_cache_that_hosts_share_is_their_owners_alone() -> None:
    """No host runs what programs of another user have written."""
    shared = {
        user: launch.plans(replace(a_job(), folder=f"u/{user}"), report_every=3)[0].document[
            "shared"
        ]
        for user in ("ada", "bob")
    }
    assert shared == {"ada": "gs://shed/u/ada/cache", "bob": "gs://shed/u/bob/cache"}


def test_each_host_gets_its_own_plan_of_the_newest_attempt() -> None:
    first, second = launch.plans(a_job(), report_every=3, avoid={"rack-7": "it lies"})
    assert (first.host, second.host) == (0, 1)
    assert first.document == {
        "v": 1,
        "job": "000042",
        "attempt": 2,
        "host": 0,
        "hosts": 2,
        "workdir": "gs://shed/jobs/000042",
        "bundles": ["gs://shed/bundles/a.tar.gz", "gs://shed/bundles/b.tar.gz"],
        "setup": None,
        "argv": ["bash", "-o", "pipefail", "-c", "python train.py"],
        "env": {},
        "context": first.document["context"],
        "grace": 30,
        "report_every": 3,
        "log_bytes": 256 * 1024 * 1024,
        "watch": {
            "nonfinite": None,
            "progress": [],
            "checkpoint": None,
            "resume": None,
            "find": True,
        },
        "stall": {"seconds": 900, "first": 1800, "looks": 5},
        "nonfinite_steps": 20,
        "avoid": {"rack-7": "it lies"},
        "preflight": {
            "slice": "tj-000042-1",
            "chips": 8,
            "hosts": 2,
            "coordinator": "10.0.1.0:8477",
            "meeting": "10.0.1.0:8482",
            "required": False,
            "seconds": 110.4,
            "ports": [8476],
        },
        "environment": None,
        "mounts": [],
        "outputs": [],
        "shared_outputs": [],
        "created_at": a_job().created_at,
        "stage": [],
        "folders": {},
        "type": "v4-16",
        "shared": "gs://shed/cache",
        "epoch": 0,
    }
    assert json.loads(json.dumps(second.document)) == second.document
    context = second.document["context"]
    env = {f"TPUJOB_{key.upper()}": str(value) for key, value in context.items()}
    assert ProgramContext.from_env(env) == ProgramContext(
        job="000042",
        attempt=2,
        host=1,
        hosts=2,
        coordinator="10.0.1.0:8476",
        workdir="gs://shed/jobs/000042",
        cache="~/.tpujob/cache",
    )


def test_programs_on_emulated_hosts_wait_at_a_port_of_their_own() -> None:
    """Their addresses are loopback, and one machine has their ports; JAX listens on every address of a machine."""
    job = a_job()
    places: list[str] = []
    for address in ("127.12.1.1", "127.12.1.2", "127.12.2.1"):
        slice_ = replace(job.slices[0], endpoints=(Endpoint(0, address), Endpoint(1, "127.12.9.9")))
        plans = [plan.document for plan in launch.plans(replace(job, slices=(slice_,)))]
        (place,) = {plan["context"]["coordinator"] for plan in plans}
        host, _, port = place.rpartition(":")
        assert host == address
        assert plans[1]["preflight"]["ports"] == [int(port)]
        places.append(port)
    assert len(set(places)) == 3
    assert all(10_000 <= int(port) < 20_000 for port in places), (
        "below the ports that a system chooses"
    )


def test_every_host_is_told_before_which_step_it_must_resume() -> None:
    job = a_job()
    newest = replace(job.attempts[-1], resume_before=41)
    plans = launch.plans(replace(job, attempts=(job.attempts[0], newest)))
    assert [plan.document["context"]["resume_before"] for plan in plans] == [41, 41]
    assert [plan.document["context"]["resume_before"] for plan in launch.plans(job)] == [0, 0]


def test_hosts_of_several_slices_are_told_how_to_find_each_other() -> None:
    """Beyond the plan of a single slice each host gets libtpu's variables and ours."""
    job = a_job(command="python train.py")
    job = replace(
        job,
        spec=respec(job.spec, run={"command": "x", "env": {"MEGASCALE_SLICE_ID": "9"}}),
        slices=(
            replace(
                job.slices[0],
                tpu_slices=2,
                endpoints=tuple(Endpoint(host, f"10.0.1.{host}") for host in range(4)),
            ),
        ),
    )
    plans = [plan.document for plan in launch.plans(job)]
    assert [plan["env"] for plan in plans] == [
        {
            "MEGASCALE_COORDINATOR_ADDRESS": "10.0.1.0:8080",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_PORT": "8080",
            "MEGASCALE_SLICE_ID": of,  # no common value of a user's could be right
        }
        for of in ("0", "0", "1", "1")
    ]
    places = [(p["context"]["host"], p["context"]["slice"], p["context"]["slices"]) for p in plans]
    assert places == [(0, 0, 2), (1, 0, 2), (2, 1, 2), (3, 1, 2)]
    assert {p["context"]["coordinator"] for p in plans} == {"10.0.1.0:8476"}, "one program"
    check = plans[3]["preflight"]
    assert (check["hosts"], check["chips"]) == (4, 16)
    assert check["ports"] == [8476, 8080]


def test_the_check_has_more_time_the_larger_a_slice_is() -> None:
    sizes = [(1, 1), (1, 8), (2, 8), (64, 256), (256, 1024), (1024, 4096)]
    times = [preflight_seconds(hosts, chips) for hosts, chips in sizes]
    assert times == sorted(times)
    assert times[0] > 60
    assert [round(t) for t in times[-3:]] == [223, 301, 495]


def test_a_workloads_arguments_are_one_word_each() -> None:
    args = {"steps": 20, "learning_rate": 1e-5, "resume": True, "shuffle": False, "note": "a; $(b)"}
    job = a_job(workload="mlp", args=args)
    assert launch.plans(job)[0].document["argv"] == [
        "python3",
        "-m",
        "workloads.mlp",
        "--steps=20",
        "--learning-rate=1e-05",
        "--resume",
        "--no-shuffle",
        "--note=a; $(b)",
    ]
    assert launch.command_line(job.spec) == (
        "python3 -m workloads.mlp --steps=20 --learning-rate=1e-05 --resume --no-shuffle '--note=a; $(b)'"
    )


def test_a_command_is_shown_as_it_was_written() -> None:
    assert launch.command_line(a_job(command="a | b").spec) == "a | b"
