"""The cause that each sign names, and the host that is blamed."""

from dataclasses import replace

import pytest

from tests.support.records import end, host
from tpujob.agent.upload import evidence as agent
from tpujob.domain.failures import evidence, triage
from tpujob.domain.host.reports import read_evidence
from tpujob.domain.model import Cause, Outcome, Progress, Proof, Verdict
from tpujob.domain.observations import HostReport

ERROR = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>')
ECHO = "UNAVAILABLE: PollForError: the following tasks are unhealthy (stopped sending heartbeats)"
BUSY = "open(/dev/vfio/0): Device or resource busy: Couldn't open iommu group /dev/vfio/0"


SIGNS = [
    (Cause.TPU_BUSY, "RuntimeError: tpu.cc: Couldn't open iommu group /dev/vfio/12"),
    (Cause.TPU_BUSY, "RuntimeError: open(/dev/accel0): Operation not permitted"),
    (Cause.TPU_BUSY, "RuntimeError: ABORTED: The TPU is already in use by process with pid 1234."),
    (Cause.TPU_BUSY, "E: Internal error when accessing libtpu multi-process lockfile."),
    (
        Cause.TPU_BUSY,
        "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: "
        "open(/dev/vfio/0): Device or resource busy",
    ),
    (Cause.BAD_HOST, "RuntimeError: Failed to initialize TPU system"),
    (Cause.BAD_HOST, "E: UNKNOWN: TPU initialization failed: no answer from the chips"),
    (
        Cause.OOM_HBM,
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. "
        "Used 21.03G of 15.48G hbm.",
    ),
    (Cause.OOM_HBM, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."),
    (
        Cause.OOM_HBM,
        "RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 8.4G at the bottom of memory",
    ),
    (Cause.OOM_HOST, "MemoryError"),
    (
        Cause.OOM_HOST,
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array",
    ),
    (Cause.OOM_HOST, "OSError: [Errno 12] Cannot allocate memory"),
    (Cause.OOM_HOST, "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed."),
    (Cause.PERMISSION, "E: 403 ada@x does not have storage.objects.create access to the bucket"),
    (Cause.SETUP, "ModuleNotFoundError: No module named 'optax'"),
    (Cause.NONFINITE, "ValueError: Loss is NaN at step 7"),
    (Cause.HANG, "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: x"),
    (Cause.CRASH, "OSError: [Errno 28] No space left on device: '/tmp/x'"),
]
COSTLY = (Cause.TPU_BUSY, Cause.BAD_HOST)


@pytest.mark.parametrize(("cause", "line"), SIGNS)
@pytest.mark.parametrize("code", [1, 134, -6])
def test_the_last_error_names_its_cause(cause: Cause, line: str, code: int) -> None:
    ended = end(host(0, code, "step 7 loss 0.5", *ERROR, line, "bye"))
    assert (ended.outcome, ended.cause, ended.host) == (Outcome.FAILED, cause, 0)
    shown = [proof.text for proof in ended.evidence]
    assert shown == [*ERROR, line[: evidence.WIDTH - len("host 0: ")]]
    assert line in ended.detail


@pytest.mark.parametrize(("cause", "line"), SIGNS)
def test_the_same_text_is_no_cause_if_the_program_made_steps_after_it_or_has_another_error(
    cause: Cause, line: str
) -> None:
    steps = [f"step {n} loss 0.5" for n in range(8)]
    assert end(host(0, 1, *ERROR, line, *steps, "no data")).detail == "host 0: exit code 1: no data"
    assert "KeyError" in end(host(0, 1, line, *ERROR, "KeyError: 'x'")).message
    del cause


@pytest.mark.parametrize(("cause", "line"), SIGNS)
def test_an_error_is_found_before_much_output_and_named_only_as_the_last_that_happened(
    cause: Cause, line: str
) -> None:
    later = [b"later %d" % i for i in range(1000)]
    log = [line.encode() for line in (*ERROR, line)]
    at_once = [agent.TailLine(text, at=100.0) for text in (*log, *later)]
    picked = read_evidence(agent.pick_lines(at_once, ended=100.0))
    assert evidence.last_error(picked) == line
    assert len(picked) == len(ERROR) + 1 + agent.MORE + agent.LAST_WORDS
    long_ago = [agent.TailLine(text, at=100.0) for text in log]
    long_ago += [agent.TailLine(text, at=900.0) for text in later]
    assert evidence.last_error(read_evidence(agent.pick_lines(long_ago, ended=900.0))) == ""
    told = agent.pick_lines(at_once[:3], ended=100.0, stepped=200.0)
    assert all(line.stepped for line in read_evidence(told))
    del cause


def test_last_lines_name_a_cause_if_they_are_near_the_end_and_no_error_was_printed() -> None:
    assert end(host(0, 1, BUSY, "bye")).cause is Cause.TPU_BUSY
    assert end(host(0, 1, BUSY, *(f"line {n}" for n in range(20)))).cause is Cause.CRASH
    assert end(host(0, 127, "bash: line 1: trainer: command not found")).cause is Cause.SETUP
    assert end(host(0, 1, "bash: nvidia-smi: command not found", "bye")).cause is Cause.CRASH
    assert end(host(0, 2, "usage: x", "x: error: no such run")).cause is Cause.BAD_SPEC
    assert end(host(0, 1, "x: error: no such run")).cause is Cause.CRASH
    aborted = "terminate called after throwing an instance of 'std::bad_alloc'"
    assert end(host(0, 134, aborted, "  what():  std::bad_alloc")).cause is Cause.OOM_HOST


def test_a_kill_by_the_kernel_explains_a_lost_process_and_no_error_of_the_program() -> None:
    lost = "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    assert end(host(0, 1, *ERROR, lost)).cause is Cause.CRASH
    assert end(host(0, 1, *ERROR, lost, kernel_kills=1)).cause is Cause.OOM_HOST
    assert end(host(0, 1, "bye", kernel_kills=1)).cause is Cause.OOM_HOST
    assert end(host(0, 1, *ERROR, "KeyError: 'x'", kernel_kills=1)).cause is Cause.CRASH


def test_a_tpu_that_made_steps_did_come_up() -> None:
    error = "RuntimeError: Failed to initialize TPU system"
    assert end(host(0, 1, *ERROR, error)).cause is Cause.BAD_HOST
    assert end(host(0, 1, *ERROR, error, progress=Progress(step=3))).cause is Cause.CRASH


@pytest.mark.parametrize(
    "line",
    [
        "429 RESOURCE_EXHAUSTED: Quota exceeded for reads per minute",
        "rm: cannot remove '.nfs0001': Device or resource busy",
        "FAILED_PRECONDITION: the object's generation differs",
        "eval of the memoryerrors data set",
        "step 12 loss nan",
        "PREEMPTED",
        "the job succeeded",
    ],
)
def test_lines_that_prove_nothing_stay_a_crash(line: str) -> None:
    assert end(host(0, 1, line)).cause is Cause.CRASH


@pytest.mark.parametrize(
    ("code", "cause"),
    [(65, Cause.NONFINITE), (71, Cause.BAD_HOST), (75, Cause.RESTART), (78, Cause.BAD_SPEC)],
)
def test_an_exit_code_of_the_contract_is_believed_before_any_line(code: int, cause: Cause) -> None:
    assert end(host(0, code, BUSY, "MemoryError")).cause is cause


def test_no_line_makes_a_failure_of_a_success_or_the_reverse() -> None:
    assert end(host(0, 0, BUSY)).outcome is Outcome.SUCCEEDED
    for _, line in SIGNS:
        assert end(host(0, 1, *ERROR, line)).outcome is Outcome.FAILED


def test_an_error_of_the_agent_comes_before_the_lines_of_the_program() -> None:
    killed = {"error": "killed for want of memory", "error_cause": Cause.OOM_HOST}
    ended = end(host(0, -9, *ERROR, "E: Failed to initialize TPU system", **killed))
    assert (ended.cause, ended.detail) == (Cause.OOM_HOST, "host 0: killed for want of memory")
    assert ended.message == "host 0: killed by signal 9"
    unstarted = end(host(0, None, error="no file a/secret.txt", error_cause=Cause.SETUP))
    assert unstarted.message == "host 0: the program was not started"


def test_a_crash_shows_the_end_of_its_traceback() -> None:
    ended = end(host(0, 1, "step 1", *ERROR, "ValueError: bad shape", "Exception ignored in x"))
    assert (ended.cause, ended.message, ended.detail) == (
        Cause.CRASH,
        "ValueError (host 0: exit code 1)",
        "ValueError: bad shape (host 0: exit code 1)",
    )
    assert ended.evidence == tuple(Proof(0, x) for x in (*ERROR, "ValueError: bad shape"))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("jax.errors.JaxRuntimeError: x", "jax.errors.JaxRuntimeError (host 0: exit code 1)"),
        ("KeyboardInterrupt", "KeyboardInterrupt (host 0: exit code 1)"),
        ("the password is: x", "host 0: exit code 1"),
        ("Step 3 of /home/x", "host 0: exit code 1"),
    ],
)
def test_of_an_error_the_message_has_nothing_but_its_class(line: str, named: str) -> None:
    ended = end(host(0, 1, *ERROR, line))
    assert (ended.message, ended.detail) == (named, f"{line} (host 0: exit code 1)")


