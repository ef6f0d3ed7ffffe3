"""`notifications:` of a context: its channels and rules, and its errors."""

import re
from typing import Any, cast

import pytest

from tests.support.paths import ROOT
from tests.support.world import Clock
from tpujob.config.notifications import NotificationSettings, parse
from tpujob.domain.notifications.model import NotificationKind
from tpujob.domain.spec import yaml
from tpujob.errors import BadSpec
from tpujob.wiring.notifications import build_setup

PAGE = ROOT / "docs" / "notifications.md"


def test_the_settings_of_the_page_become_channels_and_rules() -> None:
    (block,) = re.findall(r"```yaml\n(notifications:.*?)```", PAGE.read_text(), re.S)
    settings = NotificationSettings.model_validate(yaml.load(block, "page").data["notifications"])
    setup = build_setup(settings, cast(Any, None), Clock(), "")
    assert {name: channel.kind for name, channel in setup.channels.items()} == {
        "lab": "slack",
        "ada": "email",
        "ops": "webhook",
    }
    assert setup.rules[2].on == {
        NotificationKind.FAILED,
        NotificationKind.STUCK,
        NotificationKind.LEAK,
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("channels: {lab: {}}", "needs exactly one of slack, email and webhook, and has none"),
        ("channels: {lab: {webhook: 'https://x'}}", "webhook and keys go together"),
        ("channels: {lab: {email: a@b.org}}", "channel lab needs smtp, the mail server"),
        ("rules: [{channels: [lab]}]", "rules name the channel lab; there are: none"),
        ("channels: {lab: {slak: X}}", "slack"),
    ],
)
def test_errors_name_the_wrong_part(text: str, error: str) -> None:
    with pytest.raises(BadSpec, match=error):
        parse(text, "n.yaml")
