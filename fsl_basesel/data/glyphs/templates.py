"""The bank of glyph templates: every class in every face, drawn once and kept in the cache."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import unicodedata
import zipfile
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from fsl_basesel.data import cache
from fsl_basesel.data.glyphs import characters
from fsl_basesel.files.writing import save_npz

MINIMUM_FACES = 4  # that a character must have
SIDE = 32  # pixels of a template
INK = 27  # pixels of its longer side that the glyph fills; the rest is margin
_EM = 64  # pixels an em is drawn with before it is brought to size
THRESHOLD = 0.94  # correlation of near-duplicates: "A" and Greek "Α" look the same, one class
_BLOCK = 512  # characters that are compared with all earlier ones at a time

FACES: tuple[str, ...] = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)


@dataclass(frozen=True)
class Bank:
    """Templates of all classes, one after the other.

    Attributes:
        codes: `[C]` int64 code points of the classes, rising.
        starts: `[C + 1]` int64; class c has templates `starts[c] : starts[c + 1]`, one per face.
        templates: `[T, SIDE, SIDE]` uint8, white ink on black, centred, of one size, slightly
            blurred so that a threshold on it moves the outline (see `render`), brightest pixel 255.
    """

    codes: np.ndarray
    starts: np.ndarray
    templates: np.ndarray


_lock = threading.Lock()
_log = logging.getLogger(__name__)


def bank() -> Bank:
    """The bank of this machine's fonts: from memory, from the cache folder, or drawn anew."""
    with _lock:
        return _bank()


@functools.lru_cache(maxsize=1)
def _bank() -> Bank:
    path = cache.cache_folder() / f"glyphs-{_bank_fingerprint()}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Bank(**arrays)
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile):
        pass  # none yet, or damaged: a zip carries checksums, so damage does not go unseen
    # A warning, so that it shows without a logging setup: nothing else is shown for seconds.
    _log.warning("Drawing the glyph templates, once for this machine; it takes some seconds.")
    made = draw_bank()
    with contextlib.suppress(OSError):  # a disk that cannot be written
        save_npz(path, None, **vars(made))
    return made


def font_files() -> list[Path]:
    """The font files of `FACES`, which are part of matplotlib's wheel."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = [folder / f"{face}.ttf" for face in FACES]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Expected matplotlib's own fonts in {folder} but {', '.join(missing)} is not there; "
            "reinstall matplotlib from its wheel, which carries them."
        )
    return files


def _bank_fingerprint() -> str:
    """Changes with whatever could change the bank: fonts, renderer, Unicode data, our own code."""
    import PIL

    sources = Path(str(characters.__file__)), Path(__file__)
    content = [file.read_bytes() for file in (*font_files(), *sources)]
    return cache.fingerprint([PIL.__version__, unicodedata.unidata_version, *content])


def draw_bank() -> Bank:
    """Draw every character in every face that has it and drop the near-duplicates."""
    from matplotlib.ft2font import FT2Font

    files = font_files()
    charmaps = [FT2Font(str(file)).get_charmap() for file in files]
    faces_with = Counter(chain.from_iterable(charmaps))
    common = [code for code, count in sorted(faces_with.items()) if count >= MINIMUM_FACES]
    codes = np.array([code for code in common if characters.is_shape(code)], np.int64)
    pictures, owners, faces = [], [], []
    for number, (file, charmap) in enumerate(zip(files, charmaps, strict=True)):
        present = np.array([i for i, code in enumerate(codes.tolist()) if code in charmap])
        drawn, inked = _draw_face(file, codes[present].tolist())
        pictures.append(_soften(drawn[inked]))
        owners.append(present[inked])
        faces.append(np.full(int(inked.sum()), number))
    owner, face = np.concatenate(owners), np.concatenate(faces)
    order = np.lexsort((face, owner))
    owner, face = owner[order], face[order]
    templates = np.concatenate(pictures)[order]

    counts = np.bincount(owner, minlength=len(codes))
    twins = near_duplicates(templates, owner, face)
    kept = (counts >= MINIMUM_FACES) & (twins < 0)
    starts = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int64)
    return Bank(codes[kept], starts, np.ascontiguousarray(templates[kept[owner]]))


def _draw_face(file: Path, codes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of the characters in one face, and which of them have ink at all."""
    from PIL import Image, ImageDraw, ImageFont

    # The basic layout is in every build of Pillow; single characters need no other.
    font = ImageFont.truetype(str(file), _EM, layout_engine=ImageFont.Layout.BASIC)
    sheet = Image.new("L", (SIDE, SIDE * len(codes)))  # one conversion to an array, not thousands
    inked = np.zeros(len(codes), bool)
    for i, code in enumerate(codes):
        left, top, right, bottom = (int(edge) for edge in font.getbbox(chr(code)))
        width, height = right - left, bottom - top
        if width <= 0 or height <= 0:
            continue
        margin = math.ceil(max(width, height) * SIDE / INK / 2) + 1
        canvas = Image.new("L", (width + 2 * margin, height + 2 * margin))
        place = (margin - left, margin - top)
        ImageDraw.Draw(canvas).text(place, chr(code), fill=255, font=font)
        ink = canvas.getbbox()  # getbbox of the font counts the advance width too
        if ink is None:
            continue
        side = max(ink[2] - ink[0], ink[3] - ink[1]) * SIDE / INK
        x, y = (ink[0] + ink[2] - side) / 2, (ink[1] + ink[3] - side) / 2
        window = (x, y, x + side, y + side)
        fitted = canvas.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=window)
        sheet.paste(fitted, (0, i * SIDE))
        inked[i] = True
    return np.asarray(sheet).reshape(len(codes), SIDE, SIDE), inked


