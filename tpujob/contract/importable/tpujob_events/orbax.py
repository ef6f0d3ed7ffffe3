"""`saves = OrbaxEvents(manager)`, then `saves.look()` after each step and each `manager.wait_until_finished()`."""

from typing import Any

from tpujob_events import tell


class OrbaxEvents:
    def __init__(self, manager: Any) -> None:
        """`manager`: a CheckpointManager, which may save in the background."""
        self.manager: Any = manager
        self.saved: Any = manager.latest_step()

    def look(self) -> None:
        """Report the newest checkpoint once it is committed. Raises the error of a save that failed."""
        if self.manager.latest_step() != self.saved and not self.manager.is_saving_in_progress():
            self.manager.wait_until_finished()
            self.saved = self.manager.latest_step()
            tell("checkpoint", step=self.saved)
