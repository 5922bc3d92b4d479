"""A small data set, to try a script without images of your own: colored shapes on noise, as JPEG and PNG files."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from PIL import Image, ImageDraw

CORNERS = {"circle": 0, "square": 4, "triangle": 3}
SIDE = 96


def draw_shapes(root: Path, each: int = 100) -> None:
    """Write `each` images of every shape, one folder per shape, unless `root` exists."""
    if root.exists():
        return
    temporary = root.with_name(f".{root.name}-{os.getpid()}")
    generator = random.Random(0)
    for name, corners in CORNERS.items():
        (temporary / name).mkdir(parents=True)
        for number in range(each):
            draw_shape(corners, generator).save(temporary / name / f"{number:03}.{('jpg', 'png')[number % 2]}")
    try:
        temporary.rename(root)
    except OSError:  # another process created the same
        shutil.rmtree(temporary)


def draw_shape(corners: int, generator: random.Random) -> Image.Image:
    """One image; a shape without corners is a circle."""
    image = Image.frombytes("RGB", (SIDE, SIDE), generator.randbytes(3 * SIDE * SIDE))
    image = image.point([value // 4 for value in range(256)] * 3)
    radius = generator.uniform(SIDE / 4, SIDE / 3)
    x, y = (generator.uniform(radius, SIDE - radius) for _ in range(2))
    color = tuple(generator.randrange(128, 256) for _ in range(3))
    canvas = ImageDraw.Draw(image)
    if corners:
        canvas.regular_polygon((x, y, radius), corners, rotation=generator.randrange(360), fill=color)
    else:
        canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)
    return image
