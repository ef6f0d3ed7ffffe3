"""The port `Sink`: Slack, e-mail and Standard Webhooks. The words come from `domain/notifications/messages.py`.

No rule of when or how often belongs here; each sink makes one try, by a deadline, and returns what came of it.
"""

from tpujob.adapters.notify.slack import Slack
from tpujob.adapters.notify.smtp import Mail, SmtpServer
from tpujob.adapters.notify.webhook import Webhook

__all__ = ["Mail", "Slack", "SmtpServer", "Webhook"]
