"""One run of the probes: what it asks, what it has made, and how much time is left to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tpujob.doctor.probe.cloud import SERVICE_OFF, TRANSIENT, Answer, ProbedCloud
from tpujob.doctor.probe.spend import Budget, Choice
from tpujob.doctor.probe.verdicts import UntriedError
from tpujob.domain.model import Endpoint, Slice
from tpujob.errors import TpujobError
from tpujob.ports import Clock

#: seconds that one question may take, and one look at a host
ASKING, ON_HOST = 20.0, 60.0
#: of one list
MOST_PAGES = 50


@dataclass(slots=True)
class Probing:
    """Probes get it in the order of the table: a later one builds upon what an earlier one left here."""

    cloud: ProbedCloud
    clock: Clock
    choice: Choice
    budget: Budget
    slice: Slice  #: with its addresses, once it is there
    workdir: str  #: a folder in the bucket of the slice's region; empty: there is no bucket
    project: str
    wait: float  #: seconds for capacity
    poll: float  #: seconds between two looks, at most
    say: Callable[[str], None]
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  #: to this probe
    begun: set[str] = field(default_factory=set[str])  #: names of what may be there
    unsure: set[str] = field(
        default_factory=set[str]
    )  #: of them, those whose request got no answer so far
    spent_s: float = 0.0  #: for which earlier slices were held
    asked_at: float | None = (
        None  #: the slice was asked for, or last seen not to be ready: nothing is billed before
    )
    had_slice: bool = False  #: it was there at some time
    ready_at: float | None = None
    deleted_at: float | None = None  #: its end was asked for
    problem: str = "it was not asked for"  #: why there is no slice
    off: str = ""  #: Cloud TPU answers nothing any more, in its own words: the rest cannot be tried
    usage_before: Mapping[str, int] | None = None  #: of quotas, by name and place
    usage_waiting: Mapping[str, int] | None = None  #: the same while the request was waiting

    # Asking

    def ask(self, method: str, request: Mapping[str, Any], *, version: str = "v2") -> Answer:
        answer = self.cloud.call(method, request, timeout=self.left(ASKING), version=version)
        self.keep(answer, request)
        return answer

    def pages(self, method: str, request: Mapping[str, Any]) -> list[Answer]:
        """Every page of a list, up to one that is refused."""
        found: list[Answer] = []
        token = ""
        while len(found) < MOST_PAGES:
            found.append(self.ask(method, {**request, "page_token": token}))
            token = str(found[-1].body.get("nextPageToken", ""))
            if not token:
                break
        return found

    def rest(
        self, host: str, path: str, body: Mapping[str, Any] | None = None, **params: str
    ) -> Answer:
        answer = self.cloud.rest(host, path, body, timeout=self.left(ASKING), **params)
        self.keep(answer, body or params)
        return answer

    def on_host(self, part: str, seconds: float = ON_HOST, **about: Any) -> Any:
        """Raises UntriedError where there is no host, or it gives no answer."""
        self.insist_on_host()
        try:
            found = self.cloud.on_host(self.slice, part, about, timeout=self.left(seconds))
        except TpujobError as error:
            raise UntriedError(f"the host gave no answer: {error.message}") from error
        self.answers.append({"on_host": part, "answer": found})
        return found

    def keep(self, answer: Answer, request: Mapping[str, Any] | None = None) -> None:
        """Into the file of the probe that is under way."""
        if answer.read_as == SERVICE_OFF:
            self.off = answer.said
        said = {"code": answer.code, "message": answer.message, "read_as": answer.read_as}
        self.answers.append(
            {
                "doing": answer.doing,
                "request": _plain(request or {}),
                "answer": answer.body if answer.ok else said,
                "seconds": round(answer.seconds, 2),
            }
        )

    def waiting(self, seconds: float) -> Iterator[float]:
        """Now and again, for `seconds`: how long it has been so far. Raises as `left` does."""
        began = self.clock.now()
        while (passed := self.clock.now() - began) < seconds:
            self.left(1)
            yield passed
            self.clock.sleep(pause(passed, self.poll))

    def ask_for(self, id: str, zone: str, type: str) -> Answer:
        """A plain request for a spot slice, without any mark of ours."""
        parent = self.cloud.parent(zone)
        node = {"accelerator_type": type, "runtime_version": self.choice.runtime_version}
        spec = {"parent": parent, "node_id": id, "node": node}
        queued = {"tpu": {"node_spec": [spec]}, "spot": {}}
        asked = {"parent": parent, "queued_resource_id": id, "queued_resource": queued}
        self.begun.add(id)
        self.unsure.add(id)
        return self._made(id, self.ask("create_queued_resource", asked))

    def create(self) -> Answer:
        """Ask for the slice; its time runs from here."""
        self.begin()
        self.begun.add(self.slice.name)
        self.unsure.add(self.slice.name)
        answer = self.cloud.create(self.slice, timeout=self.left(ASKING))
        self.keep(answer)
        return self._made(self.slice.name, answer)

    def _made(self, name: str, answer: Answer) -> Answer:
        """A clear refusal has made nothing, unless the name was in use."""
        if answer.read_as != TRANSIENT:
            self.unsure.discard(name)
        if not answer.ok and answer.read_as != TRANSIENT and answer.code != "ALREADY_EXISTS":
            self.begun.discard(name)
        return answer

    def not_ready_yet(self) -> None:
        """Seen just now, so nothing has been billed so far."""
        self.asked_at = self.clock.now()

    def ready(self, endpoints: Sequence[Endpoint]) -> None:
        now = self.clock.now()
        self.ready_at, self.had_slice = now, True
        self.slice = replace(self.slice, endpoints=tuple(endpoints), ready_at=now)

    def begin(self) -> None:
        """What is asked for next may cost from now on. Raises UntriedError when the budget is used up."""
        self._rest()
        self.asked_at, self.deleted_at, self.ready_at = self.clock.now(), None, None

    def delete(self) -> Answer:
        """Ask for its end, also when the budget is used up."""
        answer = self.cloud.delete(self.slice, timeout=ASKING)
        self.keep(answer)
        if answer.ok:
            self.ended("it was deleted")
        return answer

    def ended(self, how: str) -> None:
        """Its end was asked for, and accepted."""
        self.spent_s, self.deleted_at, self.problem = self.held_s(), self.clock.now(), how

    # What there is

    @property
    def parent(self) -> str:
        return self.cloud.parent(self.choice.zone)

    @property
    def node_name(self) -> str:
        return f"{self.parent}/nodes/{self.slice.name}"

    @property
    def queued_name(self) -> str:
        return f"{self.parent}/queuedResources/{self.slice.name}"

    @property
    def refused_name(self) -> str:
        """Of a request that must be refused; if it is not, it is cleaned up like the slice."""
        return f"{self.slice.name}-no"

    @property
    def pair(self) -> Slice:
        """Two slices that are asked for at once."""
        return replace(self.slice, name=f"{self.slice.name}-two", tpu_slices=2, endpoints=())

    def names(self) -> tuple[str, ...]:
        """Of everything that the probes may make; the API numbers the nodes of several slices."""
        several = (self.pair.name, *(f"{self.pair.name}-{place}" for place in (0, 1)))
        return (self.slice.name, self.refused_name, *several)

    def insist_on_slice(self) -> None:
        """Raises UntriedError unless the slice is there and may still be used."""
        if self.ready_at is None or self.deleted_at is not None:
            raise UntriedError(f"there is no slice: {self.problem}")
        self.left(1)

    def insist_on_host(self) -> None:
        self.insist_on_slice()
        if not self.slice.endpoints:
            raise UntriedError("the slice has no addresses")

    # What is left

    def held_s(self) -> float:
        """Seconds for which slices may have been billed, from the last look at which each was not ready to the end that
        was asked for."""
        holding = self.asked_at is not None and self.deleted_at is None
        return self.spent_s + (self.clock.now() - (self.asked_at or 0.0) if holding else 0.0)

    def left(self, most: float) -> float:
        """Seconds that one step may take. Raises UntriedError when nothing answers any more, or while something is held
        and the budget is used up."""
        if self.off:
            raise UntriedError(self.off)
        if self.asked_at is None or self.deleted_at is not None:
            return most
        return min(most, self._rest())

    def _rest(self) -> float:
        rest = self.budget.seconds - self.held_s()
        if rest <= 0:
            used_up = (
                f"the cap of ${self.budget.cap:.2f} is reached"
                if self.budget.by_cap
                else f"the {self.budget.seconds / 60:.0f} min for the probes are over"
            )
            raise UntriedError(used_up)
        return rest


def pause(passed: float, most: float) -> float:
    """Seconds until the next look, after so many: states pass quickly at first, and slowly later."""
    return min(most, max(most / 5, passed / 10))


def _plain(request: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if value not in ("", None)}
