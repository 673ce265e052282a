"""Classes and images: the candidate pool, the novel task, and the sources they are made from."""

from fsl_basesel.data.arrays import from_arrays, from_features
from fsl_basesel.data.glyphs import (
    GlyphSource,
    GlyphSplits,
    glyph_codes,
    glyph_groups,
    glyph_splits,
    glyphs,
)
from fsl_basesel.data.novel import NovelTask, require_disjoint
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.render import Style
from fsl_basesel.data.source import ImageSet, ImageSource

__all__ = [
    "ClassPool",
    "GlyphSource",
    "GlyphSplits",
    "ImageSet",
    "ImageSource",
    "NovelTask",
    "Style",
    "from_arrays",
    "from_features",
    "glyph_codes",
    "glyph_groups",
    "glyph_splits",
    "glyphs",
    "require_disjoint",
]
