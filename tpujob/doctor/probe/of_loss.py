"""The probe of a request for several slices that loses one: tried only when it is named."""

from tpujob.doctor.probe.of_slice import GOING
from tpujob.doctor.probe.probing import ASKING, Probing
from tpujob.doctor.probe.verdicts import Judged, UntriedError, judged
from tpujob.domain.observations import Present, SliceState


def lost_node(probing: Probing) -> Judged:
    """Ask for two slices, delete the node of one, and force the end of the request as soon as it is SUSPENDING."""
    pair, parent = probing.pair, probing.parent
    probing.begin()
    probing.begun |= {pair.name, f"{pair.name}-0", f"{pair.name}-1"}
    asked = probing.cloud.create(pair, timeout=probing.left(ASKING))
    probing.keep(asked)
    if not asked.ok:
        raise UntriedError(asked.said)
    _until_ready(probing)
    probing.ask("delete_node", {"name": f"{parent}/nodes/{pair.name}-0"})
    name, states = f"{parent}/queuedResources/{pair.name}", list[str]()
    forced = False
    for passed in probing.waiting(GOING):
        queued = probing.ask("get_queued_resource", {"name": name})
        if queued.code == "NOT_FOUND":
            return judge(states, passed)
        state = str(queued.body.get("state", {}).get("state", ""))
        states += [state] if state not in states[-1:] else []
        if state.startswith("SUSPEND") and not forced:
            forced = probing.ask("delete_queued_resource", {"name": name, "force": True}).ok
    return judge(states, None)


def judge(states: list[str], gone_after: float | None) -> Judged:
    """`gone_after`: seconds; None: it is still there."""
    end = "still there" if gone_after is None else f"gone after {gone_after:.0f} s"
    return judged(
        "the whole request is SUSPENDING, and ends by force",
        f"{' > '.join(states)}, {end}",
        as_expected=any(state.startswith("SUSPEND") for state in states) and gone_after is not None,
    )


def _until_ready(probing: Probing) -> None:
    for _ in probing.waiting(probing.wait):
        seen = probing.cloud.look(probing.pair, timeout=probing.left(ASKING))
        if isinstance(seen, Present) and seen.state is SliceState.READY:
            return
        if isinstance(seen, Present) and seen.state.lost:
            raise UntriedError(f"it is {seen.state}: {seen.detail}")
    raise UntriedError(f"no capacity for two within {probing.wait / 60:.0f} min")
