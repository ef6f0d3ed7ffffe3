"""Runs side by side: from the list, from a sweep and from a job, without scripts as with them."""

from playwright.sync_api import expect

from tests.flow.page import lab, past, sweeps
from tests.flow.page.conftest import NARROW, OpenTab, Site
from tests.flow.page.story import axe, fits
from tests.support.callers import ADA
from tpujob.domain.model import State


def test_rows_of_the_list_are_compared_without_scripts(site: Site, open_tab: OpenTab) -> None:
    _, elements = sweeps.make(site.stage, ADA)
    for element in elements[:2]:
        sweeps.train(site.stage, element, 200)
    page = open_tab("/?show=all", scripts=False)
    for element in elements[:2]:
        page.get_by_label(f"Select job {element}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 jobs")
    loss = page.locator("[data-chart=loss]")
    expect(loss.locator("polyline")).to_have_count(2)
    expect(loss.locator(".runs li bdi")).to_have_text(["seed=2", "seed=1"])
    page.get_by_role("link", name="Log").click()
    page.get_by_role("link", name="Time").click()
    page.get_by_role("link", name="0.9", exact=True).click()
    expect(loss.locator(".plot")).to_have_attribute("data-log", "")
    assert all(part in page.url for part in ("log=1", "x=time", "smooth=0.9"))
    page.get_by_role("link", name="Spec and files").click()
    expect(page.get_by_role("heading", name="Spec")).to_be_visible()
    page.get_by_role("link", name="Curves").click()
    expect(loss).to_be_visible()


def test_a_sweep_is_sorted_by_any_column_and_its_best_run_stands_out(site: Site) -> None:
    group, elements = sweeps.make(site.stage, ADA)
    for element, loss in zip(elements, (5.0, 4.0, 3.0, 2.0, 6.0, 7.0), strict=True):
        sweeps.train(site.stage, element, 60, loss=loss, metrics={"accuracy": loss / 10})

    def order(query: str) -> list[str]:
        table = site.page(f"/jobs/{group}{query}").text.partition('id="sweep-table"')[2]
        return [part[:6] for part in table.split('href="../jobs/')[1:]][: len(elements)]

    by_loss = [elements[n] for n in (3, 2, 1, 0, 4, 5)]
    assert order("") == by_loss, "the lowest loss first"
    assert order("?order=accuracy") == by_loss[::-1], "the highest accuracy first"
    assert order("?order=accuracy&reverse=1") == by_loss
    assert order("?order=param.seed")[:3] == elements[::2]
    page = site.page(f"/jobs/{group}?order=accuracy").text
    assert 'data-chart="accuracy"' in page
    assert (
        f"<bdi>{site.api.get(elements[5])['name']}</bdi>"
        in page.partition('<tr class="best"')[2][:900]
    )
    assert "Parallel coordinates" in page


def test_a_job_is_compared_with_another_by_its_form(site: Site, open_tab: OpenTab) -> None:
    job = past.preempted(site.stage, ADA)
    (other,) = site.store_jobs([lab.job_in(State.RUNNING)])
    page = open_tab(f"/jobs/{job}", view=NARROW, allowed=["404"])
    page.get_by_label("With").fill(other.id)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 jobs")
    expect(page.locator("[data-chart=loss] .marks use")).not_to_have_count(0)
    axe(page)
    fits(page)
