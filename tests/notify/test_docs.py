"""docs/notifications.md tells the truth: its settings are read, its commands are there, its table has every kind."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from tpujob.cli.app import build
from tpujob.config import notify
from tpujob.domain.notify import tries
from tpujob.domain.notify.model import Kind
from tpujob.domain.spec import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notifications.md").read_text()


def test_the_settings_of_the_page_are_read() -> None:
    (block,) = re.findall(r"```yaml\n(notifications:.*?)```", PAGE, re.S)
    found = notify.Notifications.model_validate(yaml.load(block, "page").data["notifications"])
    assert set(found.channels) == {"lab", "ada", "ops"}
    assert notify.times(found.channels["ada"]).quiet
    assert notify.times(found.channels["ada"]).daily


def test_every_command_of_the_page_is_there() -> None:
    group = get_command(build(["notifications"])).commands["notifications"]  # type: ignore[attr-defined]
    named = set(re.findall(r"\$ tpujob notifications ([a-z]+)", PAGE))
    assert {"list", "test", "replay", "mute", "secret"} == named == set(group.commands)


def test_every_kind_of_news_is_in_the_table_and_urgent_where_it_is() -> None:
    table = PAGE.split("## What is told")[1].split("**Many at once.**")[0]
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| `")][1:]
    told = {kind: row[4].strip() for row in rows for kind in re.findall(r"`([a-z_]+)`", row[1])}
    assert set(told) == {kind for kind in Kind if kind not in (Kind.SUMMARY, Kind.TEST)}
    assert {kind for kind, urgent in told.items() if urgent} == {
        kind for kind in Kind if kind.urgent and kind is not Kind.TEST
    }


def test_the_pauses_are_those_of_the_page() -> None:
    said = re.search(r"after (5 s, .*?), each 10 %", PAGE)
    assert said
    units = {"s": 1, "min": 60, "h": 3600}
    pauses = [int(n) * units[unit] for n, unit in re.findall(r"(\d+) (s|min|h)", said[1])]
    assert pauses == list(tries.PAUSES)
    assert sum(pauses) // 3600 == 75


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tpujob|tests)/[\w./-]*)`", PAGE)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
