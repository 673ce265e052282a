"""Reading what users bring: class features, similarity matrices, selected classes and costs."""

from fsl_basesel.files.classes import ClassFeatures, locate, read_classes
from fsl_basesel.files.lists import read_cost, read_selected
from fsl_basesel.files.matrices import SimilarityMatrix, read_similarity

__all__ = [
    "ClassFeatures",
    "SimilarityMatrix",
    "locate",
    "read_classes",
    "read_cost",
    "read_selected",
    "read_similarity",
]
