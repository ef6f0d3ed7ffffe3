"""A backend's notifier in a process of its own, to be killed: `python -m tests.flow.stack.killed FOLDER URL`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tpujob.adapters.calling import SystemClock
from tpujob.adapters.notify import Webhook
from tpujob.adapters.sqlite import SqliteStore
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.engine.notifier import Notifier
from tpujob.ports import Clock

KEY = "whsec_" + "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldw=="


def notifier(store: SqliteStore, url: str, clock: Clock, owner: str) -> Notifier:
    sink = Webhook(lambda: url, lambda: (KEY,), clock, private=True)
    setup = NotificationSetup({"lab": Channel("webhook", "here", sink)}, (ChannelRule(("lab",)),))
    return Notifier(store, store.outbox, setup, clock, owner=owner)


if __name__ == "__main__":
    notifier(
        SqliteStore(Path(sys.argv[1]) / "jobs.db"), sys.argv[2], SystemClock(), "first"
    ).start()
    print("ready", flush=True)
    threading.Event().wait(60)
