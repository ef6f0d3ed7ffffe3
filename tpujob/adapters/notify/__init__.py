"""The sinks of notifications: Slack, e-mail and Standard Webhooks. `domain/notifications/messages.py` has the texts.

Each sink makes one try, within a time limit, and returns a receipt. Rules on when and how often belong elsewhere.
"""

from tpujob.adapters.notify.slack import Slack
from tpujob.adapters.notify.smtp import Mail, SmtpServer
from tpujob.adapters.notify.webhook import Webhook

__all__ = ["Mail", "Slack", "SmtpServer", "Webhook"]
