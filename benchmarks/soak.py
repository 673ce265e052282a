"""Does an interrupted run resume as if nothing had happened? Random settings, random faults.

    python benchmarks/soak.py --minutes 10 --seed 1           # adds to soak.jsonl, prints the table
    python benchmarks/soak.py --case 1:17 --keep DIR          # repeats one case, keeps its files
    python benchmarks/soak.py --lightning --minutes 5         # Lightning alone, where possible
    python benchmarks/soak.py --table                         # only prints the table

Every case trains a tiny cold start twice: once without faults, and once with a fault after which
the same command is repeated until the run ends. Compared bit for bit are weights, classes,
logged numbers, CSV files and selections. A case is *identical*, *refused* (the command printed one
line with the reason, and the checkpoint that it named instead led to the identical end), or
*wrong*. The exit code is 1 if one is wrong. A case depends on its seed and number only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers.logger import Logger
from torch import nn

import fsl_basesel as fb
from fsl_basesel.data import ClassPool, ImageSource, NovelTask, from_arrays
from lightning_modules import (
    BaseClassDataModule,
    BaseClassifier,
    ColdStartSelection,
    NovelEvaluation,
    StageEarlyStopping,
)

SCHEDULE, EPOCHS = (2, 3, 5), (2, 1, 1)
FAULTS_OF_A_SETTING = 4
DAMAGED = ("truncated checkpoint", "flipped bit")
FAULTS = ("kill -9", "kill -9, three times", "kill in a checkpoint", "kill in a selection",
          "kill of a worker", "SIGTERM", "full disk", *DAMAGED)  # fmt: skip
ALONE = "Lightning alone"
REFUSED, HUNG = 3, 124
SECONDS = 120  # after which a process counts as hanging
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where flushing a file is quick
ROOM = 20_000  # bytes of a file on the full disk; a checkpoint has more, all other files have less


@dataclass(frozen=True)
class Setting:
    """A run, as its draw made it."""

    scheduler: str
    workers: int
    accumulate: int
    precision: str
    warm_start: bool
    early_stopping: bool
    validation: float
    checkpoint_steps: int | None
    evaluation: str
    processes: int
    lightning: bool = False

    @classmethod
    def drawn(cls, seed: int, number: int, lightning: bool) -> Setting:
        """Setting `number` of a seed."""
        rng = random.Random(f"setting {seed} {number}")
        pick = rng.choice
        return cls(
            scheduler=pick(["one-cycle", "step", "plateau"]),
            workers=pick([0, 0, 0, 2]),
            accumulate=pick([1, 1, 2, 3]),
            precision=pick(["32-true", "32-true", "bf16-mixed", "64-true"]),
            warm_start=pick([False, True]),
            early_stopping=pick([False, False, True]),
            validation=pick([1.0, 1.0, 0.5]),
            checkpoint_steps=pick([None, None, 1, 2, 3, 4, 7]),
            evaluation=pick(["none", "stage", "epoch"]),
            processes=1 if lightning else pick([1, 1, 1, 1, 2]),
            lightning=lightning,
        )

    @property
    def name(self) -> str:
        """What the rows of the table are called: what matters most for resuming."""
        if self.lightning:
            return ALONE
        steps = self.checkpoint_steps
        often = "checkpoints of epochs" if steps is None else "checkpoints of steps"
        return f"{'two processes' if self.processes > 1 else 'one process'}, {often}"


@dataclass(frozen=True)
class Fault:
    """What goes wrong: `kind` at event `at` of process `rank`, `times` times."""

    kind: str
    at: tuple[int, ...]
    rank: int
    position: float

    @classmethod
    def drawn(cls, seed: int, number: int, events: dict[str, int], setting: Setting) -> Fault:
        """Fault `number` of a seed for a run that has so many events of each kind."""
        rng = random.Random(f"fault {seed} {number}")
        impossible = [] if events["selection"] else ["kill in a selection"]
        impossible += [] if setting.workers else ["kill of a worker"]
        kind = rng.choice([kind for kind in FAULTS if kind not in impossible])
        what = {"kill in a checkpoint": "checkpoint", "kill in a selection": "selection"}
        count = max(1, events.get(what.get(kind, "any"), 1))
        times = 3 if kind == "kill -9, three times" else 1
        at = tuple(rng.randrange(count) for _ in range(times))
        return cls(kind, at, rng.randrange(setting.processes), rng.random())

    def event(self) -> str:
        """Which events are counted."""
        if self.kind == "kill in a checkpoint":
            return "checkpoint"
        return "selection" if self.kind == "kill in a selection" else "any"


# Inside a run


class Network(nn.Module):
    """Dropout and batch normalisation, so that random numbers and buffers matter."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


