"""The embedded data set: written characters as classes, as many images of each as are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fsl_basesel.checks import one_of
from fsl_basesel.data import counter
from fsl_basesel.data.glyphs import characters
from fsl_basesel.data.glyphs.render import Style, render
from fsl_basesel.data.glyphs.templates import bank
from fsl_basesel.data.novel import NovelTask
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.source import ImageSource
from fsl_basesel.errors import InputError

DOMAINS = ("plain", "transfer", "fine")


class GlyphSource(ImageSource):
    """Images of characters, made when they are asked for.

    Image i of a character is a function of (seed, code point, i): no other class, image, worker or
    earlier call has a part in it.

    Args:
        codes: code points; each must be one of `glyph_codes()`.
        seed: seed of all images.
        per_class: images of each class.
        size: side of the images in pixels.
        style: how much the images of a class vary.

    Example:
        >>> source = GlyphSource([ord("Ж"), ord("A")], seed=0, per_class=100)
        >>> source.names
        ('Cyrillic: Ж CYRILLIC CAPITAL LETTER ZHE', 'Latin: A LATIN CAPITAL LETTER A')
        >>> source.images(np.array([0, 1, 1]), np.array([0, 0, 99])).shape
        torch.Size([3, 1, 28, 28])
    """

    def __init__(
        self,
        codes: Sequence[int],
        seed: int = 0,
        per_class: int = 500,
        size: int = 28,
        style: Style | None = None,
    ) -> None:
        if per_class < 1 or size < 8:
            raise InputError(
                "Expected `per_class` of at least 1 and `size` of at least 8 but got "
                f"per_class={per_class} and size={size}."
            )
        everything = bank()
        rows = {code: row for row, code in enumerate(everything.codes.tolist())}
        unknown = [code for code in codes if code not in rows]
        if unknown:
            raise InputError(
                f"Expected characters of the glyph data set but got {chr(unknown[0])!r}, which too "
                "few fonts have or which looks like another one; see glyph_codes()."
            )
        bounds = (everything.starts[rows[code] : rows[code] + 2] for code in codes)
        chosen = [everything.templates[start:stop] for start, stop in bounds]
        self.size, self.style = int(size), Style() if style is None else style
        self._templates = np.concatenate(chosen)
        self._starts = np.cumsum([0, *map(len, chosen)], dtype=np.int64)
        numbers = np.asarray(codes, np.int64).astype(np.uint64)
        self._keys = counter.mix(np.full(len(codes), counter.key(seed, "glyphs")), numbers)
        super().__init__(
            names=[characters.class_name(code) for code in codes],
            sizes=np.full(len(codes), per_class),
            identity=[repr((int(seed), self.size, self.style)), self._templates.tobytes()],
            groups=[characters.group_of(code) for code in codes],
        )

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        """Image `items[b]` of class `classes[b]`, `[B, 1, size, size]` float32 in [0, 1]."""
        drawn = render(
            self._templates, self._starts, self._keys, classes, items, self.size, self.style
        )
        return torch.from_numpy(drawn)


class GlyphSplits(NamedTuple):
    """The three disjoint sets of classes of an experiment; those for pre-training are expanded."""

    candidates: ClassPool
    novel: NovelTask
    pretraining: ClassPool


def glyph_codes() -> list[int]:
    """Code points of all glyph classes."""
    return bank().codes.tolist()


def glyph_splits(
    domain: str = "plain",
    candidates: int = 400,
    novel: int = 100,
    pretraining: int = 100,
    seed: int = 0,
    *,
    preview: int = 50,
    per_class: int = 500,
    shots: int = 20,
    queries: int = 100,
    size: int = 28,
    style: Style | None = None,
) -> GlyphSplits:
    """Candidates, novel task and pre-training classes of one experiment, disjoint.

    Args:
        domain: "plain": all classes at random. "transfer": the novel classes are Cyrillic,
            Armenian, Georgian and Hebrew letters, none of which is a candidate or a pre-training
            class. "fine": the novel classes are accented Latin letters; the rest of those stay in
            the pool at their natural rate.
        candidates: number of candidate classes. A larger number adds to the smaller pool.
        novel: number of novel classes.
        pretraining: number of pre-training classes.
        seed: seed of the split and of all images.
        preview: images a candidate shows before it is expanded.
        per_class: images a class has.
        shots: support images of a novel class.
        queries: test images of a novel class.
        size: side of the images in pixels.
        style: how much the images of a class vary.

    Example:
        >>> splits = glyph_splits("transfer", candidates=40, novel=10, pretraining=10, seed=1)
        >>> [len(part) for part in splits]
        [40, 10, 10]
        >>> sorted(set(splits.novel.groups) & set(splits.candidates.groups))
        []
    """
    one_of(domain, DOMAINS, "domain")
    wanted = {"transfer": characters.TRANSFER_GROUPS, "fine": {characters.FINE_GROUP}}.get(domain)
    everything = bank().codes
    # Two orders: novel classes taken from the front of one leave the front of the other unbiased.
    first, second = (
        everything[counter.shuffled(counter.key(seed, part), everything)].tolist()
        for part in ("novel classes", "other classes")
    )
    eligible = [code for code in first if wanted is None or characters.group_of(code) in wanted]
    novel_codes = _take(eligible, novel, "novel", domain)
    banned = set(eligible if domain == "transfer" else novel_codes)
    rest = [code for code in second if code not in banned]
    pretraining_codes = _take(rest, pretraining, "pretraining", domain)
    candidate_codes = _take(rest[pretraining:], candidates, "candidates", domain)

    def source(codes: list[int]) -> GlyphSource:
        return GlyphSource(codes, seed, per_class, size, style)

    known = ClassPool(source(pretraining_codes), preview)
    known.expand(range(len(known)))
    task = NovelTask(source(novel_codes), shots, queries, seed=seed)
    return GlyphSplits(ClassPool(source(candidate_codes), preview), task, known)


def _take(codes: list[int], count: int, argument: str, domain: str) -> list[int]:
    if not 1 <= count <= len(codes):
        raise InputError(
            f"Expected `{argument}` from 1 to {len(codes)} in the {domain} domain but got {count}."
        )
    return codes[:count]


def glyphs(
    domain: str = "plain",
    candidates: int = 400,
    novel: int = 100,
    seed: int = 0,
    **options: Any,
) -> tuple[ClassPool, NovelTask]:
    """The candidates and the novel task of `glyph_splits`, which says what the arguments mean.

    Example:
        >>> pool, novel = glyphs(domain="fine", candidates=40, novel=10, seed=0)
        >>> set(novel.groups)
        {'Accented Latin'}
    """
    splits = glyph_splits(domain, candidates, novel, seed=seed, **options)
    return splits.candidates, splits.novel
