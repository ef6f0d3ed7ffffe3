"""Losses that are not finite: how they are read, counted and reported, and what they keep out of the bucket."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.agent.test_watch import LOSS
from tests.support.agent_host import JOB, Host, until
from tpujob.agent.upload.progress import ProgressReader
from tpujob.contract import EVENTS, ProgramContext, Reporter
from tpujob.domain.host import reports
from tpujob.protocol import paths


def read_events(folder: Path, *events: str) -> ProgressReader:
    """Return a reader that has read these events; each is the inside of a JSON object."""
    path = folder / "events.jsonl"
    path.write_text("".join(f"{{{event}}}\n" for event in events))
    reader = ProgressReader(str(path))
    reader.look()
    return reader


NONFINITE = {
    "NaN": ("NaN", '"nan"', '"NaN"', 'null, "nonfinite": true'),
    "inf": ("Infinity", '"inf"', '"Infinity"', "1e999"),
    "-inf": ("-Infinity", '"-inf"'),
    "": ("1" + "0" * 400, "2.5", '"2.5"', "null", "true", '"?"', "[]", '"nan?"'),
}


@pytest.mark.parametrize(
    ("loss", "word"), [(loss, word) for word, losses in NONFINITE.items() for loss in losses]
)
def test_a_loss_is_read_however_it_is_written(tmp_path: Path, loss: str, word: str) -> None:
    reader = read_events(tmp_path, f'"kind": "step", "step": 7, "loss": {loss}')
    expected = {"loss": word, "since": 7} if word else None
    assert (reader.facts.get("nonfinite"), reader.nonfinite_steps) == (expected, bool(word))
    assert reader.facts["loss"] == (2.5 if "2.5" in loss else None), "a report has finite numbers"


def test_steps_without_a_finite_loss_are_counted_until_one_is_finite(tmp_path: Path) -> None:
    losses = ("1.0", "NaN", "null", '"inf"', "NaN")
    events = [f'"kind": "step", "step": {n}, "loss": {loss}' for n, loss in enumerate(losses)]
    reader = read_events(tmp_path, *events)
    assert reader.facts["nonfinite"] == {"loss": "NaN", "since": 1}
    assert reader.nonfinite_steps == 3, "step 2 has no loss, which proves nothing"
    reader = read_events(tmp_path, *events, '"kind": "step", "step": 9, "loss": 0.5')
    assert (reader.facts["nonfinite"], reader.nonfinite_steps) == (None, 0)


def test_good_checkpoints_are_known_after_any_number_of_bad_ones(tmp_path: Path) -> None:
    saved = [
        f'"kind": "checkpoint", "step": {step}' for step in (*range(5, 60, 5), *range(60, 999))
    ]
    bad = '"kind": "step", "step": 60, "loss": NaN'
    reader = read_events(tmp_path, *saved[:11], bad, *saved[11:])
    assert reader.facts_before(reader.nonfinite_since)["checkpoint"] == 55
    assert reader.facts["checkpoint"] == 998, "which counts once the loss is finite again"


def test_a_metric_that_is_not_finite_is_reported_as_such(tmp_path: Path) -> None:
    values = {"norm": "NaN", "scale": '"inf"', "speed": "3.5", "name": '"x"'}
    reader = read_events(
        tmp_path,
        '"kind": "step", "step": 1, "loss": 2.0',
        *(f'"kind": "metric", "name": "{name}", "value": {v}' for name, v in values.items()),
    )
    assert reader.facts["metrics"] == {"norm": "NaN", "scale": "inf", "speed": 3.5, "name": None}
    assert reader.facts.get("nonfinite") is None, "the loss is finite"
    about = {"host": 0, "attempt": 1, "phase": "running"}
    read = reports.read_report(0, json.dumps({**about, **reader.facts}))[1]
    assert read is not None
    assert read.progress.metrics == {"norm": None, "scale": None, "speed": 3.5}
    assert read.progress.nonfinite is None


def test_the_reporter_of_the_contract_writes_what_json_lacks_as_text(tmp_path: Path) -> None:
    reporter = Reporter(ProgramContext(out=str(tmp_path)))
    for step, loss in enumerate((1.5, float("nan"), float("-inf"))):
        reporter.event("step", step=step, loss=loss)
    lines = (tmp_path / EVENTS).read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [1.5, "nan", "-inf"]
    reader = ProgressReader(str(tmp_path / EVENTS))
    reader.look()
    assert reader.facts["nonfinite"] == {"loss": "-inf", "since": 1}


# What follows on a host ----------------------------------------------------------------------------------------------

#: reports the losses in `LOSSES`, one a step, saves at each step and at SIGTERM, and ends with 0
PROGRAM = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path("ckpt"); folder.mkdir(exist_ok=True)
events = open(os.environ["TPUJOB_OUT"] + "/events.jsonl", "a", buffering=1)
tell = lambda kind, **more: events.write(json.dumps({"t": 0, "kind": kind, **more}) + "\\n")
def save(*_):
    (folder / "latest").write_text(str(step)); tell("checkpoint", step=step)
    if _: print("saved at SIGTERM", flush=True); sys.exit(75)
signal.signal(signal.SIGTERM, save)
for step, loss in enumerate(os.environ["LOSSES"].split(), 1):
    print("step", step, "loss", loss, flush=True); tell("step", step=step, loss=float(loss))
    save(); time.sleep(3 if step == 1 else 0.2)
"""
LATEST = (
    paths.outputs_folder("gs://shed/jobs/" + JOB, 0).removeprefix("gs://shed/") + "/ckpt/latest"
)


