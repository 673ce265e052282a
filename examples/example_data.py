"""Data for the examples: the embedded glyphs, or Omniglot where `FSL_BASESEL_DATA` has it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import learn2learn as l2l
import numpy as np

from fsl_basesel.data import ImageSet, ImageSource, from_arrays, glyph_splits
from fsl_basesel.errors import InputError


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """The data arguments of every example."""
    parser.add_argument("--data", choices=("glyphs", "omniglot"), default="glyphs")
    parser.add_argument("--candidates", type=int, default=200, help="candidate classes (glyphs)")
    parser.add_argument("--novel", type=int, default=50, help="novel classes (glyphs)")
    parser.add_argument("--images", type=int, default=20, help="images of each class")
    parser.add_argument("--seed", type=int, default=0)


def sources(args: argparse.Namespace) -> tuple[ImageSource, ImageSource]:
    """Candidate and novel classes, 28 x 28 pixels, disjoint."""
    if args.data == "omniglot":
        return omniglot()
    splits = glyph_splits(
        candidates=args.candidates,
        novel=args.novel,
        pretraining=1,
        seed=args.seed,
        per_class=args.images,
        preview=1,
        shots=1,
        queries=1,
    )
    return splits.candidates.source, splits.novel.source


def omniglot() -> tuple[ImageSource, ImageSource]:
    """Omniglot's background and evaluation characters, from `omniglot28.npz`."""
    path = Path(os.environ.get("FSL_BASESEL_DATA", ".")) / "omniglot28.npz"
    if not path.exists():
        raise InputError(f"Expected {path} to exist; set FSL_BASESEL_DATA to the folder it is in.")
    with np.load(path) as file:
        pixels = np.unpackbits(file["bits"], axis=1)[:, :784].reshape(-1, 28, 28)
        labels, names = file["label"], [str(name) for name in file["class_name"]]
        background = np.flatnonzero(file["is_background"]).tolist()
    everything = from_arrays(255 * pixels, labels, names)
    rest = sorted(set(range(len(names))) - set(background))
    return everything.subset(background), everything.subset(rest)


def meta_dataset(source: ImageSource) -> l2l.data.MetaDataset:
    """All images of a source as learn2learn wants them; label c is class c of the source."""
    labels = np.repeat(np.arange(len(source)), source.sizes)
    items = np.concatenate([np.arange(size) for size in source.sizes])
    # With the table given, learn2learn need not open every image to make it.
    table = {c: np.flatnonzero(labels == c).tolist() for c in range(len(source))}
    return l2l.data.MetaDataset(ImageSet(source, labels, items, labels), labels_to_indices=table)
