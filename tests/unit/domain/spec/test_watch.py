"""`watch:`: the patterns of known trainers on real lines of each, and what common forms give of the others."""

import math
from typing import Any

import pytest

from tpujob.agent.patterns import PatternWatch
from tpujob.domain.host.plan import watch_patterns
from tpujob.domain.spec import JobSpec, parse

Facts = dict[str, Any]


def spec_of(watch: object) -> JobSpec:
    run = {"command": "python3 train.py"}
    return parse({"name": "a", "tpu": {"type": "v4-8"}, "run": run, "watch": watch})


def seen(watch: object, *lines: str) -> Facts:
    """Return the newest facts that the agent reads in these lines."""
    notes: list[str] = []
    patterns = PatternWatch(
        watch_patterns(spec_of(watch)), lambda text, _="": notes.append(text), int
    )
    patterns.add_lines([line.encode() for line in lines])
    patterns.search()
    facts: Facts = {}
    for match in patterns.take_matches():
        known = {"step": match.step, "steps": match.steps} if match.name == "progress" else {}
        if match.name != "progress":
            known = {match.name: match.step}
        facts |= {k: v for k, v in {**known, **match.values}.items() if v is not None}
    if patterns.nonfinite:
        facts["nonfinite"] = patterns.nonfinite[1]
    if patterns.found and (found := patterns.found.document()):
        facts |= {f"found {k}": v for k, v in found.items() if v not in (None, {})}
    assert notes == []
    return facts


MAXTEXT = (
    "I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: 2, seconds: 10.228, "
    "TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, total_weights: 1572864, loss: 12.980, lm_loss: 12.980"
)
MAXTEXT_CONFIG = "I1129 05:58:59.733989 140583445683072 pyconfig.py:591] Config param steps: 200"
MAXTEXT_NAN = (
    "0: I0122 21:20:55.494193 140737350402816 metric_logger.py:180] completed step: 30, seconds: 0.449, "
    "TFLOP/s/device: 1877.176, Tokens/s/device: 36470.971, total_weights: 131072, loss: nan"
)
ORBAX = (
    "I0811 21:55:20.1 1 atomicity.py:852] [process=0][thread=save_finalize] Finished saving checkpoint "
    "(finalized tmp dir) to `/home/a/checkpoints/100`."
)
LEVANTER = (
    "Progress on:train 11.0it/18.0it rate:34.5s/it remaining:04:01 elapsed:17:46 postfix:loss=15.5"
)
LEVANTER_SAVED = (
    "2024-02-24T13:38:44 - 3 - levanter.checkpoint - checkpoint.py:246 - INFO :: Saved checkpoint to "
    "gs://b/llama/step-9485 for step 9485"
)
HF = "{'loss': 6.2342, 'grad_norm': 1.52, 'learning_rate': 4.9e-05, 'epoch': 0.03}"
HF_TEXTS = "{'loss': '6.234', 'grad_norm': '1.5', 'learning_rate': '4.9e-05', 'epoch': '0.03'}"
HF_BAR = " 12%|█▏        | 60/500 [00:10<01:20,  5.50it/s]"
KERAS = "60/469 ━━━━━━━━━━━━━━━━━━━━ 2s 4ms/step - accuracy: 0.9101 - loss: 0.3012"
KERAS_EPOCH = "14/14 - 1s - 78ms/step - accuracy: 0.7930 - loss: 1.5047"  # with verbose=2
LIGHTNING = "Epoch 3:  12%|█▏        | 60/500 [00:10<01:20,  5.50it/s, v_num=1, train_loss=1.820]"
NANOGPT = "iter 160: loss 2.4031, time 112.52ms, mfu 3.41%"
NANOGPT_EVALUATED = "step 160: train loss 2.3920, val loss 2.4119"
BIG_VISION = "NOTE: Steps:60/3000 [2.0%]\nWalltime:1m (0s eval)"
#: comes before the line with the number of all steps
BIG_VISION_LOSS = "I0224 07:12:27.0 124 utils.py:1278] \x1b[35m[60]\x1b[0m training_loss = 4.61"
TORCHRUN = "[default0]:step 120/400 loss 3.4021"


