"""A picture made small: for pages and for what is committed."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

N_COLORS = 64  # enough to read every word


def small_picture(picture: Path, width: int) -> bytes:
    """Return a picture at most so many pixels wide, in few colours, as PNG."""
    content = BytesIO()
    with Image.open(picture) as image:
        height = round(image.height * width / image.width)
        wide = image.convert("RGB")
        if image.width > width:
            wide = wide.resize((width, height), Image.Resampling.LANCZOS)
        # Of Pillow's ways, the one that keeps rare colours: those of thin lines.
        few = wide.quantize(N_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(content, "PNG", optimize=True)
    return content.getvalue()


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height in pixels."""
    with Image.open(BytesIO(picture)) as image:
        return image.size
