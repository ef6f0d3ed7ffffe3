"""`Trainer(callbacks=[LightningEvents(), ModelCheckpoint(...)])`: steps, loss, metrics and saves of Lightning. The loss
is read every `log_every_n_steps`, as reading waits for the device."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import math

from lightning.pytorch.callbacks import Callback

from tpujob_events import tell


class LightningEvents(Callback):
    def on_train_start(self, trainer, pl_module):
        total = trainer.estimated_stepping_batches
        self.loss, self.steps = None, int(total) if math.isfinite(total) else None
        self.saved = self._newest(trainer)
        if trainer.global_step:
            tell("resume", step=trainer.global_step)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.local_rank == 0:
            loss = self.loss
            if trainer.global_step % trainer.log_every_n_steps == 0 and outputs:
                loss = outputs["loss"].item()
                self.loss = loss if math.isfinite(loss) else None
            tell("step", step=trainer.global_step, steps=self.steps, loss=loss)
        self._tell_save(trainer)

    def on_validation_end(self, trainer, pl_module):
        for name, value in trainer.callback_metrics.items():
            if not trainer.sanity_checking and trainer.local_rank == 0:
                tell("metric", name=name, value=value)

    def on_train_end(self, trainer, pl_module):
        self._tell_save(trainer)

    def _tell_save(self, trainer):
        newest, self.saved = self.saved, self._newest(trainer)
        if newest != self.saved and trainer.local_rank == 0:
            tell("checkpoint", step=self.saved)

    def _newest(self, trainer):
        """Return the step of the newest save, which is complete, unless it is asynchronous."""
        callbacks = trainer.checkpoint_callbacks
        return max((getattr(c, "_last_global_step_saved", 0) for c in callbacks), default=0)
