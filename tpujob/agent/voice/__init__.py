"""How the hosts of a slice speak with one voice: each tells the speaker what it has to say, and that one writes it.

What a host has to say is put together in `ship/reports.py`; what the object looks like: `protocol/slice_report.py`.
"""

from tpujob.agent.voice.followed import Followed
from tpujob.agent.voice.link import Links
from tpujob.agent.voice.pile import Pile
from tpujob.agent.voice.speaker import Voice, addresses

__all__ = ["Followed", "Links", "Pile", "Voice", "addresses"]
