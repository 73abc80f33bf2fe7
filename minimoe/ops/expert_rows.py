"""Rows to their experts and back, for training: each way the other's gradient, without atomics."""

import torch


class ToExperts(torch.autograd.Function):
    """Copy each token's row to its K places in expert order: `[T, D]` to `[T*K, D]`.

    Autograd's own backward of a gather adds atomically into rows. Knowing that every row is read
    exactly K times makes it a gather and a sum: faster, and the same every time.
    """

    @staticmethod
    def forward(ctx, x, order, back, K):
        ctx.save_for_backward(back)
        ctx.K = K
        return x.index_select(0, order // K)

    @staticmethod
    def backward(ctx, grad):
        (back,) = ctx.saved_tensors
        grad = grad.index_select(0, back).unflatten(0, (-1, ctx.K)).sum(1)
        return grad, None, None, None


class FromExperts(torch.autograd.Function):
    """Rows in expert order back to token order, `[T*K, D]`; its gradient goes the other way."""

    @staticmethod
    def forward(ctx, rows, order, back):
        ctx.save_for_backward(order)
        return rows.index_select(0, back)

    @staticmethod
    def backward(ctx, grad):
        (order,) = ctx.saved_tensors
        return grad.index_select(0, order), None, None
