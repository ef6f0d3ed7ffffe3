"""How pages stay live: one follower of the store for all viewers, views that are rendered once for all who see the
same, and one stream of differences for each page. The only asynchronous room; no page, no rule of a job is here.

A page says in `Views.add` how its changing fragments are made. `static/live.js` is the other end of the stream.
"""

from tpujob.web.live.fragments import Fragments
from tpujob.web.live.views import Address, Views, same_role

__all__ = ["Address", "Fragments", "Views", "same_role"]
