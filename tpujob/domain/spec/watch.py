"""What the output of a program tells of its progress: patterns of the user, or those of a known trainer."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from tpujob.domain.spec import fields as kinds

OFF = "off"  #: instead of a trainer: nothing is searched for

_NUMBER = r"-?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf)"


class Trainer(NamedTuple):
    """The patterns of a trainer's lines. `progress` matches only a line that is printed after the step which it names:
    with the last step of all, the program is complete."""

    progress: tuple[str, ...]
    checkpoint: str | None = None
    resume: str | None = None
    nonfinite: str | None = None


#: by the word after `watch:`. Each has lines of the real trainer in tests/unit/domain/spec/test_watch.py.
TRAINERS: Mapping[str, Trainer] = {
    "maxtext": Trainer(
        progress=(
            r"completed step: (?P<step>\d+), seconds: (?P<seconds>[\d.]+)"
            r"(?:, TFLOP/s/device: (?P<tflops>[\d.]+))?(?:, Tokens/s/device: (?P<tokens_per_s>[\d.]+))?"
            rf".*?\bloss: (?P<loss>{_NUMBER})",
            r"Config param steps: (?P<steps>\d+)\s*$",
        ),
        checkpoint=r"(?:Saved a checkpoint at step |Finished saving checkpoint \(finalized tmp dir\) to `\S*/)"
        r"(?P<step>\d+)(?:\.|`\.?)\s*$",
        resume=r"restoring from this run's directory (?:latest )?step (?P<step>\d+)",
    ),
    "levanter": Trainer(
        progress=(
            # of thousands the line has three digits: the program is never taken for complete by them
            r"Progress on:\s?train (?P<step>[\d.]+k?)it/(?:(?P<steps>\d+)(?:\.0+)?it|[\d.]+kit) "
            rf".*postfix:loss=(?P<loss>{_NUMBER})",
            rf"\btrain:\s+\d+%\|[^|]*\| (?P<step>\d+)/(?P<steps>\d+) \[.*\bloss=(?P<loss>{_NUMBER})",
        ),
        checkpoint=r"Saved checkpoint to \S+ for step (?P<step>\d+)",
        resume=r"(?i)resuming training from step (?P<step>\d+)",
    ),
    "hf": Trainer(
        progress=(
            rf"\{{'loss': '?(?P<loss>{_NUMBER})'?(?:, 'grad_norm': '?(?P<grad_norm>{_NUMBER})'?)?"
            rf"(?:, 'learning_rate': '?(?P<learning_rate>{_NUMBER})'?)?.*?, 'epoch': '?(?P<epoch>[\d.]+)",
            r"^\s*\d+%\|[^|]*\| *\d+/\d+ \[",
        ),
        resume=r"Resuming training from checkpoint with epoch \d+ and global step (?P<step>\d+)",
    ),
    "keras": Trainer(
        progress=(
            rf"^\s*\d+/\d+ (?:[━╸\[=>.\]]+|- \d+s - ).*?\bloss: (?P<loss>{_NUMBER})",
            r"^\s*\d+/(?:\d+|Unknown) [━╸\[=>.\]]+",
            r"^Epoch (?P<epoch>\d+)/\d+",
        ),
    ),
    "lightning": Trainer(
        progress=(
            r"^Epoch (?P<epoch>\d+):\s+\d+%\|[^|]*\| \d+/\d+ \["
            rf"(?:.*?\btrain(?:ing)?[_/]?loss(?:_step)?=(?P<loss>{_NUMBER}))?",
        ),
        resume=r"Restor(?:ing|ed) (?:states|all states) from the checkpoint .*step=(?P<step>\d+)",
    ),
    "nanogpt": Trainer(
        progress=(
            rf"^iter (?P<step>\d+): loss (?P<loss>{_NUMBER}), time (?P<ms>[\d.]+)ms(?:, mfu (?P<mfu>-?[\d.]+)%)?",
            rf"^step (?P<step>\d+): train loss (?P<train_loss>{_NUMBER}), val loss (?P<val_loss>{_NUMBER})",
            r"^(?:Overriding: )?max_iters = (?P<steps>\d+)",  # its configuration, before the first step
        ),
        checkpoint=r"^saving checkpoint to \S+",
        # it evaluates before the first iteration, which after a resume is none of those before
        resume=r"^step (?P<step>[1-9]\d*): train loss",
    ),
    "torchrun": Trainer(
        progress=(
            r"(?i)^(?!\[(?:default|rank)[1-9]).*?(?<![\w.-])(?:global[_ ]?)?(?:step|iter(?:ation)?)\b\W{0,4}"
            rf"(?P<step>\d+)(?![.\w])(?:\s*/\s*(?P<steps>\d+))?.*?\bloss\b\W{{0,4}}(?P<loss>{_NUMBER})",
        ),
        checkpoint=r"(?i)^(?!\[(?:default|rank)[1-9]).*\bsav(?:ed|ing)\b.*\b(?:step|iter(?:ation)?)\W{0,4}(?P<step>\d+)",
        resume=r"(?i)\bresum(?:ed|ing)\b.*\b(?:step|iter(?:ation)?)\W{0,4}(?P<step>\d+)",
    ),
    "big_vision": Trainer(
        progress=(
            r"Steps:(?P<step>\d+)/(?P<steps>\d+)",
            rf"\[(?P<step>\d+)\] training_loss = (?P<loss>{_NUMBER})",
        ),
        nonfinite=r"loss became nan or inf somewhere within steps \[\d+, (?P<step>\d+)\]",
    ),
}


_WORD = {"type": "string", "enum": [OFF, *TRAINERS]}
_Trainer = Annotated[
    str | None,
    kinds.optional(kinds.Checked(kinds.one_of((OFF, *TRAINERS), "known trainer"), _WORD)),
]


def names_step(pattern: str) -> bool:
    """Return whether a pattern has the group `step`."""
    return "step" in re.compile(pattern).groupindex


def _of_word(value: Any) -> Any:
    """Return the mapping that a word stands for. YAML reads `off` as false."""
    if value is False:
        value = OFF
    return {"trainer": value} if isinstance(value, str) else value


class WatchSpec(kinds.SpecPart):
    """Patterns for the output of a program that writes no events. A pattern replaces that of `trainer`."""

    trainer: _Trainer = Field(
        None,
        description="Known trainer, whose patterns are used; off: no search. `watch: hf` is short for it.",
    )
    nonfinite: kinds.Pattern = Field(
        None,
        description="Regular expression of a line with NaN or Inf, such as "
        "'(?i)(step\\S?[=:\\s]+(?P<step>\\d+).*)?loss\\S?[=:\\s]+(tensor\\()?-?(nan|inf(inity)?)\\b'; "
        "the group step is optional.",
    )
    progress: kinds.Patterns = Field(
        (),
        description="Regular expression of a line with progress, such as "
        "'step (?P<step>\\d+)/(?P<steps>\\d+) loss (?P<loss>\\S+)', or a list of them; any other group is a metric. "
        "Other lines do not count.",
    )
    checkpoint: kinds.Pattern = Field(
        None,
        description="Regular expression of a line that reports a checkpoint, such as "
        "'saved step (?P<step>\\d+)'; without the group step it is of the newest step of progress.",
    )
    resume: kinds.StepPattern = Field(
        None,
        description="Regular expression of a line that reports where the program resumes, "
        "such as 'resumed from step (?P<step>\\d+)'.",
    )

    @model_validator(mode="after")
    def _a_checkpoint_has_a_step(self) -> Self:
        if self.checkpoint and not names_step(self.checkpoint) and not self.names_steps:
            raise ValueError(
                "checkpoint has no group that names the step, and progress has none: write "
                r"'(?P<step>\d+)' where it stands"
            )
        return self

    @property
    def patterns(self) -> Trainer:
        """The patterns that are searched for: of each kind the user's own, else the trainer's."""
        known = TRAINERS.get(self.trainer or OFF, Trainer(()))
        return Trainer(
            progress=self.progress or known.progress,
            checkpoint=self.checkpoint or known.checkpoint,
            resume=self.resume or known.resume,
            nonfinite=self.nonfinite or known.nonfinite,
        )

    @property
    def names_steps(self) -> bool:
        """Whether a pattern of progress names the step."""
        return any(map(names_step, self.patterns.progress))


_OBJECT = WatchSpec.model_json_schema()
Watch = Annotated[
    WatchSpec,
    kinds.Checked(_of_word, {"anyOf": [_WORD, _OBJECT]}),
]
