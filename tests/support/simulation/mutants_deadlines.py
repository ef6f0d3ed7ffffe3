"""Planted bugs of deadlines."""

from tests.support.simulation.patches import BUGS, Patch, always, bug, replaced, value_bug
from tpujob.domain.capacity.deadline import JobDeadline, Terms

BUGS["no_net"] = value_bug(
    "a deadline leaves no room", "Q12", JobDeadline, "latest", property(lambda self: self.finish_by)
)
BUGS["the_net_forgets_the_starts"] = value_bug(
    "a deadline leaves no room", "Q12", JobDeadline, "latest",
    property(lambda self: self.finish_by - self.left),
)  # fmt: skip
BUGS["a_safe_slice_is_given_up_behind_the_line"] = value_bug(
    "spot is refused at first", "Q12", JobDeadline, "may_wait", always(True)
)


@bug("far ahead of its deadline", "Q12")
def on_demand_is_requested_ahead_of_the_line() -> Patch:
    def terms(real: object, self: JobDeadline, now: float) -> Terms:
        return Terms.SAFE if now >= self.latest else Terms.EITHER

    return replaced(JobDeadline, "terms", terms)
