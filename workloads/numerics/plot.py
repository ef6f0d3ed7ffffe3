"""The errors of float32 products by d, as a picture. Needs matplotlib."""

# matplotlib is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from matplotlib.figure import Figure

from workloads.frame.config import ConfigError
from workloads.numerics.checks import INNER, OUTER, ProductError


def draw(errors: list[ProductError], path: str) -> None:
    """Largest errors over d, a panel for each of the two shapes. Raises ConfigError if the file cannot be written."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, shape in zip(panels, (OUTER, INNER), strict=True):
        chosen = [error for error in errors if error.shape == shape]
        for i, way in enumerate(dict.fromkeys(error.way for error in chosen)):
            points = [(error.d, error.largest) for error in chosen if error.way == way]
            # shorter dashes on top, so that equal lines are seen
            dashes = (0, (8 - 2 * i, 2 * i))
            panel.plot(*zip(*points, strict=True), marker="o", linestyle=dashes, label=way)
        panel.set(xscale="log", yscale="log", xlabel="d")
        panel.set_title(shape)
    panels[0].set_ylabel("largest error against float64")
    panels[1].legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot={path}: {error}") from error
