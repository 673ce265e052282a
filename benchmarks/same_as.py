"""Does this tree do what another commit did? Runs of both, compared on one machine.

    python benchmarks/same_as.py 85ed315            # training; runs killed there, resumed here
    python benchmarks/same_as.py 85ed315 --demo     # also the table of the demo (7 minutes)
    python benchmarks/same_as.py 85ed315 --selections   # only `auto` on ImageNet-1k, 24 settings

Both trees train the same tiny cold start of three stages. The other tree is also killed with
SIGKILL at several moments, and this tree resumes its checkpoint. The result must be the weights of
an uninterrupted run, or a refusal with a reason. The exit code is 1 if anything else happens.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
# When the other tree is killed: epoch, batch, and the steps between its checkpoints.
KILLS: tuple[tuple[int, int, int | None], ...] = ((1, 0, None), (2, 3, None), (1, 4, 2), (2, 5, 3))
REFUSED = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ref", help="commit to compare with")
    parser.add_argument("--demo", action="store_true", help="compare the demo's table as well")
    parser.add_argument(
        "--selections",
        action="store_true",
        help="compare only the selections and bounds of benchmarks/selection_quality.py",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        return child(**json.loads(args.child))
    with tempfile.TemporaryDirectory() as temporary:
        other = Path(temporary) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(other), args.ref], check=True)
        try:
            if args.selections:
                lines = [("auto, 24 settings, cosine", selections(other))]
            else:
                lines = training(other, Path(temporary))
            if args.demo:
                lines.append(("demo's table", demo(other, Path(temporary))))
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    width = max(len(name) for name, _ in lines)
    for name, outcome in lines:
        print(f"{name:{width}}  {outcome}")
    return int(any(outcome.startswith("WRONG") for _, outcome in lines))


def training(other: Path, folder: Path) -> list[tuple[str, str]]:
    """Whole runs of both trees, then runs of the other one killed and taken up here."""
    for name, tree in (("there", other), ("here", HERE)):
        run(tree, folder / name)
    whole = read(folder / "there")
    lines = [("three stages, both trees", compared(whole, read(folder / "here")))]
    for number, (epoch, batch, steps) in enumerate(KILLS):
        case = folder / f"killed {number}"
        code = run(other, case, kill=(epoch, batch), steps=steps)
        often = "every epoch" if steps is None else f"every {steps} steps"
        name = f"killed in epoch {epoch}, batch {batch}, checkpoint {often}"
        if code != -signal.SIGKILL:
            lines.append((name, f"WRONG: the other tree was not killed but ended with {code}"))
            continue
        shutil.copytree(case, folder / "again")
        code = run(HERE, folder / "again", steps=steps, resume=True)
        if code == REFUSED:
            reason = (folder / "again" / "refused.txt").read_text().splitlines()[0]
            lines.append((name, f"refused: {reason}"))
        else:
            lines.append((name, compared(whole, read(folder / "again"))))
        shutil.rmtree(folder / "again")
    return lines


def run(tree: Path, folder: Path, **options: Any) -> int:
    """Train in a process of `tree`; its exit code."""
    settings = json.dumps({"folder": str(folder)} | options)
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "-", "--child", settings]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True)
    if done.returncode not in (0, REFUSED, -signal.SIGKILL):
        print(done.stderr[-3000:], file=sys.stderr)
    return done.returncode


def child(
    folder: str,
    kill: tuple[int, int] | None = None,
    steps: int | None = None,
    resume: bool = False,
) -> int:
    """Train, be killed, or go on; leave weights and classes behind."""
    import numpy as np
    import pytorch_lightning as pl

    import fsl_basesel as fb

    class Kill(pl.Callback):
        def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
            if kill is not None and [trainer.current_epoch, trainer.fit_loop.batch_idx] == kill:
                os.kill(os.getpid(), signal.SIGKILL)

    spec = importlib.util.spec_from_file_location("make", HERE / "tests" / "golden" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    place = Path(folder)
    checkpoint = place / "last.ckpt" if resume else None
    try:
        weights, classes = make.train(
            place, checkpoint=checkpoint, extra=[Kill()], every_n_train_steps=steps
        )
    except fb.InputError as error:
        (place / "refused.txt").write_text(f"{error}\n")
        return REFUSED
    np.savez(place / "weights.npz", **weights)
    (place / "classes.json").write_text(json.dumps(list(classes), ensure_ascii=False))
    return 0


def read(folder: Path) -> dict[str, Any]:
    """Everything of a run that must be the same."""
    import numpy as np

    if not (folder / "weights.npz").is_file():
        return {}
    with np.load(folder / "weights.npz") as file:
        weights = {name: file[name].tobytes() for name in file.files}
    selections = {}
    for path in sorted(folder.glob("selection-stage-*.json")):
        content = json.loads(path.read_text())
        selections[path.name] = [content[name] for name in ("indices", "names", "value", "gap")]
    accuracies = [path.read_text() for path in sorted(folder.glob("novel_*.csv"))]
    return {
        "classes": (folder / "classes.json").read_text(),
        "weights": weights,
        "selections": selections,
        "accuracies": accuracies,
    }


def compared(there: dict[str, Any], here: dict[str, Any]) -> str:
    """What differs, in a few words."""
    if not here:
        return "WRONG: it failed, and not with a reason"
    differing = [name for name in there if there[name] != here[name]]
    return f"WRONG: other {', '.join(differing)}" if differing else "the same to the last bit"


SELECTIONS = """
import json, sys
from pathlib import Path
import numpy as np
import fsl_basesel as fb
with np.load(Path(sys.argv[1]) / "imagenet1k_efflite0_feats.npz") as stored:
    means = fb.class_centroids(stored["feat"], stored["label"].astype(np.int64))
