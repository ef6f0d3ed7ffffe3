"""Trainers in PyTorch on two emulated hosts: preempted, resumed from their checkpoints, equal to an uninterrupted run.

TPUJOB_NANOGPT names a checkout of nanoGPT, in place of its stand-in. TPUJOB_TORCH names the `bin` folder of an
environment with torch_xla, whose PyTorch is a download of 3 GB, in place of the environment that is installed here."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nightly.trainers import stories
from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT
from tests.support.trainer_packages import environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

CONFIGS = ROOT / "configs"
PATIENCE = 900.0  #: seconds; on a busy machine PyTorch alone takes a minute to begin
#: of each host: the order in which numbers are added depends on the number of threads
ENV = {"OMP_NUM_THREADS": "1", "PROCESSES": "1"}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of `python3` and `torchrun`."""
    if own := os.environ.get("TPUJOB_TORCH"):
        return Path(own)
    return environment("torch", ROOT / "tests" / "support" / "trainers" / "torch.txt", "3.11")


def submit(stack: LocalStack, name: str, programs: Path, arguments: str, setup: str = "") -> str:
    """Submit `configs/NAME.yaml` with one process on each host, in an installed environment; return the job's id."""
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    del document["env"]
    run, path = document["run"], f"export PATH={programs}:$PATH\n"
    run["command"] = f"{path}{run['command'].strip()} {arguments}"
    run["env"] = {**run.get("env", {}), **ENV}
    changes = {"code": str(CONFIGS / document["code"]), "preflight": False}
    if setup:
        changes["setup"] = path + setup
    file = stack.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**document, **changes}))
    return stack.json("create", str(file))["id"]


