"""docs/architecture.md tells the truth: every file that it names is there, and every room is in the picture."""

import re

import pytest

from tests.support.paths import ROOT
from tpujob.domain.model import State

CHECKLISTS = [f"contributing/{page.stem}" for page in (ROOT / "docs" / "contributing").glob("*.md")]
PAGE = ROOT / "docs" / "architecture.md"


@pytest.mark.parametrize("name", ["architecture", "security", *sorted(CHECKLISTS)])
def test_every_file_that_a_page_names_exists(name: str):
    page = (ROOT / "docs" / f"{name}.md").read_text()
    named = set(re.findall(r"`((?:tpujob|workloads|tests|configs|deploy)/[\w./-]*)`", page))
    assert named, "the page has lost its files: is the pattern of this test still right?"
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing, f"docs/{name}.md names what is not there: {', '.join(missing)}"


def test_a_checklist_can_be_kept_in_mind():
    for name in CHECKLISTS:
        steps = re.findall(r"^\d+\. ", (ROOT / "docs" / f"{name}.md").read_text(), re.M)
        assert 3 <= len(steps) <= 9, f"docs/{name}.md has {len(steps)} steps"


def test_the_drawing_of_the_states_has_every_state():
    drawing = PAGE.read_text().split("## The states")[1].split("## ")[0]
    missing = [state for state in State if state not in drawing]
    assert not missing, f"not in the drawing: {', '.join(missing)}"


def test_the_picture_shows_every_room_of_the_product():
    picture = PAGE.read_text().split("## The rooms")[1].split("## The words")[0]
    rooms = [f.parent.name for f in (ROOT / "tpujob").glob("*/__init__.py")]
    missing = [room for room in rooms if not re.search(rf"\b{room}/", picture)]
    assert not missing, f"not in the picture: {', '.join(missing)}"


def test_every_package_says_what_belongs_there_and_what_does_not():
    for face in (ROOT / "tpujob").rglob("__init__.py"):
        words = face.read_text().partition('"""')[2].partition('"""')[0].split()
        assert face.parent == ROOT / "tpujob" or len(words) >= 15, (
            f"{face.relative_to(ROOT)} should say in about three lines what belongs there, and what does not"
        )


def test_what_the_tests_and_benches_import_of_each_other_is_there():
    """Benches run by hand alone: nothing else shows that one lost its helper."""
    for file in (ROOT / "tests").rglob("*.py"):
        for name in re.findall(r"^from (tests(?:\.\w+)+) import", file.read_text(), re.M):
            path = ROOT.joinpath(*name.split("."))
            assert path.is_dir() or path.with_suffix(".py").is_file(), f"{file}: no {name}"
