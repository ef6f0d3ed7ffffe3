"""`Trainer(..., callbacks=[TransformersEvents()])`: steps, the newest logged loss, metrics and saves of Hugging Face's
Trainer. A single process also saves and stops on SIGTERM; several would have to agree on a step."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import math

from transformers import TrainerCallback

from tpujob_events import stopping, tell


class TransformersEvents(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.loss = {}
        if state.global_step:
            tell("resume", step=state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_local_process_zero and not control.should_log:
            tell("step", step=state.global_step, steps=state.max_steps, **self.loss)
        if args.world_size == 1 and stopping():
            control.should_save = control.should_training_stop = True

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs and state.is_local_process_zero:
            tell("step", step=state.global_step, steps=state.max_steps, **logs)
            self.loss = {"loss": logs["loss"]} if math.isfinite(logs["loss"]) else {}

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        for name, value in metrics.items():
            tell("metric", name=name, value=value)

    def on_save(self, args, state, control, **kwargs):
        if state.is_local_process_zero:
            tell("checkpoint", step=state.global_step)
