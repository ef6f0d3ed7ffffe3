"""Golden files: a page as a text file, which a test compares with what is printed now."""

import os
from collections.abc import Mapping

from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "unit" / "cli" / "golden"


def golden(page: str, shown: str | Mapping[str, str]) -> None:
    """Compare a page, or its text in several cases, with its file. With TPUJOB_GOLDEN=write the file is written first,
    to be read and committed."""
    if not isinstance(shown, str):
        shown = "\n\n".join(f"# {case}\n{text}" for case, text in shown.items())
    file, text = FOLDER / f"{page}.txt", shown.strip("\n") + "\n"
    if os.environ.get("TPUJOB_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"TPUJOB_GOLDEN=write writes {file}"
