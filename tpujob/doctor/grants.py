"""What a programme such as the TPU Research Cloud gave, read from a short form or from its e-mail. Pure."""

import re
from typing import Any

from tpujob.domain.hardware import accelerators
from tpujob.errors import BadRequest, BadSpec

#: one line of such an e-mail: `64 spot Cloud TPU v5e chips in zone europe-west4-b`; older ones count `v2-8 device(s)`
_LINE = re.compile(
    r"(?P<count>[\d,]+)\s+(?P<pricing>spot|preemptible|on-demand|reserved)\s+(?:Cloud\s+)?TPU\s+"
    r"(?P<type>v\d+[a-z]*(?:-\d+)?)\s+(?P<unit>chips?|devices?|device\(s\)|cores?)\s+in\s+(?:the\s+)?zone\s+"
    r"(?P<zone>[a-z]+-[a-z]+\d+-[a-z]+\d*[a-z]?)",
    re.IGNORECASE,
)
_SHORT = "TYPE:ZONE:PRICING:CHIPS, such as v4:us-central2-b:spot:32"


def of_option(text: str) -> dict[str, Any]:
    """The fields of a grant in its short form, not yet checked. Raises BadRequest."""
    parts = text.split(":")
    if len(parts) != 4 or not parts[3].isdecimal():
        raise BadRequest(f"--grant {text!r} is no grant", hint=f"write {_SHORT}")
    type, zone, pricing, chips = parts
    return {"type": type, "zone": zone, "pricing": pricing, "chips": int(chips)}


def of_letter(text: str) -> list[dict[str, Any]]:
    """The fields of every grant in an e-mail, in its order; whatever else it says is passed over. Raises BadRequest
    when there is none."""
    found = [_of_line(match) for match in _LINE.finditer(" ".join(text.split()))]
    if not found:
        raise BadRequest(
            "no grant is found in that text: a line of one is `32 spot Cloud TPU v4 chips in zone us-central2-b`",
            hint=f"say each with --grant {_SHORT}",
        )
    return list({repr(grant): grant for grant in found}.values())


def _of_line(match: re.Match[str]) -> dict[str, Any]:
    pricing = match["pricing"].lower()
    generation, _, _ = match["type"].lower().partition("-")
    return {
        "type": generation,
        "zone": match["zone"].lower(),
        "pricing": "spot" if pricing == "preemptible" else pricing,
        "chips": _chips(match),
    }


def _chips(match: re.Match[str]) -> int:
    """Of what is counted: chips, halves of one, or devices such as v2-8, which have four."""
    count, unit = int(match["count"].replace(",", "")), match["unit"].lower()
    if unit.startswith("core"):
        return count // 2
    if not unit.startswith("device") or "-" not in match["type"]:
        return count
    try:
        return count * accelerators.find(match["type"].lower()).chips
    except BadSpec as error:
        raise BadRequest(f"the grant names a type that is not known: {error.message}") from error
