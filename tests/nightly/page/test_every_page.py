"""Promises of every page: it is accessible, narrow enough, and has nothing written into it."""

import pytest

from tests.flow.page.conftest import OpenTab, Site
from tests.flow.page.pages import PAGES, Shown
from tests.flow.page.story import STORES, axe, fits, no_inline

each_page = pytest.mark.parametrize("shown", PAGES, ids=lambda shown: shown.name)


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("store", STORES)
@each_page
def test_a_page_is_accessible_whatever_is_in_it(
    site: Site, open_tab: OpenTab, shown: Shown, store: str, dark: bool
):
    site.store_jobs(STORES[store]())
    page = open_tab(shown.path, dark=dark, allowed=shown.said)
    axe(page)
    no_inline(page)
    fits(page)
    page.set_viewport_size({"width": 320, "height": 700})
    fits(page)


def test_these_checks_can_fail(site: Site, open_tab: OpenTab):
    page = open_tab("/", allowed=("inline event handler", "script-src-attr inline"))
    page.evaluate(
        """() => {
            document.querySelector('main').insertAdjacentHTML('beforeend', '<input><p onclick="x">');
            document.querySelector('main').firstElementChild.className = 'hidden';
            document.querySelector('main').insertAdjacentHTML('beforeend', '<table><td>' + 'w'.repeat(500));
        }"""
    )
    with pytest.raises(AssertionError, match="label"):
        axe(page)
    with pytest.raises(AssertionError, match="onclick"):
        no_inline(page)
    with pytest.raises(AssertionError, match="wider"):
        fits(page)
