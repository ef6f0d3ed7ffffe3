"""Lets the agents of a slice meet before their programs start: each sends one message, and all get all messages.

They meet over the links that they keep while the attempt lasts (`agent/voice/`), which only hosts with its key have.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, cast

from tpujob.agent.base import Check, Failure, Record
from tpujob.agent.preflight.reach import closed_port, unreached
from tpujob.agent.routes import Address
from tpujob.agent.voice import Links, Voice

KIND = "meeting"  #: of words
AGAIN = 1.0  #: seconds until a word without an answer is said again: it may have been lost with its link
ANSWER = 10.0  #: seconds, beyond the patience of host 0, for its answer to arrive
#: seconds without a link to host 0, which was up when its agent was started, after which a host looks whether its
#: machine answers at all; before host 0 listens, its machine refuses connections
CUT_OFF = 30.0


class Meetings:
    """Those of the hosts of one attempt, one after the other. Host 0 collects the messages of each and answers with all
    of them, whoever comes late, too."""

    def __init__(self, host: int, addresses: List[Address], voice: Voice, links: Links) -> None:
        """`addresses`: where hosts listen for links, by host."""
        self._host, self._hosts, self._at, self._links = host, len(addresses), addresses[0], links
        self._round = 0
        self._change = threading.Condition()
        self._words: Dict[int, Dict[int, Record]] = {}  #: by round and host; on host 0
        self._answers: Dict[int, Record] = {}  #: by round
        voice.on[KIND] = self._hear

    def meet(self, message: Record, patience: float, check_stop: Check) -> List[Record]:
        """The messages of all hosts, by host, the same on each of them. Raises Failure that names the hosts that did
        not come in time, or that host 0 cannot be reached from here; Stopped."""
        self._round += 1
        said, until = dict(message, host=self._host), time.monotonic() + patience
        answer = (self._ask if self._host else self._collect)(said, until, check_stop)
        missing = answer.get("missing")
        if missing:
            named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            who = "host" if len(missing) == 1 else "hosts"
            text = "%s %s did not come to the pre-flight within %.0f s" % (who, named, patience)
            raise Failure(text, "PREFLIGHT", late=True)
        return list(answer["words"])

    def _collect(self, said: Record, until: float, check_stop: Check) -> Record:
        with self._change:
            words = self._words.setdefault(self._round, {})
            words[0] = said
            while len(words) < self._hosts and time.monotonic() < until:
                self._wait(check_stop)
            missing = [k for k in range(self._hosts) if k not in words]
            answer: Record = {"words": [words[k] for k in sorted(words)]}
            answer = self._answers[self._round] = {"missing": missing} if missing else answer
            came = [k for k in words if k]
        for host in came:
            self._links.send(host, KIND, {"round": self._round, "said": answer})
        return answer

    def _ask(self, said: Record, until: float, check_stop: Check) -> Record:
        cut_off, again_at = min(until, time.monotonic() + CUT_OFF), 0.0
        while True:
            linked, now = 0 in self._links.linked(), time.monotonic()
            if now >= until + (ANSWER if linked else 0.0):
                return {"missing": [0]}
            if linked or now > cut_off:
                if not linked and closed_port(self._at[0], [self._at[1]], check_stop):
                    raise unreached(self._host, self._at[1])
                cut_off = float("inf")
            if now > again_at:
                self._links.send(0, KIND, {"round": self._round, "said": said})
                again_at = now + AGAIN
            with self._change:
                if self._round not in self._answers:
                    self._wait(check_stop)
                if self._round in self._answers:
                    return self._answers[self._round]

    def _wait(self, check_stop: Check) -> None:
        """For a word, a moment at most. Raises Stopped."""
        check_stop()
        self._change.wait(0.2)

    def _hear(self, host: int, word: Any) -> None:
        """On the thread of the links."""
        word = cast(Record, word if isinstance(word, dict) else {})
        number, said = word.get("round"), word.get("said")
        if type(number) is not int or not isinstance(said, dict):
            return
        said = cast(Record, said)
        with self._change:
            if self._host == 0:
                self._words.setdefault(number, {})[host] = said
            elif host == 0:
                self._answers[number] = said
            self._change.notify_all()
            answer = self._answers.get(number) if self._host == 0 else None
        if answer is not None:
            self._links.send(host, KIND, {"round": number, "said": answer})
