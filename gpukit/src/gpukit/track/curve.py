"""A plot of the losses of a run."""

from __future__ import annotations

from pathlib import Path

from exactrun.metrics import read

PICTURE = "loss.png"


def curve(run: Path) -> Path | None:
    """Plot every metric in metrics.jsonl whose name ends in `loss` to loss.png; None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    lines = read(run)
    for name in dict.fromkeys(name for line in lines for name in line if name.endswith("loss")):
        points = [(line["step"], line[name]) for line in lines if name in line]
        axes.plot(*zip(*points, strict=True), marker="." if len(points) < 20 else "", label=name)
    axes.set(xlabel="step", ylabel="loss", title=run.name)
    axes.legend()
    axes.grid(alpha=0.3)
    aside = run / f".{PICTURE}"
    figure.savefig(aside, format="png", dpi=120)
    return aside.replace(run / PICTURE)
