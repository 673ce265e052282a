"""`select`: one call from a problem to a certified selection."""

from __future__ import annotations

from fsl_basesel.bounds import certify as certificate_of
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.progress import Listener, listening
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import Selector, selector_of


def select(
    problem: SelectionProblem,
    method: str | Selector = "auto",
    seed: int = 0,
    certify: bool = True,
    progress: Listener | None = None,
) -> Selection:
    """Choose m classes and say how good the choice provably is.

    Args:
        problem: What to choose from.
        method: One of `methods()`, or a selector with settings of your own, for example
            `GreedyOnTarget(form="lazy")` or `WithSwaps(RandomGreedy())`.
        seed: All randomness comes from it: same seed, same answer on every machine.
        certify: Attach an upper bound. `auto` and `dual` have one anyway; for the others it costs
            one run of the dual, shared by all calls on the same problem.
        progress: Called with (task, steps done, steps in total) while long work goes on.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> selection = select(problem, method="greedy-target")
        >>> selection.names, round(selection.value, 6), round(selection.upper_bound, 6)
        (['2'], 0.6, 0.6)
    """
    with listening(progress):
        selection = selector_of(method).select(problem, seed)
        return with_certificate(problem, selection) if certify else selection


def with_certificate(problem: SelectionProblem, selection: Selection) -> Selection:
    """The selection with a proven upper bound, unless it already has one."""
    if selection.upper_bound is not None:
        return selection
    return selection.certified(certificate_of(problem, selection.indices).upper_bound)
