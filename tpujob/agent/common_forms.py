"""Finds step, steps and loss in the common forms of training output, of programs that no pattern describes.

What is found is shown and decides nothing: a form may mean something else than it seems to.
"""

from __future__ import annotations

import re
from typing import Any, List, Optional

from tpujob.protocol.report import FoundDocument

WIDTH = 1000  #: characters of a line that are searched
SURE = 2  #: a step without a loss in its line counts once so many lines had a greater step than the line before

# each group is a number that Python reads: what looks like one and is none must not end the search
_WHOLE = r"\d{1,15}"
_NUMBER = r"[-+]?(?:\d[\d,]{0,40}\.?\d{0,40}(?:[eE][-+]?\d{1,3})?|nan|inf(?:inity)?)"
#: `step 12`, `iter 160:`, `global_step=5`, `Step [10/500]`, `step: 3 of 500`; not `step 0.5s`, `steps: 500`
_STEP = re.compile(
    r"(?<![\w.-])(?:global[_ ]?|train(?:ing)?[_ /]?|optimizer[_ ]?)?(?:step|iteration|iter)\b"
    r"[\"']?\s*[:=#]?\s*[\[(]?\s*(?P<step>\d[\d,]{0,20})(?![\d,]*[.\w%])"
    r"(?:\s*(?:/|of)\s*(?P<steps>\d[\d,]{0,20})\b)?",
    re.IGNORECASE,
)
#: `[60] training_loss = 2.3`
_BRACKETS = re.compile(
    rf"(?:^|\s)\[(?P<step>{_WHOLE})\]\s+\S*loss\s*[:=]\s*(?P<loss>{_NUMBER})", re.IGNORECASE
)
#: `loss 3.4`, `loss: 3.4`, `'loss': '6.2'`, `train/loss = 2`; not the loss of an evaluation
_LOSS = re.compile(
    r"(?<![\w/.-])(?<!val )(?<!eval )(?<!valid )(?<!validation )(?<!test )"
    r"(?:train(?:ing)?[_/ ])?loss\b[\"']?\s*[:=]?\s*[\"']?"
    rf"(?P<loss>{_NUMBER})(?![\w%])",
    re.IGNORECASE,
)
#: a bar of tqdm: `train:  12%|█▏    | 60/500 [00:10<01:20, 5.5it/s, loss=2.3]`
_BAR = re.compile(
    r"^(?P<title>[^|%]{0,60}?)\s*\d+%\|[^|]*\|\s*"
    rf"(?P<step>{_WHOLE})/(?P<steps>{_WHOLE}) \[[^\]]*(?:it/s|s/it)"
)
#: the line of tqdm_loggable: `Progress on:train 60.0it/500it rate:5.5it/s`, `1.2kit/5.0kit`
_PROGRESS = re.compile(
    rf"Progress on:\s?(?P<title>[^\d]*?)\s?(?P<step>{_WHOLE}(?:\.\d+)?)(?P<k>k?)(?:it)?"
    rf"/(?P<steps>{_WHOLE}(?:\.\d+)?)(?P<ks>k?)(?:it)?\s"
)
#: a bar of Keras: `60/500 ━━━━━ 2s 4ms/step - loss: 2.3`
_KERAS = re.compile(rf"^\s*(?P<step>{_WHOLE})/(?P<steps>{_WHOLE})\s+[━╸\[=>.\]]{{3,}}")
#: a bar without a title, or with such a one, counts training
_TRAINING = re.compile(r"^(?:|.*(?:train|epoch|step|iter|fit).*)$", re.IGNORECASE)


class CommonForms:
    """What was found so far. Steps in words count before those of bars, and of bars those with the greatest total:
    an evaluation has a bar of its own."""

    def __init__(self) -> None:
        self.step: Optional[int] = None
        self.steps: Optional[int] = None
        self.loss: Optional[float] = None
        self._in_words = False
        self._last = -1  #: the step of the last line in words
        self._greater = 0  #: lines in words with a greater step than the one before

    def document(self) -> Optional[FoundDocument]:
        """Return what was found; None: nothing."""
        if self.step is None and self.loss is None:
            return None
        return FoundDocument(
            step=self.step, steps=self.steps, loss=self.loss, step_s=None, metrics={}
        )

    def read(self, lines: List[str]) -> None:
        for line in lines:
            self._read_line(line[:WIDTH])

    def _read_line(self, line: str) -> None:
        lower = line.lower()
        match = _BRACKETS.search(line) if "loss" in lower else None
        loss = match or (_LOSS.search(line) if "loss" in lower else None)
        if loss:
            self.loss = float(loss.group("loss").replace(",", ""))
        if match is None and ("step" in lower or "iter" in lower):
            match = _STEP.search(line)
        if match:
            self._read_words(match, has_loss=bool(loss))
        elif not self._in_words and ("|" in line or "/" in line):
            self._read_bar(line)

    def _read_words(self, match: Any, *, has_loss: bool) -> None:
        step = int(match.group("step").replace(",", ""))
        self._greater = self._greater + 1 if step > self._last else 0
        self._last = step
        if has_loss or self._greater >= SURE:
            self._in_words, self.step = True, step
            steps = match.groupdict().get("steps")
            self.steps = int(steps.replace(",", "")) if steps else None

    def _read_bar(self, line: str) -> None:
        match = _BAR.search(line) or _PROGRESS.search(line) or _KERAS.search(line)
        if match is None:
            return
        groups = match.groupdict()
        if not _TRAINING.match((groups.get("title") or "").strip().rstrip(":")):
            return
        step, steps = (
            int(float(groups[name]) * (1000 if groups.get(unit) else 1))
            for name, unit in (("step", "k"), ("steps", "ks"))
        )
        if steps >= (self.steps or 2):
            self.step, self.steps = step, steps
