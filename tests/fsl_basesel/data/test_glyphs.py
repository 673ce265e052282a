"""The glyph data set: classes, splits, and images that depend on the seed alone."""

import hashlib
import pickle
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fsl_basesel.data import (
    GlyphSource,
    Style,
    glyph_codes,
    glyph_splits,
    glyphs,
)
from fsl_basesel.data.glyphs.characters import TRANSFER_GROUPS, class_name, group_of
from fsl_basesel.errors import InputError


def digest(images: torch.Tensor) -> str:
    return hashlib.sha256(np.ascontiguousarray(images.numpy()).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def source() -> GlyphSource:
    return GlyphSource([ord(c) for c in "AbЖ∑ك"], seed=3)


def glyph_groups() -> Counter[str]:
    return Counter(group_of(code) for code in glyph_codes())


def all_images(source: GlyphSource, count: int) -> torch.Tensor:
    classes = np.repeat(np.arange(len(source)), count)
    return source.images(classes, np.tile(np.arange(count), len(source)))


def test_there_are_thousands_of_classes_in_44_groups() -> None:
    groups = glyph_groups()
    assert len(glyph_codes()) == sum(groups.values()) > 3500
    assert len(groups) == 44
    assert min(groups.values()) >= 5
    assert set(TRANSFER_GROUPS) < set(groups)


def test_names_are_unique_and_begin_with_the_group() -> None:
    codes = glyph_codes()
    names = [class_name(code) for code in codes]
    assert len(set(names)) == len(names)
    assert all(
        name.startswith(f"{group_of(c)}: {chr(c)} ") for c, name in zip(codes, names, strict=True)
    )


@pytest.mark.parametrize("twin", ["AΑ", "AА", "oо", "aа", "ÆӔ", "KΚ", "·.", "xⅹ"])
def test_characters_that_look_alike_are_one_class(twin: str) -> None:
    assert sum(ord(c) in set(glyph_codes()) for c in twin) == 1


@pytest.mark.parametrize("pair", ["AB", "bd", "Oo", "éè", "←→", "Жж", "Il", "ШЩ", "<>"])
def test_characters_that_differ_stay_two_classes(pair: str) -> None:
    assert sum(ord(c) in set(glyph_codes()) for c in pair) == 2


def test_no_class_is_a_space_a_control_character_or_a_mark() -> None:
    assert {unicodedata.category(chr(c))[0] for c in glyph_codes()}.isdisjoint("CZM")


@pytest.mark.parametrize("domain", ["plain", "transfer", "fine"])
def test_splits_are_disjoint_and_of_the_size_asked_for(domain: str) -> None:
    splits = glyph_splits(domain, candidates=400, novel=100, pretraining=100, seed=2)
    names = [set(part.names) for part in splits]
    assert [len(part) for part in names] == [400, 100, 100]
    assert len(set.union(*names)) == 600
    assert splits.pretraining.expanded == list(range(100))
    assert splits.candidates.expanded == []


def test_transfer_keeps_whole_scripts_for_the_novel_task() -> None:
    splits = glyph_splits("transfer", candidates=2000, seed=0)
    assert set(splits.novel.groups) <= TRANSFER_GROUPS
    assert TRANSFER_GROUPS.isdisjoint(splits.candidates.groups)
    assert TRANSFER_GROUPS.isdisjoint(splits.pretraining.groups)


def test_fine_leaves_accented_latin_in_the_pool_at_its_natural_rate() -> None:
    pool, novel = glyphs("fine", candidates=1000, novel=100, seed=0)
    assert set(novel.groups) == {"Accented Latin"}
    left = glyph_groups()["Accented Latin"] - 100
    rate = left / (len(glyph_codes()) - 100)
    # 4.5 standard deviations of the hypergeometric count
    assert abs(pool.groups.count("Accented Latin") - 1000 * rate) < 4.5 * (1000 * rate) ** 0.5


def test_a_larger_pool_begins_with_the_smaller_one() -> None:
    small, novel_small = glyphs(candidates=40, novel=10, seed=5)
    large, novel_large = glyphs(candidates=80, novel=10, seed=5)
    assert large.names[:40] == small.names
    assert novel_large.names == novel_small.names


def test_seeds_give_other_classes_and_other_images() -> None:
    first, _ = glyphs(candidates=40, novel=10, seed=0)
    second, _ = glyphs(candidates=40, novel=10, seed=1)
    assert first.names != second.names
    codes = [ord("A")]
    assert digest(all_images(GlyphSource(codes, 0), 2)) != digest(
        all_images(GlyphSource(codes, 1), 2)
    )


def test_an_image_depends_on_nothing_but_seed_class_and_number(source: GlyphSource) -> None:
    whole = all_images(source, 20)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (the global generator must have no part in it)
    alone = source.images(np.array([2]), np.array([7]))
    assert torch.equal(alone[0], whole[2 * 20 + 7])
    shuffled = torch.randperm(len(whole)).numpy()
    again = source.images(shuffled // 20, shuffled % 20)
    assert torch.equal(again, whole[shuffled])
    other = GlyphSource([ord(c) for c in "ZكЖ"], seed=3, per_class=50)
    assert torch.equal(other.images(np.array([2]), np.array([7]))[0], whole[2 * 20 + 7])


def test_another_process_makes_the_same_images(source: GlyphSource) -> None:
    program = (
        "import hashlib, numpy as np\n"
        "from fsl_basesel.data import GlyphSource\n"
        "s = GlyphSource([ord(c) for c in 'AbЖ∑ك'], seed=3)\n"
        "x = s.images(np.repeat(np.arange(5), 20), np.tile(np.arange(20), 5))\n"
        "print(hashlib.sha256(x.numpy().tobytes()).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == digest(all_images(source, 20))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_loader_workers_make_the_same_images(source: GlyphSource, workers: int) -> None:
    from fsl_basesel.data import ClassPool

    pool = ClassPool(source, preview=10)
    loader = DataLoader(pool.preview_set(), batch_size=8, num_workers=workers)
    batches = list(loader)
    assert digest(torch.cat([x for x, _ in batches])) == digest(all_images(source, 10))
    assert torch.cat([y for _, y in batches]).tolist() == [c for c in range(5) for _ in range(10)]


def test_sources_survive_pickling(source: GlyphSource) -> None:
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint == source.fingerprint
    assert torch.equal(all_images(copy, 3), all_images(source, 3))


def test_images_are_in_range_and_no_two_are_alike(source: GlyphSource) -> None:
    images = all_images(source, 200)
    assert images.shape == (1000, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert len({digest(image) for image in images}) == 1000


def test_glyphs_are_centred_and_seldom_cut_off() -> None:
    clear = Style(faintest=1, noise=0)
    source = GlyphSource(glyph_codes()[::40], style=clear)
    images = all_images(source, 20)[:, 0]
    mass, where = images.mean(0), torch.arange(28) - 13.5
    assert abs(float((mass.sum(0) * where).sum() / mass.sum())) < 0.5
    assert abs(float((mass.sum(1) * where).sum() / mass.sum())) < 0.5
    border = torch.cat([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], 1)
    assert (border.amax(1) > 0.3).float().mean() < 0.1


def test_contrast_background_and_noise_are_what_the_style_says() -> None:
    """Measured on a glyph of one grey that fills its square: a block."""
    code = [ord("▀")]
    still = {"rotation": 0, "shear": 0, "smallest": 1, "shift": 0, "weight": 0}
    plain = GlyphSource(code, seed=1, style=Style(**still, faintest=0.5, noise=0))
    images = all_images(plain, 300)[:, 0]
    low, high = images.flatten(1).amin(1), images.flatten(1).amax(1)
    contrast = high - low
    assert 0.5 <= contrast.min() < 0.52
    assert 0.98 < contrast.max() <= 1
    assert low.max() > 0.4  # backgrounds take what the contrast leaves
    noisy = GlyphSource(code, seed=1, style=Style(**still, faintest=0.5, noise=0.1))
    spread = (all_images(noisy, 300)[:, 0] - images)[:, 2:4, 10:18]  # away from black and white
    middle = (low > 0.3) & (high < 0.97)
    ratio = (spread.flatten(1).std(1) / contrast)[middle]
    assert 0.03 < ratio.mean() < 0.07  # uniform up to 0.1


def test_without_variation_an_image_is_its_template() -> None:
    still = Style(rotation=0, shear=0, smallest=1, shift=0, weight=0, faintest=1, noise=0)
    source = GlyphSource([ord("H")], size=32, style=still)
    image = source.images(np.array([0]), np.array([0]))[0, 0].numpy()
    templates = source._templates.astype(np.float32) / 255
    expected = np.clip((templates - 0.25) * 2, 0, 1)
    assert min(np.abs(image - one).max() for one in expected) < 1e-6


def test_a_still_image_turned_by_the_largest_angle_is_turned_by_15_degrees() -> None:
    assert np.rad2deg(2 * np.arctan(Style().rotation)) == pytest.approx(15, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"domain": "coarse"}, "plain, transfer, fine but got 'coarse'"),
        ({"candidates": 10**6}, "`candidates` from 1 to"),
        ({"domain": "fine", "novel": 3000}, "`novel` from 1 to .* in the fine domain but got 3000"),
        ({"novel": 0}, "`novel` from 1 to"),
        ({"shots": 500}, "at least shots . 1 = 501 images"),
        ({"preview": 501}, "at least 501 image"),
        ({"size": 4}, "`size` of at least 8"),
    ],
)
def test_misuse_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        glyphs(**arguments)


def test_a_character_that_is_no_class_is_named() -> None:
    with pytest.raises(InputError, match=r"'А'.*glyph_codes"):
        GlyphSource([ord("А")])  # Cyrillic A looks like Latin A
