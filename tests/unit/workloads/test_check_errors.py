"""The compiler's own messages and ways to die, and their meaning."""

from pathlib import Path

import pytest

from workloads.check.children import check, environment, verdict
from workloads.check.command import code_of, reached_of
from workloads.check.errors import out_of_memory
from workloads.check.finding import GIB, Finding, Fit, Order
from workloads.errors import ConfigError

EARLY = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory: the total memory required for HLO "
    "temporaries (26.09G) exceeds available HBM (15.75G)."
)
LATE = """RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. Ran out of memory
in memory space hbm. Used 33.27G of 30.75G hbm. Exceeded hbm capacity by 2.52G.

Total hbm usage >= 33.52G:
    reserved        258.00M"""
VMEM = "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.1M of 16.0M vmem."


@pytest.mark.parametrize(("text", "gib"), [(EARLY, 26.09), (LATE, 33.27)])
def test_both_messages_about_memory_are_read(text: str, gib: float) -> None:
    memory = out_of_memory(text)
    assert memory is not None
    assert memory.needed == int(gib * GIB)
    assert f"{gib:.2f} GiB" in memory.text


def test_a_message_about_hbm_in_other_words_still_means_that_it_does_not_fit() -> None:
    memory = out_of_memory("RESOURCE_EXHAUSTED: Attempting to reserve 9.1G at the bottom of HBM.")
    assert memory is not None
    assert memory.needed == 0


@pytest.mark.parametrize("text", [VMEM, "INVALID_ARGUMENT: No such compile option", ""])
def test_other_errors_are_not_about_the_memory_of_the_chip(text: str) -> None:
    assert out_of_memory(text) is None


@pytest.mark.parametrize(
    ("code", "log", "fit", "says"),
    [
        (-11, "*** STACK OVERFLOW ***", "crashed", "SIGSEGV"),
        (134, "", "crashed", "SIGABRT"),
        (-9, "", "unknown", "too little memory"),
        (-24, "", "unknown", "not compiled in 5 s of CPU time"),
        (1, "Unknown flag: --xla_nonsense\n\n", "unknown", "Unknown flag: --xla_nonsense"),
        (1, "ABORTED: Internal error when accessing libtpu multi-process lockfile.\nTraceback", "unknown",
         "another process of this machine uses libtpu"),
    ],
)  # fmt: skip
def test_a_dead_child_is_no_verdict_about_fit(code: int, log: str, fit: Fit, says: str) -> None:
    result, reason = verdict(code, log, patience=5)
    assert result == fit
    assert says in reason


def test_a_child_keeps_the_flags_of_a_run_and_no_cache() -> None:
    own = {"LIBTPU_INIT_ARGS": "--xla_x=1", "JAX_COMPILATION_CACHE_DIR": "/cache", "HOME": "/root"}
    made = environment(own, has_tpu=False)
    assert made["LIBTPU_INIT_ARGS"] == "--xla_x=1"
    assert made["JAX_PLATFORMS"] == "cpu"
    assert made["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert "JAX_COMPILATION_CACHE_DIR" not in made


def test_beside_a_real_tpu_libtpu_is_not_loaded_twice() -> None:
    assert "ALLOW_MULTIPLE_LIBTPU_LOAD" not in environment({}, has_tpu=True)


@pytest.mark.parametrize(
    ("fits", "code"),
    [(("yes", "yes"), 0), (("yes", "no"), 78), (("refused",), 78), (("crashed",), 70), (("yes", "unknown"), 70),
     (("no", "crashed"), 78)],
)  # fmt: skip
def test_the_exit_code_says_whether_all_of_them_fit(fits: tuple[Fit, ...], code: int) -> None:
    assert code_of([Finding(target="v4-8", fit=fit, limit_bytes=1) for fit in fits]) == code


def test_what_jobs_reached_is_read_as_they_reported_it() -> None:
    least, most = 1 / 3, 1.0
    assert reached_of(f"v4={least}:{most},v5e={1e-5}:0.5") == {
        "v4": (least, most),
        "v5e": (1e-5, 0.5),
    }


@pytest.mark.parametrize(
    "text", ["v4", "v4=0.3", "v4=0.4:0.3", "v4=0:0.3", "v4=0.5:1.5", "=0.1:0.2", "v4=a:b"]
)
def test_a_part_of_the_peak_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be such as v4=0\.3:0\.4"):
        reached_of(text)


def test_an_idle_compilation_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = tmp_path / "python"
    waits.write_text("#!/bin/sh\nexec sleep 3600\n")
    waits.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(waits))
    order = Order(function="train:step", target="v4-8")
    result = check(order, every=0.01, idle=0.05)
    assert (result.fit, result.reason) == ("unknown", "not compiled: no CPU time was used for 0 s")
