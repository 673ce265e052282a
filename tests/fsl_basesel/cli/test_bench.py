"""`fsl-basesel bench` finds benchmarks and hands over to them."""

from __future__ import annotations

import sys
import types

import pytest

from fsl_basesel import cli
from fsl_basesel.cli import bench


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in benchmark called `select`."""
    module = types.ModuleType("fsl_basesel.bench.select")
    module.add_arguments = lambda parser: parser.add_argument("--size", type=int, default=3)  # type: ignore[attr-defined]

    def run(args) -> int:
        print(f"size {args.size}")
        return 0

    module.run = run  # type: ignore[attr-defined]
    package = types.ModuleType("fsl_basesel.bench")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "fsl_basesel.bench", package)
    monkeypatch.setitem(sys.modules, "fsl_basesel.bench.select", module)
    monkeypatch.setattr(cli, "bench_names", lambda: ["select"])
    monkeypatch.setattr(bench, "bench_names", lambda: ["select"])
    return module


def test_a_benchmark_runs_with_its_own_arguments(run, benchmark) -> None:
    assert run("bench", "select", "--size", 7).out == "size 7\n"
    assert run("bench", "select", "--size", "x").code == 2
    assert "--size" in run("bench", "select", "--help").out


def test_a_benchmark_has_to_be_named(run, benchmark) -> None:
    result = run("bench")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "    select" in run("bench", "--help").out


def test_without_benchmarks_there_is_no_such_command(run, monkeypatch) -> None:
    monkeypatch.setattr(cli, "bench_names", lambda: [])
    assert "bench" not in run("--help").out
    assert run("bench", "select").code == 2


def test_only_benchmarks_that_exist_are_listed(run) -> None:
    assert cli.bench_names() == ["select", "gradient", "episodes", "fit"]
    listed = run("bench", "--help").out
    for name in cli.bench_names():
        assert f"    {name}" in listed
    for name in cli.bench_names():
        module = __import__(f"fsl_basesel.bench.{name}", fromlist=["run"])
        assert callable(module.add_arguments)
        assert callable(module.run)
