"""Names of runs that are compared: as few words as tell them apart, of what the caller may see."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import job_in
from tpujob.domain.model import Code, Job, State
from tpujob.domain.spec import parse
from tpujob.service.run_names import NamedRuns, command_options, name_runs


def job(number: int, command: str = "python3 train.py", **changes: Any) -> Job:
    run = {"command": command, **changes.pop("run", {})}
    spec = {"name": changes.pop("name", "lm"), "tpu": {"type": "v4-8", "zones": ["us-central2-b"]}}
    record = replace(job_in(State.QUEUED), spec=parse({**spec, "run": run}))
    return replace(record, id=f"{number:06d}", name=spec["name"], **changes)


def named(*jobs: Job) -> NamedRuns:
    """Name the jobs for a caller who sees everything."""
    return name_runs(jobs, {job.id for job in jobs})


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python3 train.py --lr 3e-4 --seed=1", {"lr": "3e-4", "seed": "1"}),
        ("python3 train.py lr=0.1 +model.depth=12", {"lr": "0.1", "model.depth": "12"}),
        ("python3 train.py --fast --lr -3 out", {"fast": "true", "lr": "-3"}),
        ("LR=1 python3 train.py --note 'two words'", {"LR": "1", "note": "two words"}),
        ("python3 train.py 'open", {}),
    ],
)
def test_the_options_of_a_command_are_known_by_name(command: str, options: dict[str, str]) -> None:
    known = command_options(command)
    words = known.pop("command")
    assert known == options
    assert "train.py" in words


def test_parameters_come_first_and_only_as_many_as_tell_runs_apart() -> None:
    runs = named(
        *(
            job(n, f"train --lr {lr} --seed {seed}", name=f"s-{n}", params={"lr": lr, "seed": seed})
            for n, (lr, seed) in enumerate([("0.1", "1"), ("0.1", "2"), ("0.2", "1")])
        )
    )
    assert runs.keys == ["lr", "seed"]
    assert runs.labels == ["lr=0.1 seed=1", "lr=0.1 seed=2", "lr=0.2 seed=1"]
    correlated = named(job(1, "train --lr 1 --wd 5"), job(2, "train --lr 2 --wd 6"))
    assert correlated.labels == ["lr=1", "lr=2"], "the second key tells nothing more"
    assert correlated.keys == ["lr", "wd"], "but the table has it"


def test_without_options_commits_then_names_then_ids_tell_runs_apart() -> None:
    first, second = (Code(commit=c * 40, dirty=c == "b") for c in "ab")
    commits = named(job(1, code=first), job(2, code=second))
    assert commits.labels == ["a" * 10, "b" * 10 + ", changed"]
    assert named(job(1, name="one"), job(2, name="two")).labels == ["one", "two"]
    assert named(job(1), job(2)).labels == ["000001", "000002"]
    mixed = named(job(1, "train --lr 1"), job(2, "train --lr 1"), job(3, "train --lr 2"))
    assert mixed.labels == ["lr=1 000001", "lr=1 000002", "lr=2"]


def test_a_key_without_a_value_names_nothing() -> None:
    placed, anywhere = job(1), job(2)
    tpu = anywhere.spec.tpu.model_copy(update={"zones": ()})
    anywhere = replace(anywhere, spec=anywhere.spec.model_copy(update={"tpu": tpu}))
    runs = named(placed, anywhere)
    assert runs.values == [{"zones": "us-central2-b"}, {}]
    assert runs.labels == ["zones=us-central2-b", "000002"]


def test_a_secret_and_what_is_its_owners_alone_name_nothing() -> None:
    secrets = [{"env": {"WANDB_API_KEY": key, "DEPTH": depth}} for key, depth in ("a1", "b2")]
    runs = named(*(job(n, run=run) for n, run in enumerate(secrets)))
    assert (runs.keys, runs.labels) == (["DEPTH"], ["DEPTH=1", "DEPTH=2"])
    mine, theirs = job(1, "train --lr 1"), job(2, "train --lr 2", params={"lr": "2"})
    seen = name_runs([mine, theirs], {mine.id})
    assert "2" not in [values.get("lr") for values in seen.values]
    assert name_runs([mine, theirs], ()).keys == []