def run(host: Host, losses: str, **plan: Any) -> dict[str, Any]:
    argv = ["python3", "-c", PROGRAM]
    return host.run(argv, outputs=["ckpt"], env={"LOSSES": losses}, **plan)


@pytest.mark.parametrize("how", ["a few", "the limit is off", "an older plan"])
def test_a_success_with_a_bad_loss_leaves_the_good_checkpoint_in_the_bucket(
    host: Host, how: str
) -> None:
    limit = {"a few": {"nonfinite_steps": 20}, "the limit is off": {"nonfinite_steps": 0}}
    report = run(host, "1.0" + " nan" * 8, **limit.get(how, {}))
    assert (report["exit_code"], report["cause"], report["verdict"]) == (0, None, None)
    assert (report["step"], report["checkpoint"]) == (9, 1)
    assert report["nonfinite"] == {"loss": "NaN", "since": 2}
    assert int(host.bucket.read(LATEST)) == 1
    assert any("nothing more is kept" in line for line in host.bucket.log())


def test_enough_bad_losses_end_the_program_without_its_last_save(host: Host) -> None:
    report = run(host, "1.0 nan" + " -inf" * 500, nonfinite_steps=5)
    assert (report["cause"], report["exit_code"], report["checkpoint"]) == ("NONFINITE", -9, 1)
    verdict = report["verdict"]
    assert (verdict["step"], verdict["host"], verdict["blame"]) == (2, 0, "")
    assert verdict["text"].startswith("the loss is -inf since step 2, in ")
    assert verdict["text"].endswith(" reported steps")
    assert int(host.bucket.read(LATEST)) == 1
    log = host.bucket.log()
    assert "saved at SIGTERM" not in log, "SIGTERM would make it save"
    assert sum(verdict["text"] in line for line in log) == 1


def test_a_loss_that_recovers_ends_nothing_and_all_is_kept_again(host: Host) -> None:
    report = run(host, "1.0 nan nan nan 0.9 nan nan nan 0.8", nonfinite_steps=5)
    assert (report["exit_code"], report["cause"]) == (0, None)
    assert (report.get("nonfinite"), report["checkpoint"]) == (None, 9)
    assert int(host.bucket.read(LATEST)) == 9


def test_a_bad_loss_is_reported_long_before_the_next_report(host: Host) -> None:
    argv = ["python3", "-c", PROGRAM]
    losses = "1.0" + " nan" * 3000
    host.start(argv, env={"LOSSES": losses}, report_every=3600, nonfinite_steps=0)
    until(lambda: host.bucket.report().get("nonfinite"), "the report of the first bad loss")
    host.agent("stop", "--grace", 0)
    host.ended()


def test_a_success_whose_output_matched_at_its_end_has_a_bad_loss(host: Host) -> None:
    """Had the line come a second earlier, the program would have been killed."""
    program = "echo 1 > ckpt/latest; echo step 7 loss=nan"
    report = host.run(program, watch=LOSS, outputs=["ckpt"])
    if report["exit_code"] == 0:
        assert (report["cause"], report["verdict"]) == (None, None)
    assert report["nonfinite"] == {"loss": "not finite", "since": 7}
    assert not [item for item in host.bucket.list("") if item["name"] == LATEST]
