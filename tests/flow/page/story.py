"""Assertions that hold of any page."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.flow.page import lab


def axe(page: Page) -> None:
    """Fails with what axe-core finds, and where."""
    results: Any = Axe().run(page)
    wrong = [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}\n    {node['failureSummary']}"
        for rule in results.response["violations"]
        for node in rule["nodes"]
    ]
    assert not wrong, f"{page.url}\n" + "\n".join(wrong)


def no_inline(page: Page) -> None:
    """Fails when the page has a style, a script or a handler written into it."""
    inline = page.evaluate(
        """() => [...document.querySelectorAll('*')].filter(
            (one) => [...one.attributes].some(({ name }) => name === 'style' || name.startsWith('on'))
                || one.tagName === 'STYLE' || (one.tagName === 'SCRIPT' && !one.src)
        ).map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert not inline, inline


def fits(page: Page) -> None:
    """Fails when the page is wider than the window."""
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0, f"{page.url} is {wide} px wider than the window"


STORES = {"empty": list, "full": lab.full, "failing": lab.failing}
