from pydantic import Field

from workloads.frame.config import TrainConfig


class SpiralsConfig(TrainConfig):
    """Trains a small network to tell the arms of two spirals apart."""

    binding = ("seed", "width")  # of a checkpoint: with other values it would not fit
    width: int = Field(64, ge=1, description="units of the hidden layer")
