"""The image kernel: the same bits on every machine, and the geometry it promises."""

import hashlib

import numpy as np
import pytest
import torch

from fsl_basesel.data import counter
from fsl_basesel.data.glyphs.render import Style, render

STILL = {
    "rotation": 0,
    "shear": 0,
    "smallest": 1,
    "shift": 0,
    "weight": 0,
    "faintest": 1,
    "noise": 0,
}


def made_templates(count: int) -> np.ndarray:
    """Templates from the counter, so that no library's generator has a part in them."""
    words = counter.mix(
        np.full(count * 1024, counter.key("t")), np.arange(count * 1024, dtype="u8")
    )
    return (words >> np.uint64(56)).astype(np.uint8).reshape(count, 32, 32)


def draw(templates: np.ndarray, style: Style, count: int = 40, size: int = 28) -> np.ndarray:
    """`count` images of one class, whose faces are the templates."""
    starts, keys = np.array([0, len(templates)]), np.array([counter.key(7)])
    return render(templates, starts, keys, np.zeros(count, int), np.arange(count), size, style)[
        :, 0
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_known(threads: int) -> None:
    """Computed once; a machine that gives other bits would train other models."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        images = draw(made_templates(5), Style(), count=300)
    finally:
        torch.set_num_threads(before)
    known = "257eea7596c01c00ebe3945ff4774cd601a318a62f44e5193efcd66252a19640"
    assert hashlib.sha256(images.astype("<f4").tobytes()).hexdigest() == known


@pytest.mark.parametrize("size", [9, 16, 28, 33])
def test_images_of_every_size_are_the_template_at_that_size(size: int) -> None:
    rising = np.repeat(np.linspace(0, 255, 32)[None], 32, axis=0).astype(np.uint8)
    image = draw(rising[None], Style(**STILL), count=1, size=size)[0]
    position = (np.arange(size) + 0.5) * 32 / size - 0.5
    expected = np.clip((np.interp(position, np.arange(32), rising[0] / 255.0) - 0.25) * 2, 0, 1)
    assert np.abs(image[size // 2] - expected)[1:-1].max() < 1e-5


def bar() -> np.ndarray:
    """An upright bar in the middle."""
    picture = np.zeros((1, 32, 32), np.uint8)
    picture[0, 4:28, 15:17] = 255
    return picture


def moments(images: np.ndarray) -> tuple[np.ndarray, ...]:
    """Middle (x, y) and second moments (xx, xy, yy) of each image, in pixels."""
    where = np.arange(images.shape[-1]) - (images.shape[-1] - 1) / 2
    mass = images.sum((1, 2))
    x = (images.sum(1) * where).sum(1) / mass
    y = (images.sum(2) * where).sum(1) / mass
    xy = np.einsum("bij,i,j->b", images, where, where) / mass - x * y
    xx = (images.sum(1) * where**2).sum(1) / mass - x * x
    yy = (images.sum(2) * where**2).sum(1) / mass - y * y
    return x, y, xx, xy, yy


def test_rotation_reaches_15_degrees_both_ways_and_no_further() -> None:
    _, _, xx, xy, yy = moments(draw(bar(), Style(**{**STILL, "rotation": 0.1317}), count=400))
    angle = np.rad2deg(0.5 * np.arctan2(2 * xy, yy - xx))
    assert 13.5 < angle.max() < 16
    assert -16 < angle.min() < -13.5
    assert abs(angle.mean()) < 1.5


def test_shear_shifts_and_scale_reach_their_limits_and_no_further() -> None:
    _, _, _, xy, yy = moments(draw(bar(), Style(**{**STILL, "shear": 0.25}), count=400))
    assert (xy / yy).max() == pytest.approx(0.25, abs=0.02)
    assert (xy / yy).min() == pytest.approx(-0.25, abs=0.02)
    disc = np.clip(10 - np.hypot(*np.mgrid[-15.5:16, -15.5:16]), 0, 1)[None] * 255
    x, y, *_ = moments(draw(disc.astype(np.uint8), Style(**{**STILL, "shift": 0.12}), count=400))
    for middle in (x, y):
        assert np.abs(middle).max() == pytest.approx(0.12 * 14, abs=0.1)
    *_, yy = moments(draw(bar(), Style(**{**STILL, "smallest": 0.5}), count=400))
    assert np.sqrt(yy.min() / yy.max()) == pytest.approx(0.5, abs=0.03)


def test_weight_makes_strokes_heavier_never_lighter() -> None:
    blurred = np.array([0, 64, 191, 191, 64, 0], np.uint8)
    picture = np.zeros((1, 32, 32), np.uint8)
    picture[0, 4:28, 13:19] = blurred
    thin = draw(picture, Style(**STILL), count=1).sum()
    ink = draw(picture, Style(**{**STILL, "weight": 0.25}), count=200).sum((1, 2))
    assert ink.min() >= thin
    assert ink.max() > 1.2 * thin


def test_noise_has_the_mean_spread_and_independence_it_should() -> None:
    grey = np.full((1, 32, 32), 128, np.uint8)  # half of black and white, so little is clipped
    images = draw(grey, Style(**{**STILL, "noise": 0.2}), count=2000)[:, 8:20, 8:20]
    still = draw(grey, Style(**STILL), count=1)[0, 14, 14]
    noise = images - still
    assert abs(noise.mean()) < 0.002
    spread = noise.std((1, 2))
    assert 0.19 < spread.max() < 0.235
    assert spread.mean() == pytest.approx(0.1, abs=0.01)  # uniform up to 0.2
    scaled = noise / spread[:, None, None]
    neighbours = [(scaled[:, :, 1:] * scaled[:, :, :-1]), (scaled[:, 1:] * scaled[:, :-1])]
    assert max(abs(product.mean()) for product in neighbours) < 0.01
    assert np.mean(scaled**4) == pytest.approx(2.7, abs=0.15)  # of the sum of four bytes: 2.7


def test_every_face_is_drawn_about_equally_often() -> None:
    flat = np.repeat(np.arange(70, 190, 30, dtype=np.uint8), 1024).reshape(4, 32, 32)
    images = draw(flat, Style(**STILL), count=2000)[:, 14, 14]
    _, counts = np.unique(images, return_counts=True)
    assert len(counts) == 4
    assert np.abs(counts - 500).max() < 100  # 5 standard deviations
