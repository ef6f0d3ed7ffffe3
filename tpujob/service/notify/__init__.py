"""Notifications as users meet them: channels, messages, and what a person can do about them.

What is told by itself is in `engine/notify/`; what is told, to whom and when, in `domain/notify/`.
"""

from tpujob.service.notify.notifications import Notifications

__all__ = ["Notifications"]
