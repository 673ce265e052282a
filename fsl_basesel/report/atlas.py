"""All thumbnails of a page in one picture: each is stored once, however often it is shown."""

from __future__ import annotations

import base64
import io
import math

from PIL import Image, ImageOps

from fsl_basesel.report.record import Pictures

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
        ordered = dict.fromkeys([*(name for name in first if name in candidates), *candidates])
        wanted = [(True, name) for name in novel][: LIMIT // 2]
        wanted += [(False, name) for name in ordered][: LIMIT - len(wanted)]
        self._place = {key: i for i, key in enumerate(wanted)}
        self._tiles = [(novel if of_task else candidates)[name] for of_task, name in wanted]
        self.columns = math.ceil(math.sqrt(len(wanted))) or 1
        self.rows = math.ceil(len(wanted) / self.columns) or 1

    def __len__(self) -> int:
        return len(self._tiles)

    def where(self, name: str, novel: bool) -> str | None:
        """Column and row of a class's thumbnail, "3 5"; None if it has none."""
        place = self._place.get((novel, name))
        return None if place is None else f"{place % self.columns} {place // self.columns}"

    def style(self) -> str:
        """The rule that brings the picture of all thumbnails into the page, once."""
        if not len(self):
            return ""
        side = self._tiles[0].shape[0]
        mode = "L" if all(tile.ndim == 2 for tile in self._tiles) else "RGB"
        sheet = Image.new(mode, (self.columns * side, self.rows * side))
        for i, tile in enumerate(self._tiles):
            place = i % self.columns * side, i // self.columns * side
            sheet.paste(Image.fromarray(tile), place)
        kind, data = self._encoded(sheet)
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
        for side in (64, 48, 32, 24):
            data = io.BytesIO()
            scale = min(1.0, side * self.columns / sheet.width)
            ImageOps.scale(sheet, scale).save(data, "JPEG", quality=70)
            if data.tell() <= LARGEST:
                break
        return "jpeg", data.getvalue()
