"""The policy holds: what it forbids does not happen, and the tests would notice.

Each tab of each test here is watched (`conftest.py`): a violation, an error in the console or a request to somebody
else fails that test.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.flow.page.conftest import Site, Watched

TRIES = {
    "an inline script": "document.body.append(Object.assign(document.createElement('script'), {text: 'ran = 1'}))",
    "an inline handler": "document.body.setAttribute('onclick', 'ran = 1'); document.body.click()",
    "a style attribute": "document.body.setAttribute('style', 'color: red')",
    "a picture from elsewhere": "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))",
    "a request to somebody else": "fetch('http://127.0.0.1:9/').catch(() => 0)",
}


@pytest.mark.parametrize("tried", TRIES)
def test_what_the_policy_forbids_is_refused_and_noticed(chromium: Browser, site: Site, tried: str):
    context = chromium.new_context(base_url=site.url)
    watched = Watched(context)
    page = context.new_page()
    page.goto("/")
    page.evaluate(
        f"""() => new Promise((told) => {{
            document.addEventListener('securitypolicyviolation', () => setTimeout(told));
            {TRIES[tried]};
        }})"""
    )
    assert page.evaluate("window.ran") is None
    with pytest.raises(AssertionError, match=r"policy: |asked somebody else"):
        watched.check(site.url)
    context.close()
