# mypy: ignore-errors
# ruff: noqa: RUF005  (Triton's compiler knows + of tuples, not unpacking)
"""One exchange of pipage rounding on the device: two kernels, no host in between.

The slope of F along e_p - e_q is found by carrying the derivative of the states forward with the
states themselves, so that a row is walked once and only as far as it lives:

    d(j) += x (d(j-1) - d(j)) + sign (p(j-1) - p(j))          sign = 1 at p, -1 at q, else 0
    slope = sum over elements of q (x sum_j d(j) + sign sum_j p(j)),   j < K
"""

import triton
import triton.language as tl

from fsl_basesel.multilinear.triton.states import (
    above_floor,
    advance,
    gather,
    load_columns,
    one_at,
    total,
    zeros,
)


@triton.jit
def advance_slope(b_d, b_p, b_x, b_sign, K: tl.constexpr):
    """One element forward: d(j) += x (d(j-1) - d(j)) + sign (p(j-1) - p(j)) for j < K."""
    b_new = (b_d[0] - b_x * b_d[0] - b_sign * b_p[0],)
    for j in tl.static_range(1, K):
        b_step = b_x * (b_d[j - 1] - b_d[j]) + b_sign * (b_p[j - 1] - b_p[j])
        b_new = b_new + (b_d[j] + b_step,)
    return b_new


@triton.jit(do_not_specialize=["n_rows", "length", "start"])
def slope_kernel(
    x_ptr,  # [B] probabilities
    values_ptr,  # [N, L] similarities, falling
    order_ptr,  # [N, L] their columns
    floor_ptr,  # [1]
    queue_ptr,  # [B] int32 columns in the order they are exchanged
    ends_ptr,  # [2] int32 the two places of the queue that exchange next
    partial_ptr,  # [programs] out: slope of F along e_p - e_q, sum over the program's rows
    left_ptr,  # [programs] most probability ever left beyond a row
    n_rows,
    length,
    width,
    values_stride,
    order_stride,
    start,
    eps,
    K: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Lanes are rows."""
    i_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_lane = i_row < n_rows
    top = tl.load(ends_ptr)
    bottom = tl.load(ends_ptr + 1)
    column_p = tl.load(queue_ptr + top)
    column_q = tl.load(queue_ptr + tl.maximum(bottom, 0))
    floor = tl.load(floor_ptr)
    order_row_ptr = order_ptr + i_row.to(tl.int64) * order_stride
    values_row_ptr = values_ptr + i_row.to(tl.int64) * values_stride
    b_p = one_at(start, BLOCK, K + 1, DTYPE)
    b_d = zeros(BLOCK, K, DTYPE)
    b_slope = tl.zeros((BLOCK,), DTYPE)
    i_tile = 0
    # When the exchanges are done, so is this.
    alive = tl.where(top < bottom, 1.0, 0.0).to(DTYPE)
    while (i_tile * TILE < length) & (alive >= eps):
        o_i = tl.zeros((BLOCK,), tl.int32) + i_tile * TILE
        columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
        b_q = load_columns(values_row_ptr, o_i, width, m_lane, BLOCK, TILE)
        b_q = above_floor(b_q, floor, o_i, length, TILE)
        b_x = gather(x_ptr, columns, 1, o_i, length, m_lane, TILE)
        for t in tl.static_range(TILE):
            b_column = tl.where(o_i + t < length, columns[t].to(tl.int32), -1)
            b_sign = tl.where(b_column == column_p, 1.0, 0.0)
            b_sign = (b_sign - tl.where(b_column == column_q, 1.0, 0.0)).to(DTYPE)
            b_slope += b_q[t] * (b_x[t] * total(b_d, K) + b_sign * total(b_p, K))
            b_d = advance_slope(b_d, b_p, b_x[t], b_sign, K)
            b_p = advance(b_p, b_x[t], K + 1)
        alive = tl.max(tl.where(m_lane, total(b_p, K + 1), 0.0), axis=0)
        i_tile += 1
    i_program = tl.program_id(0)
    tl.store(left_ptr + i_program, tl.maximum(alive, tl.load(left_ptr + i_program)))
    b_slope = tl.where(m_lane, b_slope, 0.0)
    tl.store(partial_ptr + i_program, tl.sum(b_slope, axis=0))


@triton.jit(do_not_specialize=["n_partials"])
def move_kernel(
    x_ptr,  # [B] probabilities, updated
    queue_ptr,  # [B] int32
    ends_ptr,  # [2] int32, updated
    partial_ptr,  # [n_partials]
    modular_ptr,  # [B]
    scale_ptr,  # [1] 1 / (K |N|)
    tie_ptr,  # [1] difference below which slopes are equal
    n_partials,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Move probability towards the larger slope until p or q is whole; one program."""
    o_part = tl.arange(0, BLOCK)
    top = tl.load(ends_ptr)
    bottom = tl.load(ends_ptr + 1)
    if top < bottom:
        b_sum = tl.zeros((BLOCK,), DTYPE)
        for first in range(0, n_partials, BLOCK):
            b_sum += tl.load(partial_ptr + first + o_part, first + o_part < n_partials, other=0.0)
        column_p = tl.load(queue_ptr + top)
        column_q = tl.load(queue_ptr + bottom)
        slope = tl.sum(b_sum, axis=0) * tl.load(scale_ptr)
        slope += tl.load(modular_ptr + column_q) - tl.load(modular_ptr + column_p)
        # Equal slopes: the lower index gains.
        p_gains = tl.where(tl.abs(slope) <= tl.load(tie_ptr), column_p < column_q, slope > 0.0)
        gainer = tl.where(p_gains, column_p, column_q)
        giver = tl.where(p_gains, column_q, column_p)
        x_gainer = tl.load(x_ptr + gainer)
        x_giver = tl.load(x_ptr + giver)
        step = tl.minimum(1.0 - x_gainer, x_giver)
        x_gainer = tl.where(1.0 - x_gainer - step < WHOLE, 1.0, x_gainer + step)
        x_giver = tl.where(x_giver - step < WHOLE, 0.0, x_giver - step)
        tl.store(x_ptr + gainer, x_gainer)
        tl.store(x_ptr + giver, x_giver)
        gainer_whole = x_gainer == 1.0
        giver_whole = x_giver == 0.0
        p_whole = tl.where(p_gains, gainer_whole, giver_whole)
        q_whole = tl.where(p_gains, giver_whole, gainer_whole)
        tl.store(ends_ptr, top + p_whole.to(tl.int32))
        tl.store(ends_ptr + 1, bottom - q_whole.to(tl.int32))
