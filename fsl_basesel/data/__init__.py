"""Classes and images: the candidate pool, the novel task, and the sources they are made from."""

from typing import TYPE_CHECKING, Any

from fsl_basesel.data.arrays import from_arrays, from_features
from fsl_basesel.data.datasets import from_dataset
from fsl_basesel.data.folder import image_folder
from fsl_basesel.data.glyphs import GlyphSource, GlyphSplits, glyph_codes, glyph_splits, glyphs
from fsl_basesel.data.glyphs.render import Style
from fsl_basesel.data.hugging_face import chosen_rows, from_hugging_face
from fsl_basesel.data.labelling import LabellingQueue, LabelsPending
from fsl_basesel.data.novel import NovelTask, require_disjoint
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.reading import CorruptImageError
from fsl_basesel.data.source import ImageSet, ImageSource
from fsl_basesel.data.splitting import split_classes

if TYPE_CHECKING:
    from fsl_basesel.data.chosen import chosen_folder

__all__ = [
    "ClassPool",
    "CorruptImageError",
    "GlyphSource",
    "GlyphSplits",
    "ImageSet",
    "ImageSource",
    "LabellingQueue",
    "LabelsPending",
    "NovelTask",
    "Style",
    "chosen_folder",
    "chosen_rows",
    "from_arrays",
    "from_dataset",
    "from_features",
    "from_hugging_face",
    "glyph_codes",
    "glyph_splits",
    "glyphs",
    "image_folder",
    "require_disjoint",
    "split_classes",
]


def __getattr__(name: str) -> Any:
    if name != "chosen_folder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsl_basesel.data.chosen import chosen_folder  # needs torchvision, slow to import

    return chosen_folder