def test_a_module_that_is_missing_is_named() -> None:
    missing = "ModuleNotFoundError: No module named 'nosuchmodule'"
    ended = end(host(0, 1, *ERROR, missing))
    assert ended.cause is Cause.SETUP
    plain = "host 0: something that the program needs is not installed (exit code 1)"
    full = f"{missing}; something that the program needs is not installed (host 0: exit code 1)"
    assert (ended.message, ended.detail) == (plain, full)


def test_a_blank_line_does_not_end_a_traceback_and_what_every_host_prints_is_no_evidence() -> None:
    noise = "WARNING: Could not find the credentials file: standard location"
    ended = end(host(0, 1, *ERROR, "", "ValueError: bad shape", noise))
    assert ended.evidence[-1] == Proof(0, "ValueError: bad shape")
    assert end(host(0, 1, "step 1", noise, " ", "bye")).evidence == (
        Proof(0, "step 1"),
        Proof(0, "bye"),
    )


def test_the_verdict_of_a_replay_names_the_host_whoever_tells_of_it() -> None:
    verdict = Verdict(
        step=7, host=1, device="TPU_0", blame="device", text="host 1 computes it otherwise"
    )
    ended = end(host(0, 71, age=40, verdict=verdict), host(1, 76, age=50))
    assert (ended.cause, ended.host, ended.verdict) == (Cause.BAD_HOST, 1, verdict)
    assert (
        ended.message == "host 1: the loss is not finite, and a device is the cause (exit code 71)"
    )
    assert ended.detail == "host 1 computes it otherwise (exit code 71)"
    unsaid = end(host(0, 76, age=50), host(1, 71, age=40, verdict=replace(verdict, host=None)))
    assert unsaid.host == 1, "the host that ended so"
    none = end(host(0, 71))
    assert (
        none.message == "host 0: the loss is not finite, and a device is the cause (exit code 71)"
    )
    assert none.verdict == Verdict(blame="device")


