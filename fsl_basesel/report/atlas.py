"""All thumbnails of a page in one picture, so that each is there once however often it is shown."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
from PIL import Image

from fsl_basesel.report.content import thinned
from fsl_basesel.report.record import Pictures, same_channels

LIMIT = 1500
"""Thumbnails of a page, at most."""
LARGEST = 700_000
"""Bytes of all thumbnails together, if smaller ones can be read at all."""


class Atlas:
    """Thumbnails on a grid: those of a run, if it has some.

    Candidates named in `first` come first if there is no room for all.
    """

    def __init__(self, pictures: Pictures | None, first: list[str]) -> None:
        candidates, novel = pictures or ({}, {})
        self.total = len(candidates) + len(novel)
        early = dict.fromkeys(name for name in first if name in candidates)
        rest = [name for name in candidates if name not in early]
        wanted = [(True, name) for name in novel][: LIMIT // 2]
        wanted += [(False, name) for name in early][: LIMIT - len(wanted)]
        wanted += [(False, name) for name in thinned(rest, LIMIT - len(wanted))]
        self._place = {key: i for i, key in enumerate(wanted)}
        self._tiles = [(novel if of_task else candidates)[name] for of_task, name in wanted]

    def __len__(self) -> int:
        return len(self._tiles)

    @property
    def columns(self) -> int:
        """Thumbnails in a row of the grid."""
        return max(1, math.isqrt(max(0, len(self) - 1)) + 1)

    @property
    def rows(self) -> int:
        """Rows of the grid."""
        return max(1, -(-len(self) // self.columns))

    def where(self, name: str, novel: bool) -> str | None:
        """Column and row of a class's thumbnail, "3 5"; None if it has none."""
        place = self._place.get((novel, name))
        return None if place is None else f"{place % self.columns} {place // self.columns}"

    def style(self) -> str:
        """The rule that brings the picture of all thumbnails into the page, once."""
        if not len(self):
            return ""
        tiles = same_channels(self._tiles)
        side = tiles[0].shape[0]
        sheet = np.zeros((self.rows * side, self.columns * side, *tiles[0].shape[2:]), np.uint8)
        for i, tile in enumerate(tiles):
            top, left = i // self.columns * side, i % self.columns * side
            sheet[top : top + side, left : left + side] = tile
        kind, data = self._encoded(Image.fromarray(sheet))
        text = base64.b64encode(data).decode("ascii")
        pixelated = "image-rendering:pixelated;" if side < 40 else ""
        return (
            f":root{{--columns:{self.columns};--rows:{self.rows}}}"
            f".pic{{{pixelated}background-image:url(data:image/{kind};base64,{text})}}"
        )

    def _encoded(self, sheet: Image.Image) -> tuple[str, bytes]:
        """As PNG if that is small, else as JPEG, with smaller thumbnails if there are very many."""
        data = io.BytesIO()
        sheet.save(data, "PNG", optimize=True)
        if data.tell() <= LARGEST:
            return "png", data.getvalue()
        side = sheet.width // self.columns
        for smaller, quality in ((side, 82), (side, 70), (48, 70), (40, 65), (32, 60), (24, 55)):
            scale = min(smaller, side)
            small = sheet.resize((scale * self.columns, scale * self.rows))
            data = io.BytesIO()
            small.save(data, "JPEG", quality=quality)
            if data.tell() <= LARGEST:
                break
        return "jpeg", data.getvalue()
