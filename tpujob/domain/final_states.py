"""The states of a job that has ended. Commands import them without the model, whose import takes long."""

FINAL = frozenset({"succeeded", "failed", "cancelled"})
