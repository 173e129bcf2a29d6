"""Options of studies that fit: the size of a network, and where its fits run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from stepvad.config import Compute, Config
from stepvad.executors import Executor

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Where the results of fits are stored, and how fits run."""

    results: Path
    jobs: int = 1
    executor: Executor = "processes"
    compute: Compute = Compute()

    @classmethod
    def of(cls, given: Namespace) -> Fits:
        """From the options of `add_sweep`."""
        compute = Compute(runtime=given.runtime)
        return cls(results=given.results, jobs=given.jobs, executor=given.executor, compute=compute)


def parser_of(doc: str | None) -> ArgumentParser:
    """A parser whose help is the docstring of a study."""
    return ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)


def listed(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A parser of values separated by commas."""
    return lambda text: tuple(kind(word.strip()) for word in text.split(","))


def add_network(parser: ArgumentParser) -> None:
    """Add the options of the network."""
    parser.add_argument("--width", type=int, default=256, help="hidden units of the network")
    parser.add_argument("--max-steps", type=int, default=500, help="training steps")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--runtime", default="auto", help="what computes the scores")


def add_sweep(parser: ArgumentParser) -> None:
    """Add the options of data, network and fits."""
    parser.add_argument("data", type=Path, nargs="+", help="poses under pose, labels under gt")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="directory for tables")
    parser.add_argument("--results", type=Path, default=Path("results"), help="reused if there")
    parser.add_argument("--seeds", type=int, default=5, help="fits per trained method")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--executor", choices=("processes", "ray"), default="processes")
    parser.add_argument("--split", default="full", help="full, hr, st, ub or validation")
    parser.add_argument("--frames", default="all", help="all, covered or one-person")
    add_network(parser)


def config_of(given: Namespace, *, T: int = 12, K: int = 48, seed: int = 0) -> Config:
    """The settings of a short fit, with the network of the options."""
    return replace(
        Config.short(),
        T=T,
        K=K,
        seed=seed,
        width=given.width,
        max_steps=given.max_steps,
        learning_rate=given.learning_rate,
    )
