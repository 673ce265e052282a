"""What a run shows of a selection: log entries and a table on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from rich.console import Group
from rich.text import Text

from fsl_basesel.cli.screen import new_table
from fsl_basesel.selection import Selection

Record = dict[str, Any]
"""A stage as plain types: what was chosen, how, and the metrics of training on it."""


def record_of(selection: Selection, stage: int, classes: int, seconds: float) -> Record:
    """The record of a stage that is about to begin: all classes so far, seconds of the choice."""
    record = {"stage": stage, "classes": classes, "added": list(selection.names)}
    names = ("method", "value", "upper_bound", "gap")
    record |= {name: getattr(selection, name) for name in names}
    return record | {"seconds": seconds, "epochs": 0, "metrics": {}}


def log(trainer: pl.Trainer, record: Record) -> None:
    """Give value, bound, gap, seconds and classes to every logger of the Trainer."""
    numbers = {
        f"selection/{name}": float(record[name])
        for name in ("value", "upper_bound", "gap", "seconds", "classes")
        if record[name] is not None
    }
    numbers["selection/stage"] = float(record["stage"] + 1)
    for logger in trainer.loggers:
        logger.log_metrics(numbers, step=trainer.global_step)


def stage_table(records: Sequence[Record], stages: int) -> Group:
    """All stages so far, one per row, of `stages` in all, and the classes added last."""
    measured = sorted({name for record in records for name in record["metrics"]})
    metrics = [name for name in measured if "acc" in name] or measured
    short = [name.replace("accuracy", "acc") for name in metrics]  # to fit in 80 columns
    headings = ("stage", "classes", "chosen by", "value", "gap", "seconds", "epochs", *short)
    table = new_table(*headings, left=("chosen by",))
    table.title = f"Base classes, stage {len(records)} of {stages}"
    for column in table.columns:
        column.no_wrap = True
    for record in records:
        certified = record["upper_bound"] is not None
        table.add_row(
            str(record["stage"] + 1),
            str(record["classes"]),
            record["method"],
            _number(record["value"] if certified else None, ".4f"),
            _number(record["gap"], ".2%"),
            _number(record["seconds"], ".1f"),
            str(record["epochs"]),
            *(_number(record["metrics"].get(name), ".4f") for name in metrics),
        )
    last = records[-1]
    added = Text(f"stage {last['stage'] + 1} added: {', '.join(last['added'])}", no_wrap=True)
    added.overflow = "ellipsis"
    return Group(table, added)


def _number(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)
