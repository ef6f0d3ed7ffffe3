"""Ten long runs in one page: one crosshair over all charts, within bounds of bytes and of work for the browser."""

import re

from playwright.sync_api import expect

from tests.flow.page import sweeps
from tests.flow.page.conftest import WIDE, OpenTab, Site
from tests.flow.page.story import axe, fits, no_inline
from tests.nightly.page.test_weight import first_view
from tests.support.callers import ADA

RUNS, STEPS = 10, 100_000
MOST_BYTES = 200_000
#: moves the pointer a hundred times; ms that the scripts worked in the frame after each, the longest first
MOVES = """async () => {
    const plot = document.querySelector(".plot"), { left, top, width } = plot.getBoundingClientRect(), times = [];
    const frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    for (let n = 0; n < 100; n++) {
        const begun = frame(); // comes before the work of that frame
        const place = { clientX: left + (n * width) / 100, clientY: top + 9 };
        plot.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, ...place }));
        times.push((await frame()) - (await begun));
    }
    return times.sort((a, b) => b - a);
}"""


def test_ten_runs_of_a_hundred_thousand_steps_are_light_and_have_one_crosshair(
    site: Site, open_tab: OpenTab
):
    matrix = {"lr": [10.0**-n for n in range(1, 1 + RUNS // 2)], "seed": [1, 2]}
    group, elements = sweeps.make(site.stage, ADA, matrix=matrix)
    for element in elements:
        sweeps.train(site.stage, element, STEPS)
    page = open_tab(view=WIDE)
    size, _ = first_view(page, f"/compare?jobs={group}")
    print(f"ten runs: {size:,} bytes")
    assert size <= MOST_BYTES
    plots = page.locator(".chart .plot")
    expect(plots).to_have_count(4)
    loss = page.locator("[data-chart=loss]")
    last = loss.locator(".runs b").all_text_contents()
    loss.locator(".plot").hover(position={"x": 100, "y": 60})
    expect(loss.locator("output")).to_have_text(re.compile(r"^step [\d,]+$"))
    crosses = [cross.get_attribute("d") for cross in page.locator(".cross").all()]
    assert len({*crosses}) == 1, "at the same place in every chart"
    assert crosses[0]
    for chart in page.locator(".chart").all():
        expect(chart.locator(".runs b").first).to_have_text(re.compile(r"\d"))
    assert loss.locator(".runs b").all_text_contents() != last, "the values there"
    times = page.evaluate(MOVES)
    print(
        f"a move of the pointer: {times[0]:.1f} ms of script at worst, {times[50]:.1f} in the middle"
    )
    page.mouse.move(2, 2)
    expect(loss.locator("output")).to_be_empty()
    assert loss.locator(".runs b").all_text_contents() == last, "the last values again"
    loss.locator(".runs li").first.hover()
    expect(loss.locator("polyline.dimmed")).to_have_count(RUNS - 1)
    axe(page)
    no_inline(page)
    fits(page)


def test_an_open_comparison_grows_with_its_runs(site: Site, open_tab: OpenTab):
    group, elements = sweeps.make(site.stage, ADA)
    for element in elements[:2]:
        sweeps.train(site.stage, element, 300)
    page = open_tab(f"/compare?jobs={group}")
    loss = page.locator("[data-chart=loss]")
    expect(loss.locator(".plot")).to_have_attribute("data-range", re.compile(" 300$"))
    site.stage.clock.sleep(20)
    sweeps.train(site.stage, elements[0], 600)
    site.changes.poke()
    expect(loss.locator(".plot")).to_have_attribute("data-range", re.compile(" 600$"))
    page.get_by_role("link", name="Log").click()
    expect(loss.locator(".plot[data-log]")).to_have_count(1)
    assert "log=1" in page.url