means = np.asarray(means)[np.random.default_rng(0).permutation(len(means))]
found = []
for m in (20, 100):
    for k in (1, 3, 5, 10):
        for lam in (0.0, 0.2, 0.5):
            problem = fb.SelectionProblem.from_centroids(means[:400], means[400:500], m, k, lam)
            one = fb.select(problem)
            found.append([one.indices, one.value.hex(), one.upper_bound.hex()])
print(json.dumps(found))
"""


def selections(other: Path) -> str:
    """Indices, values and bounds of `auto` on ImageNet-1k, the settings of selection_quality.py."""
    data = os.environ.get("FSL_BASESEL_DATA", str(HERE.parent / "shared" / "data"))
    there, here = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SELECTIONS, data],
                env=os.environ | {"PYTHONPATH": str(tree)},
                check=True,
                stdout=subprocess.PIPE,
            ).stdout
        )
        for tree in (other, HERE)
    )
    differing = [number for number, one in enumerate(there) if one != here[number]]
    if differing:
        return f"WRONG: other classes, values or bounds in the settings {differing}"
    return "the same to the last bit"


def demo(other: Path, folder: Path) -> str:
    """The demo's output of both trees, without its last line, which has the time."""
    shown = []
    for name, tree in (("there", other), ("here", HERE)):
        place = folder / f"demo {name}"
        place.mkdir()
        code = "import sys; from fsl_basesel.cli import main; sys.exit(main(['demo']))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "100"},
            cwd=place,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            return f"WRONG: the demo {name} ended with {done.returncode}"
        shown.append(table(done.stdout))
    there, here = shown
    missing = [line for line in there if line not in here]
    if missing:
        return "WRONG: lines that are not the same here\n" + "\n".join(map(" ".join, missing))
    return f"the same to the last digit ({len(there)} lines; {len(here) - len(there)} more here)"


def table(text: str) -> list[list[str]]:
    """The lines with figures (methods, stages), as words: columns may be wider in one tree."""
    return [line.split() for line in text.splitlines() if re.search(r"\d\.\d.*%|\d ± ", line)]


if __name__ == "__main__":
    sys.exit(main())
