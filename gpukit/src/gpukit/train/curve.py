"""The losses of a run as a picture."""

from __future__ import annotations

from pathlib import Path

from gpukit.train.track import read

PICTURE = "loss.png"


def curve(run: Path) -> Path | None:
    """Draw every figure of metrics.jsonl whose name ends in `loss` into loss.png; None where matplotlib is missing."""
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