def _soften(pictures: np.ndarray) -> np.ndarray:
    """Smooth with the binomial 1-2-1 kernel both ways and bring the brightest pixel to 255.

    Without the second step a hairline would be too faint to be seen.
    """
    padded = np.pad(pictures.astype(np.uint16), ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    smooth = rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]
    peak = np.maximum(smooth.max(axis=(1, 2), keepdims=True), 1)
    return (smooth * (255 / peak) + 0.5).astype(np.uint8)


def near_duplicates(templates: np.ndarray, owner: np.ndarray, face: np.ndarray) -> np.ndarray:
    """For each character the earlier one it looks like, or -1 where it is a class of its own.

    `templates` are pictures `[T, S, S]` with S even, `owner` `[T]` says which character each shows
    and `face` `[T]` in which face. Two characters are near-duplicates where the correlation of
    their pictures, at half resolution so that half a pixel's shift hides no twin, is `THRESHOLD` or
    more in the mean over the faces that have both. The earliest of a family is kept, so the outcome
    depends on the order alone. The sums are whole numbers below 2^53, exact in float64, so it is
    the same on every machine.
    """
    rows = templates[:, ::2].astype(np.uint16) + templates[:, 1::2]
    pictures = (rows[:, :, ::2] + rows[:, :, 1::2]).reshape(len(templates), -1).astype(np.float64)
    cells, total = pictures.shape[1], pictures.sum(1)
    spread = np.sqrt(cells * np.square(pictures).sum(1) - total * total)
    # The row of the picture that shows a character in a face, -1 for none.
    table = np.full((int(owner.max()) + 1, int(face.max()) + 1), -1, np.int64)
    table[owner, face] = np.arange(len(owner))
    twin = np.full(len(table), -1, np.int64)
    for start in range(0, len(table), _BLOCK):
        block, known = table[start : start + _BLOCK], table[: start + _BLOCK]
        summed = np.zeros((len(block), len(known)))
        shared = np.zeros((len(block), len(known)))
        for mine, others in zip(block.T, known.T, strict=True):
            pairs = np.ix_(mine >= 0, others >= 0)
            a, b = mine[mine >= 0], others[others >= 0]
            scale = np.outer(spread[a], spread[b])
            covariance = cells * (pictures[a] @ pictures[b].T) - np.outer(total[a], total[b])
            # A picture of one grey has no correlation.
            summed[pairs] += covariance / np.maximum(scale, 1e-9)
            shared[pairs] += 1
        alike = summed / np.maximum(shared, 1) >= THRESHOLD
        for later, like in enumerate(alike, start):
            kept = np.flatnonzero(like[:later] & (twin[:later] < 0))
            if len(kept):
                twin[later] = kept[0]
    return twin
