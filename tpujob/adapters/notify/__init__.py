"""The port `Sink`: Slack, e-mail and Standard Webhooks. What is said is made in `domain/notify/words.py`.

No rule of when or how often belongs here; each sink makes one try, by a deadline, and says what came of it.
"""

from tpujob.adapters.notify.slack import Slack
from tpujob.adapters.notify.smtp import Mail, Server
from tpujob.adapters.notify.webhook import Webhook

__all__ = ["Mail", "Server", "Slack", "Webhook"]
