"""Every workload, compiled by the TPU's own compiler for slices that are not here, in a small size."""

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="libtpu is not installed: NOTHING WAS COMPILED FOR A TPU; it is in the extra `check`",
    )
]

SLICES = ("v4-16", "v4-128", "v5e-16", "v6e-16", "2xv4-16")
#: one slice, and two of an older generation at once; tests/bench/README.md has the others
ONE, TWO = ("v6e-16",), ("2xv4-16",)


def rest(chosen: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in SLICES if name not in chosen)


WORKLOADS = {
    "mlp": ["--hidden=256,256", "--fsdp=0", "--batch=256"],
    # one layer: the attention kernel alone compiles for seconds
    "lm": ["--preset=1m", "--layers=1", "--sequence=128", "--fsdp=0", "--batch=64"],
    "vit": ["--depth=1", "--fsdp=0", "--batch=64"],
}


def run(name: str, *arguments: str, timeout: float = 300) -> tuple[int, str, str]:
    """A check on the command line: its exit code and what it says."""
    environment = {**os.environ, "TPUJOB_OUT": "/nowhere"}  # a check has no folder of its own
    environment.pop("XLA_FLAGS", None)  # they would change the program
    done = subprocess.run(
        [sys.executable, "-m", f"workloads.{name}", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout, done.stderr


def checked(name: str, *arguments: str, timeout: float = 300) -> dict[str, dict[str, Any]]:
    code, out, err = run(name, *arguments, "--json", timeout=timeout)
    assert code == 0, out + err
    return {finding["target"]: finding for finding in json.loads(out)}


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        ("mlp", ONE),
        ("lm", TWO),
        pytest.param("mlp", rest(ONE), marks=pytest.mark.long),
        pytest.param("lm", rest(TWO), marks=pytest.mark.long),
        pytest.param("vit", SLICES, marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_workload_compiles_for_slices_of_each_kind(name: str, slices: tuple[str, ...]) -> None:
    findings = checked(name, *WORKLOADS[name], "--check", ",".join(slices))
    assert list(findings) == [*slices]
    for target, finding in findings.items():
        made = finding["program"]
        assert finding["fit"] == "yes", f"{target}: {finding['reason']}"
        others = [text for text in finding["warnings"] if "such a short step" not in text]
        assert others == [], target
        assert 0 < made["argument_bytes"] <= made["peak_bytes"] < finding["limit_bytes"]
        assert made["flops"] == pytest.approx(made["asked_flops"], rel=0.02), (
            f"{target}: devices compute what others compute, too"
        )
        assert made["model_flops"] == pytest.approx(made["asked_flops"], rel=0.2)
        sent = {axis for exchange in made["exchanges"] for axis in exchange["axes"]}
        assert sent == ({"fsdp", "dcn"} if target.startswith("2x") else {"fsdp"})
        assert finding["pace"]["step"][0] >= finding["step_seconds"]["bound"] > 0


@pytest.mark.long
def test_the_figures_of_a_program_without_loops_are_those_of_others() -> None:
    findings = checked(
        "mlp", "--dataset=synthetic", "--hidden=8192,8192", "--batch=64", "--check=v5e-1"
    )
    made = findings["v5e-1"]["program"]
    layers = 784 * 8192 + 8192 * 8192 + 8192 * 10
    assert made["flops"] == 2 * 64 * (3 * layers - 784 * 8192), "no gradient of the inputs"
    # the marks of bad rows are a product with zeros, which the compiler removes
    assert made["flops"] == pytest.approx(made["asked_flops"], rel=1e-4)
    assert made["flops"] == pytest.approx(made["xla_flops"], rel=0.1), "it counts additions, too"
    assert made["hbm_bytes"] == pytest.approx(made["xla_bytes"], rel=0.25)
    state = 3 * 4 * (layers + 2 * 8192 + 10)
    assert made["argument_bytes"] == pytest.approx(state, rel=0.01)


@pytest.mark.long
def test_what_does_not_fit_is_refused_with_a_setting_that_was_compiled() -> None:
    large = ["--hidden=32768,32768", "--batch=2", "--dataset=synthetic"]
    code, out, err = run("mlp", *large, "--check=v5e-1")
    assert code == 78, out + err
    assert "NO: it needs 16." in out
    assert "it fits with --batch=1" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--check"], "--check needs a type"),
        (["--check=v4-8", "--hiden=3"], "no such flag: --hiden; did you mean --hidden?"),
        (["--check=v4-8", "--check-rows=many"], "must be a number above 0"),
        (["--check=v4-8", "--check-rows=1", "--check-tokens=1"], "give one of"),
        (["--check=v4-8", "--check-batch-per-chip=1.5"], "must be a whole number of rows"),
    ],
)
def test_a_bad_command_line_is_refused_in_one_line(arguments: list[str], says: str) -> None:
    code, out, err = run("mlp", *arguments)
    assert (code, out) == (78, "")
    assert says in err
    assert len(err.splitlines()) == 1, err


def test_settings_that_do_not_go_with_a_slice_are_refused_by_name() -> None:
    code, out, err = run("mlp", "--batch=250", "--check=v4-16")
    assert code == 78, out + err
    says = "REFUSED: batch=250 cannot be split over 8 devices: --batch=256, or another"
    assert says in " ".join(out.split())
    assert "parameters" not in out, "they are not counted before the settings go with the slice"


def test_a_check_without_a_batch_takes_the_least_that_divides_and_says_so() -> None:
    findings = checked("mlp", "--hidden=256,256", "--check=v4-16,v4-1024")
    assert [finding["rows"] for finding in findings.values()] == [256, 512]
    says = (
        "checked with --batch=512, as the program's own 256 rows cannot be split over the devices"
    )
    assert says in findings["v4-1024"]["warnings"][0]
    assert not any("--batch" in text for text in findings["v4-16"]["warnings"])
