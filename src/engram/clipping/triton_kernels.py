"""The kernels themselves. Import this module only where Triton is installed and a GPU is there (or its interpreter runs)."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def gram(
    left,  # [record, position, m]
    right,  # [record, position, n]
    out,  # [record, pair of tiles]
    positions,
    m,
    n,
    pairs,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One pair of tiles (i >= j) of one record: sum of (L_i L_j^T) * (R_i R_j^T), twice off the diagonal."""
    pair = tl.program_id(0)
    record = tl.program_id(1).to(tl.int64)
    i = ((tl.sqrt((8 * pair + 1).to(tl.float32)) - 1) / 2).to(tl.int32)  # pairs are numbered row by row of a triangle
    i = tl.where((i + 1) * (i + 2) // 2 <= pair, i + 1, i)
    i = tl.where(i * (i + 1) // 2 > pair, i - 1, i)
    j = pair - i * (i + 1) // 2
    rows = i * BLOCK + tl.arange(0, BLOCK)
    columns = j * BLOCK + tl.arange(0, BLOCK)
    depth = tl.arange(0, DEPTH)

    of_left = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    base = left + record * positions * m
    at_rows = base + rows[:, None] * m + depth[None, :]
    at_columns = base + columns[None, :] * m + depth[:, None]
    for k in range(0, m, DEPTH):
        there = depth < m - k
        a = tl.load(at_rows + k, mask=(rows[:, None] < positions) & there[None, :], other=0.0)
        b = tl.load(at_columns + k, mask=(columns[None, :] < positions) & there[:, None], other=0.0)
        of_left = tl.dot(a, b, of_left, input_precision=PRECISION)

    of_right = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    base = right + record * positions * n
    at_rows = base + rows[:, None] * n + depth[None, :]
    at_columns = base + columns[None, :] * n + depth[:, None]
    for k in range(0, n, DEPTH):
        there = depth < n - k
        a = tl.load(at_rows + k, mask=(rows[:, None] < positions) & there[None, :], other=0.0)
        b = tl.load(at_columns + k, mask=(columns[None, :] < positions) & there[:, None], other=0.0)
        of_right = tl.dot(a, b, of_right, input_precision=PRECISION)

    whole = tl.sum(tl.sum(of_left * of_right, axis=1), axis=0)
    tl.store(out + record * pairs + pair, tl.where(i == j, whole, 2 * whole))


@triton.jit
def sums(
    x,  # [record, position, column]
    g,
    mean,  # [record, position]
    scale,
    of_weight,  # [record, column]
    of_bias,
    positions,
    width,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sum_t g_t (x_t - mean_t) scale_t, and sum_t g_t."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    record = tl.program_id(1).to(tl.int64)
    lines = tl.arange(0, LINES)
    weight_sum = tl.zeros((COLUMNS,), dtype=tl.float32)
    bias_sum = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, positions, LINES):
        t = start + lines
        inside = (t[:, None] < positions) & (columns[None, :] < width)
        at = record * positions * width + t[:, None] * width + columns[None, :]
        mu = tl.load(mean + record * positions + t, mask=t < positions, other=0.0).to(tl.float32)
        r = tl.load(scale + record * positions + t, mask=t < positions, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
        weight_sum += tl.sum(gradient * (value - mu[:, None]) * r[:, None], axis=0)
        bias_sum += tl.sum(gradient, axis=0)
    tl.store(of_weight + record * width + columns, weight_sum, mask=columns < width)
    tl.store(of_bias + record * width + columns, bias_sum, mask=columns < width)