@pytest.mark.parametrize(
    ("trainer", "lines", "facts"),
    [
        (
            "maxtext",
            [MAXTEXT],
            {
                "step": 2,
                "loss": 12.98,
                "seconds": 10.228,
                "tflops": 350.869,
                "tokens_per_s": 19222.175,
            },
        ),
        ("maxtext", [MAXTEXT_CONFIG], {"steps": 200}),
        ("maxtext", ["eval metrics after step: 4, loss=9.855, total_weights=75264.0"], {}),
        ("maxtext", ["Saved a checkpoint at step 100."], {"checkpoint": 100}),
        ("maxtext", [ORBAX], {"checkpoint": 100}),
        ("maxtext", ["Started an asynchronous checkpoint save for step 100"], {}),
        (
            "hf",
            ["  Resuming training from checkpoint with epoch 2 and global step 100"],
            {"resume": 100},
        ),
        ("maxtext", ["restoring from this run's directory step 100"], {"resume": 100}),
        ("levanter", [LEVANTER], {"step": 11, "steps": 18, "loss": 15.5}),
        (
            "levanter",
            [LEVANTER.replace("11.0it/18.0it", "1.24kit/30.0kit")],
            {"step": 1240, "loss": 15.5},
        ),
        ("levanter", [LEVANTER.replace("train", "eval")], {}),
        ("levanter", [LEVANTER_SAVED], {"checkpoint": 9485}),
        (
            "hf",
            [HF],
            {
                "loss": 6.2342,
                "grad_norm": 1.52,
                "learning_rate": 4.9e-05,
                "epoch": 0.03,
                "found loss": 6.2342,
            },
        ),
        (
            "hf",
            [HF_TEXTS, HF_BAR],
            {
                "loss": 6.234,
                "grad_norm": 1.5,
                "learning_rate": 4.9e-05,
                "epoch": 0.03,
                "found step": 60,
                "found steps": 500,
                "found loss": 6.234,
            },
        ),
        (
            "keras",
            ["Epoch 3/5", KERAS],
            {
                "epoch": 3.0,
                "loss": 0.3012,
                "found step": 60,
                "found steps": 469,
                "found loss": 0.3012,
            },
        ),
        (
            "keras",
            ["Epoch 2/4", KERAS_EPOCH],
            {"epoch": 2.0, "loss": 1.5047, "found loss": 1.5047},
        ),
        (
            "lightning",
            [LIGHTNING],
            {"epoch": 3.0, "loss": 1.82, "found step": 60, "found steps": 500, "found loss": 1.82},
        ),
        ("nanogpt", [NANOGPT], {"step": 160, "loss": 2.4031, "ms": 112.52, "mfu": 3.41}),
        (
            "nanogpt",
            [NANOGPT_EVALUATED, "saving checkpoint to out"],
            {
                "step": 160,
                "train_loss": 2.392,
                "val_loss": 2.4119,
                "checkpoint": 160,
                "resume": 160,
            },
        ),
        (
            "nanogpt",
            ["max_iters = 5000", "Overriding: max_iters = 400", "lr_decay_iters = 5000", NANOGPT],
            {"step": 160, "steps": 400, "loss": 2.4031, "ms": 112.52, "mfu": 3.41},
        ),
        (
            "torchrun",
            [TORCHRUN, "[default1]:step 121/400 loss 9"],
            {"step": 120, "steps": 400, "loss": 3.4021},
        ),
        ("torchrun", ["[rank0]: saved snapshot at step 120"], {"checkpoint": 120}),
        ("big_vision", BIG_VISION.split("\n"), {"step": 60, "steps": 3000}),
        ("big_vision", [BIG_VISION_LOSS], {"step": 60, "loss": 4.61}),
        (
            "big_vision",
            ["The loss became nan or inf somewhere within steps [50, 60]"],
            {"nonfinite": 60},
        ),
    ],
)
def test_a_known_trainer_is_seen_by_its_name(trainer: str, lines: list[str], facts: Facts) -> None:
    assert seen(trainer, *lines) == facts


