"""The numba kernel of the gradient: sixteen novel classes side by side through the W form.

A record of the work buffer is one sorted position of a tile of `LANES` rows: the states
p_{i-1}(0..K), then x_i, then q_i, each `LANES` numbers wide. Everything lies in one flat array at
distances known when the kernel is compiled, which is what lets LLVM turn the loops over lanes into
SIMD instructions; unsigned indices spare the test for negative ones that would prevent it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numba
import numpy as np

from fsl_basesel.compiled import kernel

LANES = 16
STRIP = 16  # positions between two looks at how much probability is left
ZERO, ONE, WIDE = np.uint64(0), np.uint64(1), np.uint64(LANES)
# Inlined into `run`, whose cached machine code therefore holds them.
inlined = numba.njit(forceinline=True, error_model="numpy")


class Walk(NamedTuple):
    """A kernel compiled for `states` = the largest K it serves, and how much scratch it wants."""

    run: Callable
    states: int
    chunk: int

    def scratch(self, length: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """The work buffer and the checkpoints for rows of `length`."""
        width = (self.states + 1) * LANES
        work = np.empty((self.chunk + 1) * (width + 2 * LANES) + width, dtype)
        return work, np.empty((length // self.chunk + 1) * width, dtype)


@inlined
def forward(work, states, begin, end):
    """p_i(j) = p_{i-1}(j) + x_i (p_{i-1}(j-1) - p_{i-1}(j)) for positions begin..end."""
    x_at = (states + ONE) * WIDE
    record = x_at + WIDE + WIDE
    for i in range(begin, end):
        o = i * record
        for lane in range(WIDE):
            x = work[o + x_at + lane]
            below = work[o + lane]
            work[o + record + lane] = below - x * below
            for j in range(ONE, states + ONE):
                here = work[o + j * WIDE + lane]
                work[o + record + j * WIDE + lane] = here + x * (below - here)
                below = here


@inlined
def backward(work, states, n):
    """W_{i-1} takes the place of p_{i-1}, and the slope of position i that of q_i."""
    x_at = (states + ONE) * WIDE
    q_at, record = x_at + WIDE, x_at + WIDE + WIDE
    for back in range(n):
        o = (n - ONE - back) * record
        for lane in range(WIDE):
            x = work[o + x_at + lane]
            q = work[o + q_at + lane]
            w = work[o + record + lane]
            slope = work[o + lane] * (q - w)
            for j in range(ONE, states):
                above = work[o + record + j * WIDE + lane]
                work[o + (j - ONE) * WIDE + lane] = w + x * (above - w)
                w = above
                slope += work[o + j * WIDE + lane] * (q - w)
            work[o + (states - ONE) * WIDE + lane] = w + x * (q - w)
            work[o + q_at + lane] = slope


@cache
def walk_for(states: int) -> Walk:
    """The kernel whose loops over states are unrolled for K = `states`.

    It serves every smaller K exactly: the walk then starts in state `states - K`, so that `states`
    still means "has its K entries".
    """
    chunk_size = 128 if states <= 8 else 32  # a chunk's records should stay in the L2 cache
    strip, chunk = np.uint64(STRIP), np.uint64(chunk_size)
    last = np.uint64(states)
    n_states = last + ONE
    width = n_states * WIDE
    x_at, q_at, record = width, width + WIDE, width + WIDE + WIDE
    spare = (chunk + ONE) * record

    @kernel
    def run(values, order, floor, x, k, epsilon, start, stop, gradient, work, marks):
        """Add the slopes of rows start..stop to `gradient`; return their sum of F_n and what is left.

        "What is left" is the largest probability, over the rows, of having at most K entries after
        the last position looked at: the error made by stopping is below it times the range of f.
        """
        length, end = np.uint64(values.shape[1]), np.uint64(stop)
        first = (last - np.uint64(k)) * WIDE
        total, left = 0.0, 0.0
        for row in range(np.uint64(start), end, WIDE):
            live = min(WIDE, end - row)
            for s in range(width):
                work[s] = 0
            for lane in range(WIDE):
                work[first + lane] = 1
            at, n = ZERO, ZERO  # where the chunk starts, how much of it is done
            worst = 1.0
            while at + n < length:
                if n == chunk:
                    for s in range(width):
                        work[s] = work[n * record + s]
                    at += n
                    n = ZERO
                if n == ZERO:
                    for s in range(width):
                        marks[at // chunk * width + s] = work[s]
                upto = min(n + strip, length - at)
                for lane in range(live):
                    for i in range(n, upto):
                        work[i * record + x_at + lane] = x[order[row + lane, at + i]]
                for lane in range(live, WIDE):  # lanes without a row finish at once
                    for i in range(n, upto):
                        work[i * record + x_at + lane] = 1
                forward(work, last, n, upto)
                n = upto
                worst = 0.0
                for lane in range(live):
                    mass = 0.0
                    for j in range(n_states):
                        mass += work[n * record + j * WIDE + lane]
                    worst = max(worst, mass)
                if worst < epsilon:
                    break
            left = max(left, worst)
            for s in range(width):
                work[n * record + s] = 0
            while True:
                for lane in range(live):
                    for i in range(n):
                        work[i * record + q_at + lane] = values[row + lane, at + i] - floor
                backward(work, last, n)
                for lane in range(live):
                    for i in range(n):
                        gradient[order[row + lane, at + i]] += work[i * record + q_at + lane]
                if at == ZERO:
                    break
                for s in range(width):
                    work[spare + s] = work[s]
                    work[s] = marks[(at // chunk - ONE) * width + s]
                at -= chunk
                n = chunk
                for lane in range(live):
                    for i in range(n):
                        work[i * record + x_at + lane] = x[order[row + lane, at + i]]
                forward(work, last, ZERO, n)
                for s in range(width):
                    work[n * record + s] = work[spare + s]
            for lane in range(live):
                for s in range(first + lane, last * WIDE, WIDE):
                    total += work[s]
        return total, left

    return Walk(run, states, chunk_size)
