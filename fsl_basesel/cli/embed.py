"""`fsl-basesel embed`: class centroids of a folder of pictures, as a file for `select`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from fsl_basesel.cli import output
from fsl_basesel.cli.problems import add_picture_arguments, picture_options
from fsl_basesel.cli.select import print_estimates
from fsl_basesel.distributed import is_first
from fsl_basesel.files.writing import save_npz

EXAMPLES = """\
examples:
  the pool once, for many selections:
    fsl-basesel embed photos/pool --out pool.npz
    fsl-basesel select pool.npz --novel photos/task -m 10 -k 1
  by four processes, on this machine or on several:
    torchrun --nproc-per-node 4 -m fsl_basesel embed photos/pool --out pool.npz

FOLDER has one folder of pictures for each class, or is a data set saved by
Hugging Face `datasets`. Features are kept under FSL_BASESEL_CACHE, so a second
call is quick, and a killed one continues."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("candidates", metavar="FOLDER", help="folder of class folders")
    add_picture_arguments(parser)
    add = parser.add_argument_group("output").add_argument
    add("--out", metavar="FILE", required=True, help="where to save (.npz)")
    add("--seed", type=int, default=0, help="seed of the images looked at (0)")
    add("--all", action="store_true", help="save the feature of every image, with labels")
    dry = "print number of images, time, memory and disk, then exit"
    add("--dry-run", action="store_true", help=dry)


def run(args: argparse.Namespace) -> int:
    """Embed and save; of several processes the first writes."""
    from fsl_basesel.backbones import DEFAULT
    from fsl_basesel.photographs import EmbeddingJob

    out = output.check_out(args.out, ("npz",))
    assert out is not None
    job = EmbeddingJob(args.candidates, args.backbone or DEFAULT, **picture_options(args))
    if args.dry_run:
        print_estimates({args.candidates: job})
        return 0
    start = time.perf_counter()
    arrays: dict[str, Any] = {
        "names": list(job.names),
        "backbone": job.backbone.name,
        "preprocessing": str(job.backbone.preprocessing),
    }
    with output.working("Looking at images"):
        if args.all:
            arrays["features"], arrays["labels"] = job.features()
        else:
            means = job.centroids()
            arrays |= {"features": means.values, "images": means.images}
    if not is_first():
        return 0
    if job.groups is not None:
        arrays["groups"] = list(job.groups)
    with output.writing(out):
        save_npz(out, "fsl-basesel classes 1", **arrays)
    count, seconds = len(job.images), time.perf_counter() - start
    print(
        f"{len(job.names)} classes, {count} images, {arrays['features'].shape[1]} dimensions by "
        f"{job.backbone.name} in {seconds:.1f} s ({count / seconds:.0f} images/s)\nSaved to {out}"
    )
    return 0
