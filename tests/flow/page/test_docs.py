"""docs/page.md tells the truth: its files are there, its pictures are made, its addresses are answered."""

import re

import httpx

from tests.flow.page import lab
from tests.flow.page.conftest import Site
from tests.flow.page.pages import PAGES
from tests.support.paths import ROOT
from tpujob.web.pages.frame import NAVIGATION

PAGE = (ROOT / "docs" / "page.md").read_text()


def test_every_file_that_the_page_names_is_there():
    named = re.findall(r"`((?:tests|tpujob|docs)/[\w./-]+)`", PAGE)
    linked = re.findall(r"\]\(([^)#]+)\)", PAGE)
    missing = [path for path in named if not (ROOT / path).exists()]
    missing += [path for path in linked if not (ROOT / "docs" / path).exists()]
    assert named
    assert not missing


def test_every_picture_is_of_a_page_and_shown():
    made = {shown.name for shown in PAGES if shown.picture}
    pictures = {file.stem for file in (ROOT / "docs" / "page").glob("*.png")}
    in_text = set(re.findall(r"page/([\w-]+)\.png", PAGE + (ROOT / "README.md").read_text()))
    assert pictures == made == in_text


def test_every_address_is_answered(site: Site):
    site.store_jobs([lab.job_in(lab.State.RUNNING)])
    table = PAGE.split("## What each page shows")[1].split("Each address")[0]
    addresses = re.findall(r"^\| [^|]+ \| `([^`]+)` \|", table, re.M)
    assert addresses
    for address in addresses:
        path = address.replace("ID", "000001").replace("ACTION", "cancel")
        assert httpx.get(site.url + path, headers={"accept": "text/html"}).status_code == 200, path
    listed = {address.partition("?")[0] for address in addresses}
    led_to = {path for path, _ in NAVIGATION}
    shown = {path for path in led_to if httpx.get(site.url + path).status_code == 200}
    assert shown <= listed, "a page that the bar leads to is not described"