def noisy(images: torch.Tensor) -> torch.Tensor:
    """Noise from all three generators, as augmentation inside a model would draw it."""
    scale = 0.05 * (np.random.rand() + random.random())  # noqa: NPY002
    return images + scale * torch.rand_like(images)


def configured(model: Any, scheduler: str, parameters: Iterable[nn.Parameter]) -> Any:
    """An optimizer and the schedule of that name."""
    optimizer = torch.optim.SGD(parameters, 0.05, momentum=0.9)
    if scheduler == "plateau":
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
        }
    return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


class Model(BaseClassifier):
    """The project's model, with noise and another schedule."""

    def __init__(self, scheduler: str) -> None:
        torch.manual_seed(5)
        super().__init__(Network(), lr=0.05, schedule="one-cycle")
        self.other = scheduler

    def configure_optimizers(self) -> Any:
        if self.other == "one-cycle":
            return super().configure_optimizers()
        return configured(self, self.other, self.parameters())

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        images, labels = batch
        return super().training_step((noisy(images), labels), batch_idx)


class PlainModel(pl.LightningModule):
    """The same network without this project, for `--lightning`."""

    def __init__(self, scheduler: str) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.net = nn.Sequential(Network(), nn.Flatten(), nn.Linear(54, SCHEDULE[-1]))
        self.other = "step" if scheduler == "one-cycle" else scheduler

    def configure_optimizers(self) -> Any:
        return configured(self, self.other, self.parameters())

    def _loss(self, batch: Any, name: str) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log(f"{name}_loss", loss, on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._loss((noisy(batch[0]), batch[1]), "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._loss(batch, "val")


class Log(Logger):
    """Writes every logged number at once, so that it outlives a kill."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    name, version = "soak", 0  # type: ignore[assignment]

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Append the numbers of a step."""
        with open(self.path, "a") as file:
            numbers = {name: float(value).hex() for name, value in metrics.items()}
            file.write(json.dumps([step, numbers]) + "\n")

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Settings are no results."""


class Events(pl.Callback):
    """Counts what happens in a run and strikes when the number of the fault is reached."""

    def __init__(self, strike: Callable[[], None] | None, kind: str, at: int) -> None:
        self.strike, self.kind, self.at = strike, kind, at
        self.counts = {"any": 0, "checkpoint": 0, "selection": 0}

    def happened(self, kind: str) -> bool:
        """Count an event; True if the fault strikes in it."""
        self.counts[kind] += 1
        return self.strike is not None and kind == self.kind and self.counts[kind] == self.at + 1

    def _any(self) -> None:
        if self.happened("any"):
            assert self.strike is not None
            self.strike()

    def on_train_batch_start(self, *args: Any) -> None:
        self._any()

    def on_after_backward(self, *args: Any) -> None:
        self._any()

    def on_train_batch_end(self, *args: Any) -> None:
        self._any()

    def on_train_epoch_start(self, *args: Any) -> None:
        self._any()

    def on_train_epoch_end(self, *args: Any) -> None:
        self._any()

    def on_validation_batch_end(self, *args: Any) -> None:
        self._any()

    def on_validation_end(self, *args: Any) -> None:
        self._any()

    def arm(self) -> None:
        """Count checkpoints and selections too, and die half-way through one."""
        import lightning_modules.callbacks.base as base

        save, select = torch.save, base.select

        def saving(content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
            if self.happened("checkpoint"):
                if hasattr(file, "write"):
                    file.write(b"PK half a checkpoint")
                    file.flush()
                die()
            save(content, file, *args, **kwargs)

        def selecting(*args: Any, **kwargs: Any) -> Any:
            found = select(*args, **kwargs)
            if self.happened("selection"):
                die()
            return found

        torch.save, base.select = saving, selecting


def die() -> None:
    """What a power cut does to a process."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_the_disk() -> None:
    """From now on no checkpoint can be written to its end."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, limit))


def kill_a_worker() -> None:
    """One of the processes that fetch images, if there are any at this moment."""
    for worker in multiprocessing.active_children()[:1]:
        os.kill(worker.pid or 0, signal.SIGKILL)


STRIKES: dict[str, Callable[[], None]] = {
    "kill of a worker": kill_a_worker,
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "full disk": fill_the_disk,
}


def images_of(names: Sequence[str], seed: int) -> ImageSource:
    """Classes that differ: each has a pattern under noise."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((len(names), 1, 1, 8, 8))
    pictures = 0.7 * patterns + 0.3 * rng.random((len(names), 10, 1, 8, 8))
    labels = np.repeat(np.arange(len(names)), 10)
    return from_arrays(pictures.reshape(-1, 1, 8, 8).astype(np.float32), labels, names)


def train(folder: str, setting: Setting, fault: Fault | None, attempt: int) -> None:
    """One start of the run: from the last checkpoint if there is one."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    place, rank = Path(folder), int(os.environ.get("LOCAL_RANK", "0"))
    struck = fault is not None and attempt < len(fault.at)
    # SIGTERM goes to all processes, as schedulers send it.
    struck &= fault is not None and (fault.rank == rank or fault.kind == "SIGTERM")
    at = fault.at[attempt] if fault is not None and struck else 0
    strike = STRIKES.get(fault.kind, die) if fault is not None and struck else None
    events = Events(strike, "any" if fault is None else fault.event(), at)
    events.arm()
    checkpoint = ModelCheckpoint(
        place / "checkpoints", save_last=True, every_n_train_steps=setting.checkpoint_steps
    )
    options: dict[str, Any] = {
        "default_root_dir": place,
        "accelerator": "cpu",
        "devices": setting.processes,
        "strategy": "ddp" if setting.processes > 1 else "auto",
        "precision": setting.precision,
        "accumulate_grad_batches": setting.accumulate,
        "val_check_interval": setting.validation,
        "logger": Log(place / f"logged-{rank}.jsonl"),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
    }
    last = place / "checkpoints" / "last.ckpt"
    resume = str(last) if last.is_file() else None
    if setting.lightning:
        model, classes = _plain(setting, [checkpoint, events], options, resume)
    else:
        model, classes = _cold_start(setting, place, [checkpoint, events], options, resume)
    torch.save(model.state_dict(), place / f"weights-{rank}.pt")
    done = {"classes": classes, "events": events.counts}
    (place / f"done-{rank}.json").write_text(json.dumps(done))


def _cold_start(
    setting: Setting, place: Path, callbacks: list[Any], options: Any, resume: str | None
) -> tuple[Any, list[str]]:
    pool = ClassPool(images_of([f"base {c}" for c in range(10)], 0), preview=4)
    novel = NovelTask(images_of([f"novel {c}" for c in range(3)], 1), shots=4, queries=3)
    data = BaseClassDataModule(
        pool,
        novel,
        batch_size=4,
        val_per_class=2,
        num_workers=setting.workers,
        persistent_workers=setting.workers > 0,
    )
    selection = ColdStartSelection(
        SCHEDULE, EPOCHS, k=2, warm_start=setting.warm_start, dirpath=place, verbose=False
    )
    callbacks = [selection, *callbacks]
    if setting.evaluation != "none":
        callbacks.append(
            NovelEvaluation(
                ways=3,
                shots=1,
                queries=2,
                episodes=5,
                every=setting.evaluation,
                dirpath=place,
                verbose=False,
            )
        )
    if setting.early_stopping:
        callbacks.append(StageEarlyStopping("val_loss", patience=1, min_delta=0.01))
    model = Model(setting.scheduler)
    trainer = pl.Trainer(callbacks=callbacks, **options)
    trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    return model, list(data.classes)


def _plain(
    setting: Setting, callbacks: list[Any], options: Any, resume: str | None
) -> tuple[Any, list[str]]:
    """Plain Lightning as its documentation shows it: seeded, shuffled, `save_last`."""
    pl.seed_everything(7, verbose=False)
    source = images_of([f"base {c}" for c in range(SCHEDULE[-1])], 0)
    numbers = np.repeat(np.arange(SCHEDULE[-1]), 10)
    items = np.tile(np.arange(10), SCHEDULE[-1])
    images = torch.utils.data.TensorDataset(
        source.images(numbers, items), torch.from_numpy(numbers.astype(np.int64))
    )
    part, rest = torch.utils.data.random_split(images, [8 * SCHEDULE[-1], 2 * SCHEDULE[-1]])
    loaders = [
        torch.utils.data.DataLoader(part, 4, shuffle=True, num_workers=setting.workers),
        torch.utils.data.DataLoader(rest, 12),
    ]
    if setting.early_stopping:
        callbacks.append(pl.callbacks.EarlyStopping("val_loss", patience=2, min_delta=0.01))
    model = PlainModel(setting.scheduler)
    trainer = pl.Trainer(callbacks=callbacks, max_epochs=sum(EPOCHS), **options)
    trainer.fit(model, *loaders, ckpt_path=resume, weights_only=False)
    return model, []


# Around a run


# Runs are forked from this process after it has trained once, so that each starts in no time.
_context = multiprocessing.get_context("fork")


def warm_up() -> None:
    """Train once, so that all is loaded and compiled."""
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting.drawn(0, 0, False)
        train(folder, replace(setting, workers=0, processes=1, evaluation="stage"), None, 0)


def start(folder: Path, setting: Setting, fault: Fault | None, attempt: int) -> int:
    """Start all processes of a run and wait; if one ends badly the others are ended."""
    environment: dict[str, str] = {}
    if setting.processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": "0"}
        environment["WORLD_SIZE"] = str(setting.processes)
    processes = []
    for rank in range(setting.processes):
        own = environment | ({"LOCAL_RANK": str(rank)} if setting.processes > 1 else {})
        words = (str(folder), asdict(setting), fault and asdict(fault), attempt, own)
        processes.append(_context.Process(target=_child, args=words))
        processes[-1].start()
    deadline = time.monotonic() + SECONDS
    while any(process.is_alive() for process in processes):
        ended = [process.exitcode for process in processes if process.exitcode is not None]
        if time.monotonic() > deadline or any(ended):
            for process in processes:
                process.join(1)
                if process.is_alive():
                    process.kill()
            break
        time.sleep(0.02)
    for process in processes:
        process.join()
    if time.monotonic() > deadline:
        return HUNG
    codes = [process.exitcode or 0 for process in processes]
    return REFUSED if REFUSED in codes else next((code for code in codes if code), 0)


def _child(folder: str, setting: Any, fault: Any, attempt: int, environment: Any) -> None:
    os.environ.update(environment)
    multiprocessing.set_start_method("fork", force=True)
    out = open(Path(folder) / f"output-{attempt}-{environment.get('LOCAL_RANK', 0)}.txt", "w")  # noqa: SIM115
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    known = None if fault is None else Fault(**(fault | {"at": tuple(fault["at"])}))
    try:
        train(folder, Setting(**setting), known, attempt)
    except fb.InputError as error:
        (Path(folder) / "refused.txt").write_text(f"{error}\n")
        os._exit(REFUSED)
    except BaseException:
        traceback.print_exc()
        out.flush()
        os._exit(1)
    os._exit(0)


def outcome(folder: Path, processes: int) -> dict[str, Any]:
    """Everything that must be the same, by what it is."""
    found: dict[str, Any] = {}
    for rank in range(processes):
        if not (folder / f"done-{rank}.json").is_file():
            return {}
        done = json.loads((folder / f"done-{rank}.json").read_text())
        found[f"classes {rank}"] = done["classes"]
        weights = torch.load(folder / f"weights-{rank}.pt", weights_only=True)
        found[f"weights {rank}"] = {
            name: value.numpy().tobytes() for name, value in weights.items()
        }
    numbers: dict[str, str] = {}
    for line in (folder / "logged-0.jsonl").read_text().splitlines():
        try:
            step, metrics = json.loads(line)
        except ValueError:
            continue  # a kill in the middle of a line; the line comes again
        numbers |= {
            f"{name} at {step}": value for name, value in metrics.items() if "seconds" not in name
        }
    found["logged numbers"] = numbers
    for path in sorted(folder.glob("novel_*.csv")):
        found[path.name] = path.read_text()
    for path in sorted(folder.glob("selection-stage-*.json")):
        found[path.name] = json.loads(path.read_text()) | {"seconds": 0}
    return found


def differences(whole: dict[str, Any], broken: dict[str, Any]) -> list[str]:
    """What is not the same, in a few words each."""
    if not broken:
        return ["it did not finish"]
    found = []
    for name in sorted(set(whole) | set(broken)):
        one, two = whole.get(name), broken.get(name)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            keys = sorted(key for key in set(one) | set(two) if one.get(key) != two.get(key))
            found.append(f"{name}: {', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''}")
        else:
            found.append(name)
    return found


def damage(path: Path, fault: Fault) -> None:
    """Cut a checkpoint off, or flip one of its bits."""
    content = bytearray(path.read_bytes())
    at = int(fault.position * len(content))
    if fault.kind == "truncated checkpoint":
        content = content[:at]
    else:
        content[at] ^= 1 << (at % 8)
    path.write_bytes(bytes(content))


def run_case(
    setting: Setting, fault: Fault, folder: Path, whole: dict[str, Any]
) -> tuple[str, list[str]]:
    """Break the run, give the same command again until it is through, compare."""
    folder.mkdir(parents=True)
    last, attempt, refused = folder / "checkpoints" / "last.ckpt", 0, []
    while True:
        code = start(folder, setting, fault, attempt)
        attempt += 1
        if code == REFUSED and not refused:
            refused = [(folder / "refused.txt").read_text().strip()]
            if not fault.kind.startswith(DAMAGED):
                break
            _, advice, instead = refused[0].partition("resume from ")
            last.unlink()
            if advice:
                shutil.copyfile(instead.removesuffix("."), last)
        elif code in (0, REFUSED, HUNG) or attempt > len(fault.at) + 1:
            break
        elif fault.kind in DAMAGED and attempt == 1 and last.is_file():
            damage(last, fault)
    if code == HUNG:
        return "wrong", ["it hung"]
    if code and setting.lightning and fault.kind in DAMAGED:
        return "refused", ["an error of torch.load"]
    if code:
        texts = sorted(folder.glob(f"output-{attempt - 1}-*.txt"))
        ends = [text.read_text().strip().rpartition("\n")[2] for text in texts]
        return "wrong", [*refused, f"exit code {code}: {' '.join(ends)[:200]}"]
    found = differences(whole, outcome(folder, setting.processes))
    return ("wrong", found) if found else ("refused" if refused else "identical", refused)


def soak(
    seed: int, numbers: Iterable[int], until: float, lightning: bool, log: Path, keep: Path | None
) -> int:
    """Run cases one after the other; the number that went wrong."""
    wrong, known, whole, events = 0, -1, {}, {}
    with tempfile.TemporaryDirectory(dir=MEMORY) as temporary:
        root = Path(temporary) if keep is None else keep
        for number in numbers:
            if time.monotonic() > until:
                break
            group = number // FAULTS_OF_A_SETTING
            setting = Setting.drawn(seed, group, lightning)
            if group != known:
                place = root / f"whole {group}"
                place.mkdir(parents=True)
                code = start(place, setting, None, 0)
                if code:
                    text = "".join(path.read_text() for path in place.glob("output-*.txt"))
                    raise RuntimeError(f"The run without faults ended with {code}:\n{text[-2000:]}")
                whole = outcome(place, setting.processes)
                events = json.loads((place / "done-0.json").read_text())["events"]
                known = group
            fault = Fault.drawn(seed, number, events, setting)
            result, reasons = run_case(setting, fault, root / f"case {number}", whole)
            line = {"case": f"{seed}:{number}", "setting": asdict(setting), "fault": asdict(fault)}
            line |= {"name": setting.name, "outcome": result, "reasons": reasons}
            with open(log, "a") as file:
                file.write(json.dumps(line) + "\n")
            if result == "wrong":
                wrong += 1
                more = " --lightning" if lightning else ""
                print(f"WRONG {fault.kind}: {'; '.join(reasons)[:300]}")
                print(f"  repeat it with: python benchmarks/soak.py --case {seed}:{number}{more}")
            if keep is None:
                shutil.rmtree(root / f"case {number}", ignore_errors=True)
    return wrong


def table(log: Path) -> list[str]:
    """A Markdown table: tries, identical, refused and wrong of each fault in each setting."""
    outcomes = ("identical", "refused", "wrong")
    counts: Counter[tuple[str, str, str]] = Counter()
    for line in log.read_text().splitlines() if log.is_file() else []:
        case = json.loads(line)
        everywhere = () if case["name"] == ALONE else ("all",)
        for name in (case["name"], *everywhere):
            counts.update((name, kind, case["outcome"]) for kind in (case["fault"]["kind"], "all"))
    names = sorted({name for name, _, _ in counts} - {"all", ALONE})
    names += [name for name in ("all", ALONE) if any(name == key[0] for key in counts)]
    lines = [f"| fault | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for kind in (*FAULTS, "all"):
        cells = []
        for name in names:
            found = [counts[name, kind, result] for result in outcomes]
            cells.append(f"{sum(found)}: {' / '.join(map(str, found))}" if sum(found) else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return [*lines, "", f"Tries: {' / '.join(outcomes)}."]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long to go on (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--cases", type=int, default=10**6, help="at most so many cases")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="one case alone")
    parser.add_argument("--lightning", action="store_true", help="plain Lightning instead")
    parser.add_argument("--log", type=Path, default=Path("soak.jsonl"), help="results add up here")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of the runs")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    args = parser.parse_args(argv)
    if args.table:
        print("\n".join(table(args.log)))
        return 0
    warm_up()
    seed, numbers = args.seed, range(args.first, args.first + args.cases)
    if args.case is not None:
        seed, number = map(int, args.case.split(":"))
        numbers = range(number, number + 1)
    until = time.monotonic() + 60 * args.minutes
    wrong = soak(seed, numbers, until, args.lightning, args.log, args.keep)
    print("\n".join(table(args.log)))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