def test_a_replay_that_cannot_tell_machine_from_maths_leaves_it_open() -> None:
    verdict = Verdict(step=7, text="a device made it, and nothing says which")
    ended = end(host(0, 65, age=40, verdict=verdict), host(1, 65, age=50, verdict=verdict))
    assert (ended.cause, ended.verdict) == (Cause.NONFINITE, verdict), "tried on other hardware"
    assert ended.detail == "a device made it, and nothing says which (exit code 65)"
    unsaid = end(host(0, 65))
    assert unsaid.verdict == Verdict(blame="model or data")


def test_a_host_that_was_told_to_stop_may_have_failed_by_itself() -> None:
    notice = {"notice": "preempted"}
    ended = end(host(0, 76, age=50, **notice), host(1, 1, "MemoryError", age=40, **notice))
    assert (ended.cause, ended.host) == (Cause.OOM_HOST, 1)


def test_without_lines_the_exit_code_alone_decides() -> None:
    ended = end(host(0, 1))
    assert (ended.cause, ended.message, ended.evidence) == (Cause.CRASH, "host 0: exit code 1", ())


def test_the_earliest_end_of_its_own_is_named_and_the_others_follow() -> None:
    ended = end(
        host(0, 76, age=33), host(1, 1, *ERROR, "KeyError: 'x'", age=32), host(2, -6, age=31)
    )
    assert (ended.host, ended.cause) == (1, Cause.CRASH)
    assert ended.evidence[-2:] == (
        Proof(0, "also ended: exit code 76"),
        Proof(2, "also ended: killed by signal 6"),
    )


