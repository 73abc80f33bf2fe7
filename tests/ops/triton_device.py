"""Where Triton kernels can run: on a GPU, or on a CPU under Triton's interpreter (slowly)."""

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: a CPU-only machine")
if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0):
    DEVICE, DTYPES = "cuda", (torch.float32, torch.float16, torch.bfloat16)
elif os.environ.get("TRITON_INTERPRET") == "1":
    DEVICE, DTYPES = "cpu", (torch.float32, torch.float16)  # it has no bfloat16 products
else:
    pytest.skip("no GPU; on a CPU set TRITON_INTERPRET=1", allow_module_level=True)

HOPPER = DEVICE == "cuda" and torch.cuda.get_device_capability()[0] == 9
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative, in the 2-norm; `want` in float64."""
    difference = (got.double() - want).norm()
    return float(difference / want.norm().clamp(min=1e-30)) if difference else 0.0
