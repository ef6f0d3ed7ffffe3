"""Notifications of the local stack: what a receiver gets leads to the page."""

import base64
import json
from pathlib import Path

from tests.support.local_stack import LocalStack
from tests.unit.notify.receivers import web


def test_a_message_of_the_local_stack_links_to_its_page(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    stack.state.mkdir()
    key = "whsec_" + base64.b64encode(b"k" * 32).decode()
    with web() as receiver:
        ops = {"webhook": receiver.url, "keys": ["OPS_KEY"], "private": True}
        settings = {"channels": {"ops": ops}, "rules": [{"channels": ["ops"]}]}
        (stack.state / "notifications.yaml").write_text(json.dumps(settings))
        try:
            stack.run("up")
            (page,) = {process["page"] for process in stack.json("status") if process.get("page")}
            stack.env["OPS_KEY"] = key
            stack.run("notifications", "secret", "OPS_KEY", "--from-env")
            stack.run("notifications", "test", "ops")
        finally:
            stack.down()
        (note,) = json.loads(receiver.got[0].body)["data"]["notes"]
        assert note["url"] == f"{page}/notifications"
