"""Glyph images from templates: a random face, affine map, weight, contrast and noise for each.

The work is one numba kernel instead of `grid_sample`: it draws its random numbers by counter, uses
only operations that IEEE 754 rounds the same way everywhere (no sine, no fused sums), so an image
has the same bits on every machine, and it is several times faster on a CPU.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.data.counter import mix as _mix
from fsl_basesel.parallel import map_blocks

_BLOCK = 128  # images a thread takes at a time
mix = kernel(_mix)


@dataclass(frozen=True)
class Style:
    """How much the images of a class vary.

    Attributes:
        rotation: tangent of half the largest angle; 0.1317 is 15 degrees.
        shear: largest horizontal shear.
        smallest: smallest scale; the largest is 1.
        shift: largest shift, as a fraction of half the image.
        weight: how far the outline moves outwards, from 0 to this fraction of the blur.
        faintest: lowest contrast; the highest is 1. The background is any grey that leaves room.
        noise: largest standard deviation of the pixel noise, in units of the contrast, so that the
            faintest images can be read too.
    """

    rotation: float = 0.1317
    shear: float = 0.25
    smallest: float = 0.65
    shift: float = 0.12
    weight: float = 0.25
    faintest: float = 0.35
    noise: float = 0.6


def render(
    templates: np.ndarray,
    starts: np.ndarray,
    keys: np.ndarray,
    classes: np.ndarray,
    items: np.ndarray,
    size: int,
    style: Style,
) -> np.ndarray:
    """Image `items[b]` of class `classes[b]` for every b, `[B, 1, size, size]` float32 in [0, 1].

    Class c owns the templates `starts[c] : starts[c + 1]` of `[T, S, S]` uint8, and its random
    numbers start from `keys[c]`, uint64. Every image depends on its own key and item alone.
    """
    out = np.empty((len(classes), 1, size, size), np.float32)
    numbers = np.array(astuple(style), np.float32)

    def work(start: int, stop: int) -> None:
        piece = slice(start, stop)
        _render(templates, starts, keys, classes[piece], items[piece], numbers, out[piece, 0])

    map_blocks(work, len(classes), _BLOCK)
    return out


@kernel
def _unit(key: np.uint64, counter: int) -> np.float32:
    """A number in [0, 1) with 24 random bits."""
    bits = mix(key, np.uint64(counter)) >> np.uint64(40)
    return np.float32(bits) * np.float32(1.0 / (1 << 24))


@kernel
def _render(templates, starts, keys, classes, items, style, out):  # type: ignore[no-untyped-def]
    zero, one, two, half = np.float32(0), np.float32(1), np.float32(2), np.float32(0.5)
    side, size = templates.shape[1], out.shape[1]
    # The template within a frame of zeros: positions are clamped to it, so no pixel needs a test.
    framed = np.zeros((side + 3, side + 3), np.float32)
    last = np.float32(side + 1)
    for b in range(len(classes)):
        c = classes[b]
        key = mix(keys[c], np.uint64(items[b]))
        faces = np.uint64(starts[c + 1] - starts[c])
        template = templates[starts[c] + np.int64(mix(key, np.uint64(0)) % faces)]
        for i in range(side):
            for j in range(side):
                framed[i + 1, j + 1] = np.float32(template[i, j]) * np.float32(1.0 / 255.0)

        # Cosine and sine from the tangent of half the angle.
        t = (two * _unit(key, 1) - one) * style[0]
        cosine = (one - t * t) / (one + t * t)
        sine = two * t / (one + t * t)
        shear = (two * _unit(key, 2) - one) * style[1]
        scale = style[2] + (one - style[2]) * _unit(key, 3)
        # The map back, from image pixels to template pixels: undo shift, scale, rotation, shear.
        ratio = np.float32(side) / (np.float32(size) * scale)
        xx, xy = (cosine + shear * sine) * ratio, (sine - shear * cosine) * ratio
        yx, yy = -sine * ratio, cosine * ratio
        centre = half * np.float32(size - 1)
        middle_x = centre + (two * _unit(key, 4) - one) * style[3] * half * np.float32(size)
        middle_y = centre + (two * _unit(key, 5) - one) * style[3] * half * np.float32(size)
        origin = half * np.float32(side + 1)  # of the framed template

        # The template is blurred, so the outline is where it crosses a threshold.
        low = np.float32(0.25) - style[4] * _unit(key, 6)
        contrast = style[5] + (one - style[5]) * _unit(key, 7)
        background = (one - contrast) * _unit(key, 9)
        # The sum of four bytes has mean 510 and standard deviation 147.8 and is nearly normal.
        noise = style[6] * contrast * _unit(key, 8) * np.float32(1.0 / 147.8)
        counter = np.uint64(16)
        for i in range(size):
            v = np.float32(i) - middle_y
            for j in range(size):
                u = np.float32(j) - middle_x
                x = min(max(xx * u + xy * v + origin, zero), last)
                y = min(max(yx * u + yy * v + origin, zero), last)
                left, top = np.int32(x), np.int32(y)
                fx, fy = x - np.float32(left), y - np.float32(top)
                a, d = framed[top, left], framed[top + 1, left]
                upper = a + fx * (framed[top, left + 1] - a)
                lower = d + fx * (framed[top + 1, left + 1] - d)
                ink = upper + fy * (lower - upper)
                out[b, i, j] = background + contrast * min(max((ink - low) * two, zero), one)
            for j in range(0, size, 2):  # one 64-bit number has the eight bytes of two pixels
                bits = mix(key, counter)
                counter += np.uint64(1)
                out[b, i, j] = _noisy(out[b, i, j], noise, bits)
                if j + 1 < size:
                    out[b, i, j + 1] = _noisy(out[b, i, j + 1], noise, bits >> np.uint64(32))


@kernel
def _noisy(value, noise, bits):  # type: ignore[no-untyped-def]
    """`value` plus `noise` times the sum of the four lowest bytes about its mean, in [0, 1]."""
    pairs = (bits & np.uint64(0x00FF00FF)) + ((bits >> np.uint64(8)) & np.uint64(0x00FF00FF))
    total = (pairs & np.uint64(0xFFFF)) + ((pairs >> np.uint64(16)) & np.uint64(0xFFFF))
    moved = value + noise * (np.float32(np.int32(total)) - np.float32(510))
    return min(max(moved, np.float32(0)), np.float32(1))
