"""The frame of every page, its twin, its headers, its files; and a page for each error."""

import base64
import hashlib
import json

import httpx
import pytest
from playwright.sync_api import Browser

from tests.flow.page.conftest import HTML, Site, Watched
from tests.support.paths import ROOT
from tpujob.web.pages.frame import POLICY, assets

VENDOR = ROOT / "tpujob" / "web" / "static" / "vendor"


def test_what_is_vendored_is_what_the_lock_says():
    lock = json.loads((VENDOR / "LOCK.json").read_text())
    locked = {
        file["file"]: file["sha384"] for package in lock["packages"] for file in package["files"]
    }
    vendored = {
        path.name: base64.b64encode(hashlib.sha384(path.read_bytes()).digest()).decode()
        for path in VENDOR.iterdir()
        if path.name != "LOCK.json"
    }
    assert vendored == locked
    assert all(package["licence"] for package in lock["packages"])


def test_a_page_may_run_nothing_that_is_not_served_here(site: Site):
    page = httpx.get(site.url, headers=HTML)
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"


def test_a_file_is_kept_for_good_and_its_address_changes_with_its_content(site: Site):
    asset = assets()["app.css"]
    digest = hashlib.sha384(asset.body).hexdigest()
    assert digest[:8] in asset.address
    answer = httpx.get(site.url + asset.address)
    assert answer.content == asset.body
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert answer.headers["content-encoding"] == "gzip"
    assert httpx.get(f"{site.url}/static/app.00000000.css").status_code == 404
    assert httpx.get(f"{site.url}/static/LOCK.json").status_code == 404


# The policy: each tab of each test is watched (`conftest.py`), and these show that it would notice -------------------


TRIES = {
    "an inline script": "document.body.append(Object.assign(document.createElement('script'), {text: 'ran = 1'}))",
    "an inline handler": "document.body.setAttribute('onclick', 'ran = 1'); document.body.click()",
    "a style attribute": "document.body.setAttribute('style', 'color: red')",
    "a picture from elsewhere": "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))",
    "a request to another site": "fetch('http://127.0.0.1:9/').catch(() => 0)",
}


@pytest.mark.parametrize("tried", TRIES)
def test_what_the_policy_forbids_is_refused_and_noticed(chromium: Browser, site: Site, tried: str):
    context = chromium.new_context(base_url=site.url)
    watched = Watched(context)
    page = context.new_page()
    page.goto("/")
    page.evaluate(
        f"""() => new Promise((resolve) => {{
            document.addEventListener('securitypolicyviolation', () => setTimeout(resolve));
            {TRIES[tried]};
        }})"""
    )
    assert page.evaluate("window.ran") is None
    with pytest.raises(AssertionError, match=r"policy: |requested another site"):
        watched.check(site.url)
    context.close()
