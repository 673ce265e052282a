# mypy: ignore-errors
"""One launch, one walk a row: forward with early termination, then back over the live prefix."""

import triton
import triton.language as tl

from fsl_basesel.multilinear.triton.states import (
    above_floor,
    advance,
    gather,
    gradient_of_tile,
    load_columns,
    load_states,
    one_at,
    scatter,
    store_states,
    total,
    total_from,
    zeros,
)


@triton.jit(
    do_not_specialize=["n_rows", "length", "n_candidates", "start", "n_blocks"],
    do_not_specialize_on_alignment=["value_ptr", "left_ptr"],
)
def walk_kernel(
    x_ptr,  # [B, S] probabilities
    values_ptr,  # [R, L] similarities, falling
    order_ptr,  # [R, L] their columns
    floor_ptr,  # [1]
    grad_ptr,  # [B, S] to add to, or [R, B, S] zeros without ATOMIC
    value_ptr,  # [R, S] out: expected top-k sum above the floor
    left_ptr,  # [R, S] out: probability that fewer than k + 1 of the row are in
    x_ring_ptr,  # [programs, ceil(L / TILE), TILE, BLOCK] scratch
    p_ring_ptr,  # [programs, ceil(L / TILE), K, BLOCK] scratch
    n_samples,
    n_rows,
    length,
    width,
    values_stride,
    order_stride,
    n_candidates,
    start,
    n_blocks,
    eps,
    K: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    DTYPE: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    """Lanes are `row * S + sample`, so that the samples of an element share its sectors."""
    i_program = tl.program_id(0)
    o_lane = tl.arange(0, BLOCK)
    floor = tl.load(floor_ptr)
    n_tiles = tl.cdiv(length, TILE)
    x_ring_ptr += i_program.to(tl.int64) * n_tiles * (BLOCK * TILE) + o_lane
    p_ring_ptr += i_program.to(tl.int64) * n_tiles * (BLOCK * K) + o_lane

    for i_block in range(i_program, n_blocks, tl.num_programs(0)):
        i_lane = i_block * BLOCK + o_lane
        m_lane = i_lane < n_rows * n_samples
        i_row = (i_lane // n_samples).to(tl.int64)
        i_sample = (i_lane % n_samples).to(tl.int64)
        order_row_ptr = order_ptr + i_row * order_stride
        values_row_ptr = values_ptr + i_row * values_stride
        x_lane_ptr = x_ptr + i_sample
        grad_lane_ptr = grad_ptr + i_sample
        if not ATOMIC:
            grad_lane_ptr += i_row * n_candidates * n_samples

        # One state more than the gradient needs tells whether a row is finished: an element taken
        # out of an integral x still leaves K of the others.
        b_p = one_at(start, BLOCK, K + 1, DTYPE)
        i_tile = 0
        alive = tl.full((), 1.0, DTYPE)
        while (i_tile < n_tiles) & (alive >= eps):
            store_states(p_ring_ptr + i_tile * (BLOCK * K), BLOCK, b_p, m_lane, K)
            o_i = tl.zeros((BLOCK,), tl.int32) + i_tile * TILE
            columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
            b_x = gather(x_lane_ptr, columns, n_samples, o_i, length, m_lane, TILE)
            store_states(x_ring_ptr + i_tile * (BLOCK * TILE), BLOCK, b_x, m_lane, TILE)
            for t in tl.static_range(TILE):
                b_p = advance(b_p, b_x[t], K + 1)
            alive = tl.max(tl.where(m_lane, total(b_p, K + 1), 0.0), axis=0)
            i_tile += 1
        tl.store(left_ptr + i_lane, total(b_p, K + 1), mask=m_lane)
        tl.debug_barrier()  # another thread may have written what this one reads back

        b_w = zeros(BLOCK, K, DTYPE)
        while i_tile > 0:
            i_tile -= 1
            o_i = tl.zeros((BLOCK,), tl.int32) + i_tile * TILE
            columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
            b_q = load_columns(values_row_ptr, o_i, width, m_lane, BLOCK, TILE)
            b_q = above_floor(b_q, floor, o_i, length, TILE)
            b_x = load_states(x_ring_ptr + i_tile * (BLOCK * TILE), BLOCK, m_lane, TILE)
            b_before = load_states(p_ring_ptr + i_tile * (BLOCK * K), BLOCK, m_lane, K)
            b_w, b_g = gradient_of_tile(b_before, b_w, b_x, b_q, K, TILE)
            scatter(grad_lane_ptr, columns, n_samples, b_g, o_i, length, m_lane, TILE, ATOMIC)
        tl.store(value_ptr + i_lane, total_from(b_w, start, K), mask=m_lane)
        tl.debug_barrier()
