"""docs/security.md tells the truth: what it names is there."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "security.md"


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tpujob|tests|configs|deploy)/[\w./-]*)`", PAGE.read_text())
    assert named, "the page has lost its files: is the pattern of this test still right?"
    missing = [path for path in dict.fromkeys(named) if not (ROOT / path).exists()]
    assert not missing, f"docs/security.md names what is not there: {', '.join(missing)}"
