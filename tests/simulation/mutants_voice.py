"""Bugs planted into how the hosts of a slice speak with one voice, and into how that is heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.patches import Patch, replaced
from tpujob.agent.voice.roll import GAP, Roll
from tpujob.domain.host import hearing
from tpujob.domain.host.hearing import Hearing


def the_speaker_never_gives_way() -> Patch:
    """Who has spoken once speaks on, whomever it reaches."""

    def make(real: Any) -> Any:
        def speaker(self: Any, now: float) -> Any:
            self.spoke = getattr(self, "spoke", False) or real(self, now) == self._host
            return self._host if self.spoke else real(self, now)

        return speaker

    return replaced(Roll, "speaker", make)


def a_silent_peer_is_not_told() -> Patch:
    """Before the next report is due for other reasons."""

    def make(real: Any) -> Any:
        def due(self: Any, now: float) -> bool:
            silent = any(word.age > 30 for word in self.words(now))
            return real(self, now) and not silent

        return due

    return replaced(Roll, "due", make)


def the_older_word_wins() -> Patch:
    """Of two who speak for a host: the one that lies first in the list."""

    def make(real: Any) -> Any:
        def hear(self: Any, job: Any, blobs: Any, **more: Any) -> Any:
            found: dict[int, Any] = {}
            for blob in blobs:
                alone = Hearing(self.attempt)
                for report in real(alone, job, [blob], **more):
                    found.setdefault(report.host, report)
                    self.words.setdefault(report.host, alone.words[report.host])
            return tuple(found[host] for host in sorted(found))

        return hear

    return replaced(Hearing, "hear", make)


def ages_are_forgotten() -> Patch:
    """What was said long ago looks fresh, as the object is."""

    def make(real: Any) -> Any:
        def words(self: Any, now: float) -> Any:
            return [word._replace(age=0.0) for word in real(self, now)]

        return words

    return replaced(Roll, "words", make)


def nobody_speaks_for_itself() -> Patch:
    """A host that reaches nobody waits until it does."""

    def make(real: Any) -> Any:
        def speaker(self: Any, now: float) -> Any:
            found = real(self, now)
            return found if found != self._host or found == 0 else None

        return speaker

    return replaced(Roll, "speaker", make)


def what_was_refused_is_never_tried_again() -> Patch:
    """Neither that, nor anything later."""

    def make(real: Any) -> Any:
        def due(self: Any, now: float) -> bool:
            return self._delay == GAP and real(self, now)

        return due

    return replaced(Roll, "due", make)


def what_matters_waits() -> Patch:
    """For the next report."""

    def make(real: Any) -> Any:
        def due(self: Any, now: float) -> bool:
            late = now - getattr(self, "last", -1e9) >= 60
            found = late and real(self, now)
            self.last = now if found else getattr(self, "last", -1e9)
            return found

        return due

    return replaced(Roll, "due", make)


def who_is_relied_upon_writes_nothing() -> Patch:
    """While it reaches a host before it, which those that tell it may not reach."""

    def make(real: Any) -> Any:
        def due(self: Any, now: float) -> bool:
            return real(self, now) and self.speaker(now) == self._host

        return due

    return replaced(Roll, "due", make)


def what_was_overwritten_disturbs_for_ever() -> Patch:
    """Also when nobody has written there for hours."""
    return replaced(hearing, "DISTURBS", lambda _: float("inf"))


def one_word_is_taken_for_all() -> Patch:
    """What the first host says counts for every other one that was heard."""

    def make(real: Any) -> Any:
        def words(self: Any, now: float) -> Any:
            found = real(self, now)
            said = {k: v for k, v in found[0].said.items() if k not in ("host", "seq")}
            return [word._replace(said={**word.said, **said}) for word in found]

        return words

    return replaced(Roll, "words", make)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        the_speaker_never_gives_way, a_silent_peer_is_not_told, the_older_word_wins, ages_are_forgotten,
        nobody_speaks_for_itself, what_was_refused_is_never_tried_again, what_matters_waits,
        one_word_is_taken_for_all, who_is_relied_upon_writes_nothing,
        what_was_overwritten_disturbs_for_ever,
    )
}  # fmt: skip
