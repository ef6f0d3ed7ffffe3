"""Grants of chips, from a short form and from the e-mail of the TPU Research Cloud."""

from __future__ import annotations

import pytest

from tpujob.config import context
from tpujob.doctor import quota
from tpujob.errors import BadRequest

LETTER = """
Hello,

Thanks for your interest. You have been granted free access to:

 * 32 on-demand Cloud TPU v4 chips in zone us-central2-b
 * 32 spot Cloud TPU v4
   chips in zone us-central2-b
 * 64 spot Cloud TPU v5e chips in zone europe-west4-b
 * 64 spot Cloud TPU v6e chips in zone us-east1-d
 * 5 on-demand Cloud TPU v2-8 device(s) in zone us-central1-f
 * 1,024 preemptible Cloud TPU v3 cores in zone europe-west4-a

IMPORTANT: 100 people read this in zone 1.
"""


def grant(type: str, zone: str, pricing: str, chips: int) -> dict[str, object]:
    return {"type": type, "zone": zone, "pricing": pricing, "chips": chips}


def test_every_grant_of_a_letter_is_found_in_its_order() -> None:
    found = quota.of_letter(LETTER + LETTER)
    assert found == [
        grant("v4", "us-central2-b", "on-demand", 32),
        grant("v4", "us-central2-b", "spot", 32),
        grant("v5e", "europe-west4-b", "spot", 64),
        grant("v6e", "us-east1-d", "spot", 64),
        grant("v2", "us-central1-f", "on-demand", 20),
        grant("v3", "europe-west4-a", "spot", 512),
    ]
    zones = list(dict.fromkeys(str(g["zone"]) for g in found))
    made = context.make({"name": "trc", "project": "my-lab-1", "zones": zones, "grants": found})
    assert len(made.grants) == 6


def test_a_letter_without_a_grant_says_what_a_line_of_one_looks_like() -> None:
    with pytest.raises(BadRequest, match="32 spot Cloud TPU v4 chips in zone us-central2-b"):
        quota.of_letter("we regret to inform you")
    with pytest.raises(BadRequest, match="v2-7"):
        quota.of_letter("5 spot Cloud TPU v2-7 devices in zone us-central1-f")


def test_the_short_form() -> None:
    assert quota.of_option("v4:us-central2-b:spot:32") == grant("v4", "us-central2-b", "spot", 32)
    for bad in ("", "v4", "v4:us-central2-b:spot", "v4:us-central2-b:spot:many", "a:b:c:1:2"):
        with pytest.raises(BadRequest, match="is not a grant"):
            quota.of_option(bad)