@pytest.mark.parametrize("code", [76, 134, 137, 143, -6, -9, -15])
def test_an_end_by_a_signal_does_not_hide_a_culprit(code: int) -> None:
    ended = end(host(0, 1, ECHO, age=40), host(1, code, BUSY, age=30))
    assert (ended.host, ended.cause) == (1, Cause.TPU_BUSY)
    ended = end(host(0, code, age=40), host(1, 1, *ERROR, "KeyError: 'x'", age=30))
    assert (ended.host, ended.cause) == (1, Cause.CRASH)


def test_an_echo_of_a_peer_is_not_the_cause() -> None:
    echo = "jaxlib.XlaRuntimeError: " + ECHO
    ended = end(
        host(0, 1, *ERROR, echo, age=40), host(1, 1, *ERROR, "KeyError: 'x'"), host(2, 1, echo)
    )
    assert (ended.host, ended.detail) == (1, "KeyError: 'x' (host 1: exit code 1)")


def test_an_unexplained_end_gives_way_to_the_line_that_explains_it_on_any_host() -> None:
    ended = end(host(0, 1, "masked", age=40), host(1, 0), host(2, 1, BUSY, age=30))
    assert (ended.host, ended.cause) == (2, Cause.TPU_BUSY)


def test_a_notice_explains_a_killed_program_better_than_its_lines() -> None:
    notice = {"notice": "preempted"}
    ended = end(host(0, -9, "MemoryError", **notice), host(1, 75, **notice))
    assert (ended.outcome, ended.cause) == (Outcome.INTERRUPTED, Cause.PREEMPTED)
    assert ended.evidence[0] == Proof(0, "the metadata server reported: preempted")


def test_evidence_of_a_great_slice_stays_small() -> None:
    lines = tuple(f"{i} {BUSY} {'x' * 500}" for i in range(50))
    ended = end(*(host(i, 1, *lines, age=50 - i / 100) for i in range(1000)))
    assert len(ended.evidence) <= evidence.LINES
    assert max(len(str(proof)) for proof in ended.evidence) <= evidence.WIDTH
    assert ended.evidence[-1] == Proof(None, "994 more hosts also ended")


def test_the_hosts_asked_first_are_the_likeliest_culprits() -> None:
    reports = [
        host(0, 76, age=50),
        host(1, 0),
        host(2, 75),
        host(3, 1, age=40),
        host(4, None, error="no", error_cause=Cause.SETUP),
    ]
    assert [r.host for r in triage.witnesses(reports)] == [3, 4, 0]


def test_of_a_program_that_stands_still_the_host_furthest_behind_is_asked_first() -> None:
    def running(number: int, step: int | None, idle: float | None = 0.0) -> HostReport:
        return HostReport(number, 1, "running", age=5.0, progress=Progress(step=step), idle=idle)

    reports = [running(0, 9), running(1, 7, 10.0), running(2, 7, 90.0), running(3, None, None)]
    assert [r.host for r in triage.witnesses([*reports, host(4, 0), host(5, 75)])] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"lines": 7}', b'{"lines": [7, null, " "]}', b"\xff" * 99]
)
def test_a_body_that_is_no_evidence_is_ignored(body: bytes) -> None:
    assert read_evidence(body) == ()
