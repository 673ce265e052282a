"""Your own folder of pictures, from the files to a trained network and its few-shot accuracy.

    python examples/image_folder.py pictures --novel "cat,dog,fish,owl,fox"
    python examples/image_folder.py          # makes a small folder of characters to try it on

The folder has one folder for each class. Classes named with `--novel` are the task; of the others
`--classes` are chosen and trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
from PIL import Image

from fsl_basesel.data import GlyphSource, glyph_codes, image_folder, split_classes
from lightning_modules import (
    BaseClassDataModule,
    BaseClassifier,
    NovelEvaluation,
    SelectBaseClasses,
)
from lightning_modules.heads import NearestCentroid, SoftmaxRegression


def make_folder(folder: Path, classes: int, images: int) -> None:
    """Write pictures of characters, one folder per class."""
    source = GlyphSource(glyph_codes()[:classes], per_class=images)
    for number, name in enumerate(source.names):
        place = folder / name.replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        pictures = source.images(np.full(images, number), np.arange(images))
        for item, picture in enumerate((255 * pictures[:, 0]).byte().numpy()):
            Image.fromarray(picture).save(place / f"{item:03d}.png")


def main(argv: Sequence[str] | None = None) -> list:
    """Select, train and evaluate; the accuracies of the heads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--novel", default="10", help="names with commas between, or how many")
    parser.add_argument("--classes", type=int, default=20, help="how many classes to choose")
    parser.add_argument("--size", type=int, default=28, help="side of the images in pixels")
    parser.add_argument("--channels", type=int, default=1, help="3 for colour")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--queries", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--run", default="runs/image-folder", help="where files are written")
    args = parser.parse_args(argv)
    if not args.folder.exists():
        make_folder(args.folder, classes=60, images=24)

    source = image_folder(args.folder, size=args.size, channels=args.channels, on_corrupt="skip")
    novel = int(args.novel) if args.novel.isdecimal() else args.novel.split(",")
    pool, task = split_classes(source, novel, preview=5, shots=args.shots, queries=args.queries)
    evaluation = NovelEvaluation(
        [NearestCentroid(), SoftmaxRegression()], shots=args.shots, episodes=3, every="end"
    )
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        callbacks=[SelectBaseClasses(m=args.classes, k=3), evaluation],
        default_root_dir=args.run,
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
        accelerator="auto",
    )
    model = BaseClassifier("conv3", in_channels=args.channels, lr=0.05)
    trainer.fit(model, BaseClassDataModule(pool, task, batch_size=32))
    return evaluation.results


if __name__ == "__main__":
    main()
