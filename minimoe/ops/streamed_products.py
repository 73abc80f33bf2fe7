"""Products with weights that come from memory on a CPU: no one library is best at every size.

Measured on two cores of a Xeon with AVX-512, a float32 weight of 23 MB: at 1 / 3 / 4 / 8 / 16 rows
MKL reads it at 90 / 82 / 47 / 36 / 32 % of the read bandwidth, oneDNN at 76 / 64 / 62 / 57 / 48 %,
and oneDNN with its operands swapped at 45 / 62 / 66 / 65 / 64 %.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F

LARGE_WEIGHT = 2 << 20  # elements: from here on reading it takes longer than starting to
FEW_ROWS = 3, 12  # large weight, smaller: up to here nothing is faster than the default product
SWAPPED_ROWS = range(5, 129), range(32, 129)  # here oneDNN is fastest with its operands swapped
MKL_ROWS = 288  # from here on MKL is faster than oneDNN


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x [M, D] @ weight.T` for a weight that comes from memory; the result may be a transpose.

    The default product (MKL on most CPUs) is best for few rows, which leave a weight no reuse, and
    for very many, if one side of it is a transpose: `x`, or else the result. Between them oneDNN is
    faster in float32, for most numbers of rows with the weight as its first operand.
    """
    rows = x.shape[0]
    one_dnn = None if x.is_cuda or x.dtype != torch.float32 else _one_dnn()
    if one_dnn is None or rows <= few_rows(weight):
        return F.linear(x, weight)
    if rows >= MKL_ROWS:
        return torch.mm(weight, x.t()).t() if x.is_contiguous() else F.linear(x, weight)
    if rows in SWAPPED_ROWS[_is_small(weight)]:
        return one_dnn(weight, x, None, "none", [], "").t()
    return one_dnn(x, weight, None, "none", [], "")


def few_rows(weight: torch.Tensor) -> int:
    """Rows up to which `linear` is the default product."""
    return FEW_ROWS[_is_small(weight)]


def good_rows(rows: int, weight: torch.Tensor) -> int:
    """As many rows or a few more: all but the default product like whole vectors of them. Swapped,
    17 rows were measured slower than 32; above that, counts in whole 16s were 5 to 10 % faster."""
    return -(-rows // 16) * 16 if rows > 16 and rows >= SWAPPED_ROWS[_is_small(weight)][0] else rows


def _is_small(weight: torch.Tensor) -> bool:
    return weight.numel() < LARGE_WEIGHT


@lru_cache(maxsize=1)
def _one_dnn():
    """oneDNN's linear, where this build of PyTorch has it (x86 and 64-bit Arm Linux)."""
    if not torch.backends.mkldnn.is_available():
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


def grouped_linear(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows `[M, in]` in expert order, each times its expert's `weight [E, out, in]`, transposed."""
    return torch._grouped_mm(rows, weight.transpose(1, 2), offs=ends)


def can_group(gate_up: torch.Tensor) -> bool:
    """PyTorch's grouped product wants strides of whole 16 bytes, and does not take every dtype."""
    odd = gate_up.shape[1] // 2 % 8 or gate_up.shape[2] % 8
    return not odd and _has_grouped_mm(gate_up.dtype, gate_up.device.type)


@lru_cache(maxsize=8)
def _has_grouped_mm(dtype: torch.dtype, device: str) -> bool:
    rows, weight = (torch.zeros(s, dtype=dtype, device=device) for s in ((8, 8), (1, 8, 8)))
    try:
        grouped_linear(rows, weight, torch.full((1,), 8, dtype=torch.int32, device=device))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return True