def test_a_loss_of_a_known_trainer_that_is_not_finite_is_a_number() -> None:
    assert math.isnan(seen("maxtext", MAXTEXT_NAN)["loss"])


@pytest.mark.parametrize(
    ("lines", "step", "steps", "loss"),
    [
        (["step 12 loss 3.4"], 12, None, 3.4),
        (["Step [10/500], Loss: 2.31"], 10, 500, 2.31),
        (["epoch 1 | step 3 of 500 | train_loss=4.2e-1"], 3, 500, 0.42),
        (["global_step=7 loss=nan"], 7, None, "nan"),
        ([MAXTEXT], 2, None, 12.98),
        ([NANOGPT], 160, None, 2.4031),
        ([NANOGPT_EVALUATED], 160, None, 2.392),
        (["I0101 [60] training_loss = 4.61"], 60, None, 4.61),
        ([HF, HF_BAR], 60, 500, 6.2342),
        (["train: 12%|█▏  | 60/500 [00:10<01:20, 5.50it/s, loss=2.3]"], 60, 500, 2.3),
        ([HF_BAR, "100%|██████████| 12/12 [00:01<00:00,  9.0it/s]"], 60, 500, None),
        ([LEVANTER], 11, 18, 15.5),
        ([KERAS], 60, 469, 0.3012),
        (["step 1", "step 2", "step 3", "step 4"], 4, None, None),
    ],
)
@pytest.mark.parametrize("watch", [{}, {"nonfinite": "never seen"}])
def test_common_forms_are_found_without_a_pattern(
    watch: object, lines: list[str], step: int, steps: int | None, loss: object
) -> None:
    facts = seen(watch, *lines)
    found = facts.get("found loss")
    read = (facts.get("found step"), facts.get("found steps"), "nan" if found != found else found)
    assert read == (step, steps, loss)
    assert "step" not in facts, "what is found is no report of the program"


@pytest.mark.parametrize(
    "line",
    [
        "Step 1: download the data",
        "max_steps: 1000, save_steps=500, warmup steps 20",
        "step time: 3.2 s, 0.4 s/step",
        "val loss 2.4",
        "eval_loss: 2.4",
        "loss_fn: cross_entropy",
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:05<00:00,  1.3it/s]",
        "Map: 100%|██████████| 100000/100000 [00:05<00:00, 20000.0 examples/s]",
        "model.safetensors: 100%|█████| 988M/988M [00:05<00:00, 190MB/s]",
        "2024/10/11 12:30:01 starting",
        "Progress on: ../.. x",
        "Progress on: 1.2.3it/5it rate",
        f"10%|x| {'9' * 400}/{'9' * 400} [1, 2it/s",
        f"step {'9' * 900} loss 1{'0' * 900}",
    ],
)
def test_other_lines_are_taken_for_nothing(line: str) -> None:
    assert seen({}, line, line, line) == {}


def test_nothing_is_searched_for_where_it_is_off_or_a_pattern_names_the_step() -> None:
    assert seen("off", "step 12 loss 3.4") == seen(False, "step 12 loss 3.4") == {}
    own = {"progress": r"^it (?P<step>\d+)"}
    assert seen(own, "step 12 loss 3.4", "it 5") == {"step": 5}


def test_several_patterns_have_named_groups_for_metrics() -> None:
    watch = {
        "progress": [
            r"^it (?P<step>[\d,]+)/(?P<steps>\d+)",
            r"loss=(?P<loss>\S+) tok/s=(?P<tokens_per_s>[\d.,]+)",
        ]
    }
    facts = seen(watch, "it 1,006/2000", "loss=2.5 tok/s=1,200.5")
    assert facts == {"step": 1006, "steps": 2000, "loss": 2.5, "tokens_per_s": 1200.5}


def test_a_pattern_beside_a_trainer_replaces_that_of_the_trainer() -> None:
    watch = {"trainer": "maxtext", "checkpoint": r"kept (?P<step>\d+)"}
    facts = seen(watch, MAXTEXT, "Saved a checkpoint at step 2.", "kept 1")
    assert (facts["step"], facts["checkpoint"]) == (2, 1)
