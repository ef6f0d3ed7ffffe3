"""`model.fit(..., callbacks=[BackupAndRestore(folder), KerasEvents(folder)])`: steps, metrics and saves of Keras 3."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import os

import keras

from tpujob_events import tell


class KerasEvents(keras.callbacks.Callback):
    def __init__(self, saves=""):
        """`saves`: the local folder in which a callback before this one saves; a change there is a checkpoint."""
        super().__init__()
        self.saves, self.step, self.saved = saves, None, None

    def on_epoch_begin(self, epoch, logs=None):
        per_epoch = self.params.get("steps") or (self.step or 0) // max(epoch, 1)
        self.before, self.steps = epoch * per_epoch, self.params["epochs"] * per_epoch
        if self.step is None and self.before:
            tell("resume", step=self.before)
        self.saved = self._newest() if self.step is None else self.saved

    def on_train_batch_end(self, batch, logs=None):
        self.step = self.before + batch + 1
        tell("step", step=self.step, steps=self.steps or None, loss=(logs or {}).get("loss"))
        self._tell_save()

    def on_epoch_end(self, epoch, logs=None):
        for name, value in (logs or {}).items():
            if name != "loss":
                tell("metric", name=name, value=value)
        self._tell_save()

    def _tell_save(self):
        newest, self.saved = self.saved, self._newest()
        if newest != self.saved:
            tell("checkpoint", step=self.step)

    def _newest(self):
        files = (os.path.join(at, name) for at, _, names in os.walk(self.saves) for name in names)
        return max(map(os.path.getmtime, files), default=0)
