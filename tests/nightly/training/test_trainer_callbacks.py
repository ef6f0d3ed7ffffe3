"""The callbacks of `tpujob_events` in the released packages of the trainers that they are for."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.trainer_packages import environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

KERAS = """
import numpy, keras
from tpujob_events.keras import KerasEvents
x = numpy.random.rand(48, 4)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
saves = keras.callbacks.BackupAndRestore("saves", delete_checkpoint=False)
epochs = 2 if begins else 4
callbacks = [saves, KerasEvents("saves")]
model.fit(x, x, batch_size=16, epochs=epochs, validation_split=0.25, callbacks=callbacks)
"""

TRANSFORMERS = """
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from tpujob_events.transformers import TransformersEvents
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        y = self.layer(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}
class Stop(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if begins and state.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
data = [{"x": torch.rand(4), "labels": torch.rand(1)} for _ in range(64)]
arguments = TrainingArguments(
    "saves", max_steps=12, logging_steps=2, save_steps=4, report_to=[], use_cpu=True,
    eval_strategy="steps", eval_steps=6,
)
trainer = Trainer(
    Model(), arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[TransformersEvents(), Stop()]
)
trainer.train(resume_from_checkpoint=not begins)
"""

LIGHTNING = """
import torch, lightning
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from tpujob_events.lightning import LightningEvents
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        return (self.layer(batch) ** 2).mean()
    def validation_step(self, batch, number):
        self.log("val_loss", (self.layer(batch) ** 2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
class Stop(Callback):
    def on_train_batch_start(self, trainer, *arguments):
        if begins and trainer.global_step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
def data():
    return torch.utils.data.DataLoader(torch.rand(40, 4), batch_size=8)
saves = ModelCheckpoint("saves", every_n_train_steps=3, save_last=True)
trainer = lightning.Trainer(
    max_steps=12, accelerator="cpu", logger=False, log_every_n_steps=2, callbacks=[Stop(), LightningEvents(), saves]
)
trainer.fit(Model(), data(), data(), ckpt_path="last")
"""


@pytest.fixture(scope="module")
def python() -> Path:
    packages = ROOT / "tests" / "support" / "trainers" / "callbacks.txt"
    return environment("callbacks", packages, "3.11") / "python"


def train(python: Path, program: str, folder: Path, begins: bool) -> list[dict[str, Any]]:
    """Return what a run of the trainer reports."""
    out = folder / ("first" if begins else "second")
    env = {**os.environ, "TPUJOB_OUT": str(out), "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    env["PYTHONPATH"] = str(ROOT / "tpujob" / "contract" / "importable")
    words = [python, "-c", f"import os, signal\nbegins = {begins}\n{program}"]
    ended = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    lines = (out / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def steps_of(kind: str, events: list[dict[str, Any]]) -> list[int]:
    return [event["step"] for event in events if event["kind"] == kind]


@pytest.mark.parametrize(
    ("program", "saved", "metric"),
    [
        pytest.param(KERAS, [3, 6], "val_loss", id="keras"),
        pytest.param(TRANSFORMERS, [4, 6], "eval_loss", id="transformers"),  # stopped in step 6
        pytest.param(LIGHTNING, [3, 6], "val_loss", id="lightning"),
    ],
)
def test_a_callback_reports_what_its_trainer_does(
    tmp_path: Path, python: Path, program: str, saved: list[int], metric: str
) -> None:
    first, second = (train(python, program, tmp_path, begins) for begins in (True, False))
    assert steps_of("checkpoint", first) == saved
    assert steps_of("resume", first) == []
    assert metric in {event.get("name") for event in first}
    assert steps_of("resume", second) == [6]
    assert steps_of("step", second) == [7, 8, 9, 10, 11, 12]
    assert {event["steps"] for event in second if event["kind"] == "step"} == {12}
    assert [event for event in second if event["kind"] == "step"][-1]["loss"] is not None
    assert steps_of("checkpoint", second)[-1] == 12