def uninterrupted(programs: Path, folder: Path, words: str) -> str:
    """Return the output of two processes on this machine."""
    done = subprocess.run(
        [programs / "torchrun", "--standalone", "--nproc-per-node=2", *words.split()],
        cwd=folder,
        env={**os.environ, **ENV, "PYTHONPATH": str(ROOT / "tpujob/contract/importable")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def preempt(stack: LocalStack, job: str, checkpoint: int) -> Mapping[str, Any]:
    """Preempt the slice once the bucket has this checkpoint; return the view of the job before."""
    view = stack.until(
        job, lambda view: (view["checkpoint"] or 0) >= checkpoint and view["left_s"], PATIENCE
    )
    stack.run("emulator", "preempt", job, "--notice", "5s")
    return view


def end_of(stack: LocalStack, job: str) -> Mapping[str, Any]:
    """Return the view of a job at its end, after one preemption."""
    view = stack.until(job, lambda view: view["state"] in ("succeeded", "failed"), PATIENCE)
    ends = [(attempt["outcome"], attempt["cause"]) for attempt in view["attempts"]]
    assert ends == [("interrupted", "PREEMPTED"), ("succeeded", None)], stack.run("events", job)
    return view


def test_the_trainer_of_hugging_face(stack: LocalStack, programs: Path, tmp_path: Path) -> None:
    words = "--steps=400 --save-every=40"
    job = submit(stack, "hf-trainer", programs, words)
    running = preempt(stack, job, 40)
    assert (running["steps"], running["found"]) == (400, False)
    whole = uninterrupted(programs, tmp_path, f"{CONFIGS}/hf-trainer/train.py {words}")
    view = end_of(stack, job)

    first, last = view["attempts"]
    resumed = last["resumed_from"]
    assert resumed == first["checkpoint"] >= 40
    assert (view["step"], view["checkpoint"]) == (400, 400)
    assert {"loss", "grad_norm"} <= stack.curves(job)
    every = re.findall(r"'loss': '([\d.]+)'", whole)
    after = re.findall(r"'loss': '([\d.]+)'", stack.run("logs", job, "--attempt", "2"))
    assert after == every[resumed // 5 :], "equal in each digit that is printed"


@pytest.mark.parametrize(
    ("name", "launch"),
    [
        (
            "ddp",  # on torchrun's own port, which is the emulated slice's: two jobs at once do not meet
            "torchrun --nnodes=$TPUJOB_HOSTS --node-rank=$TPUJOB_HOST --nproc-per-node=1 "
            "--master-addr=${TPUJOB_COORDINATOR%:*}",
        ),
        (
            "accelerate",
            "accelerate launch --multi_gpu --num_machines=$TPUJOB_HOSTS --machine_rank=$TPUJOB_HOST "
            "--num_processes=$TPUJOB_HOSTS --main_process_ip=${TPUJOB_COORDINATOR%:*} "
            "--main_process_port=${TPUJOB_COORDINATOR##*:}",
        ),
    ],
)
def test_a_program_that_saves_for_all_on_host_0(
    stack: LocalStack, programs: Path, name: str, launch: str
) -> None:
    document = {
        "name": name,
        "tpu": {"type": "v4-16"},
        "code": str(ROOT / "tests" / "support" / "trainers" / name),
        "run": {
            "command": f"export PATH={programs}:$PATH\n{launch} train.py 600 50",
            "env": {"OMP_NUM_THREADS": "1"},
        },
        "outputs": {"folder": "ckpt", "from": 0},
        "watch": "torchrun",
    }
    view = stories.play_job(
        stack, document, lambda view: (view["checkpoint"] or 0) >= 50, tolerance=0.0
    )
    first, last = view["attempts"]
    resumed = last["resumed_from"]
    assert resumed == first["checkpoint"] >= 50
    assert (view["step"], view["checkpoint"]) == (600, 600)
    log = stack.run("logs", view["id"], "--attempt", "2")
    ranks = re.findall(rf"rank (\d) of 2: resuming from step {resumed}\b", log)
    assert sorted(ranks) == ["0", "1"], log


def test_torch_xla(programs: Path, tmp_path: Path) -> None:
    """Without a job: PJRT on the CPU does not reach another host."""
    python = programs / "python3"
    if subprocess.run([python, "-c", "import torch_xla"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: torch_xla, as TPUJOB_TORCH names no environment that has it")
    program = [python, CONFIGS / "torch-xla" / "train.py", "--steps=40", "--save-every=20"]
    env = {**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4"}
    outputs: list[str] = []
    for _ in ("whole", "resumed"):
        done = subprocess.run(
            program, cwd=tmp_path, env=env, check=True, capture_output=True, text=True
        )
        outputs.append(done.stdout)
        (tmp_path / "checkpoints" / "step-40.pt").unlink()
    whole, resumed = outputs
    assert "4 CPU devices" in whole
    assert "resuming from step 20\n" in resumed
    losses = r"step (\d+)/40 loss ([\d.]+)"
    assert re.findall(losses, resumed) == re.findall(losses, whole)[2:], "in each printed digit"


def test_nanogpt_by_torchrun(stack: LocalStack, programs: Path, tmp_path: Path) -> None:
    text = (CONFIGS / "nanogpt.yaml").read_text(encoding="utf-8")
    arguments = "--max_iters=600 --eval_interval=50 --n_layer=1 --n_head=1 --n_embd=32"
    repo = os.environ.get("TPUJOB_NANOGPT") or str(stand_in(tmp_path / "nanogpt"))
    document = yaml.safe_load(text)
    (url,) = re.findall(r"https://\S+", document["setup"])
    (commit,) = re.findall(r"[0-9a-f]{40}", document["setup"])
    setup = document["setup"].replace(url, repo).replace(commit, "HEAD")
    setup = setup.replace("\ncd repo\n", f"\ncd repo\n{LIBRARY}\n")
    job = submit(stack, "nanogpt", programs, arguments, setup)
    running = preempt(stack, job, 100)
    assert (running["steps"], running["found"]) == (600, False)

    (tmp_path / "whole").mkdir()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", setup], cwd=tmp_path / "whole", env=environment, check=True)
    command = document["run"]["command"].partition("train.py")[2].partition(" --init_from")[0]
    words = f"train.py {command} {arguments} --init_from=scratch"
    whole = uninterrupted(programs, tmp_path / "whole" / "repo", words)
    view = end_of(stack, job)

    first, last = view["attempts"]
    assert last["resumed_from"] == first["checkpoint"] >= 100
    assert (view["step"], view["checkpoint"]) == (600, 600)
    assert {"loss", "train_loss", "val_loss"} <= stack.curves(job)
    log = stack.run("logs", job, "--attempt", "2")
    assert len(re.findall(r"^\d\| Resuming training from", log, re.M)) == 2, "on both hosts"
    expected, measured = evaluations(whole), evaluations(log)
    assert min(measured) == last["resumed_from"]
    assert max(measured) == 600
    tolerance = float(re.findall(r"within ([\d.]+) of those of a run", text)[0])
    assert all(abs(measured[step] - expected[step]) <= tolerance for step in measured)


#: the text on which both runs train, as nothing is downloaded
LIBRARY = "cat $(python3 -c 'import os; print(os.path.dirname(os.__file__))')/a*.py > data/shakespeare_char/input.txt"


def stand_in(folder: Path) -> Path:
    """Return a repository with the stand-in for nanoGPT."""
    shutil.copytree(ROOT / "tests" / "support" / "trainers" / "nanogpt", folder)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *words], check=True)
    return folder


def evaluations(output: str) -> dict[int, float]:
    """Return the losses of nanoGPT's evaluations by their iterations."""
    pairs = re.findall(r"step (\d+): train loss [\d.]+, val loss ([\d.]+)", output)
    return {int(step): float(loss) for step, loss in pairs}
