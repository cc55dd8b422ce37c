"""How far float32 may take the relation head's loss and gradients from float64: a first-order bound, step by step.

Each line of `relation_bounds` follows one line of `relatum.relation.fused`. A quantity q has a companion e_q with
|computed - exact| <= e_q · u, where u = 2⁻²⁴ is the unit roundoff of float32. A rounded operation adds |result|. A sum
of n terms adds sqrt(n) · Σ|terms|: the probabilistic bound of Higham and Mary (2019). The error of
an operand is multiplied by the derivative. Where a sum cancels, the result is small and its bound is not: a draw in
which batch-norm subtracts nearly all of a gradient gets a wide bound, and the others keep a narrow one.

LeakyReLU has a kink at 0: where a pre-activation is so small that float32 cannot tell its sign, a gradient may jump by
.99 |g w| for that pair and unit, for any float32 implementation. `certain` says that no sign is in doubt.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from relatum.relation.reference import aggregate, focal_bce

UNIT = 2.0**-24
FEW = 2.0  # roundings of a short expression: a product, a sum, and factors that were rounded to float32 before


class Bounds(NamedTuple):
    """Largest errors; gradients in the order features, W, b, weight and bias of batch-norm, w, c."""

    loss: Tensor
    gradients: list[Tensor]
    running_mean: Tensor
    running_var: Tensor
    certain: bool


def relation_bounds(head, features, pairs, gamma, focal):
    """The bounds for a head and features in float64. Features are centred, as the fused head centres them."""
    left, right, targets = pairs.tensors()
    P, W, w = len(pairs), head.linear1.weight.detach(), head.linear2.weight.detach()[0]
    (H, D), d = W.shape, features.shape[1]
    bn, kind = head.bn1, head.aggregation
    centre = features.mean(0)
    z = features - centre
    u = aggregate(z[left], z[right], kind)
    u_abs = u.abs() if kind == "max" else aggregate(z[left].abs(), z[right].abs(), kind)
    fixed = W @ aggregate(centre[None], centre[None], kind)[0] + head.linear1.bias.detach()
    offset = W @ u.mean(0) if bn.training else bn.running_mean - fixed
    h = u @ W.T - offset
    h_abs = u_abs @ W.abs().T + offset.abs()
    e_h = (D**0.5 + FEW) * h_abs

    variance = h.square().mean(0) if bn.training else bn.running_var
    rstd = (variance + bn.eps).rsqrt()
    e_scale = FEW + rstd**2 * (h.abs() * e_h).mean(0) if bn.training else torch.full_like(rstd, FEW)  # relative
    scale, shift = rstd * bn.weight.detach(), bn.bias.detach()
    y = scale * h + shift
    e_y = scale.abs() * e_h + (scale * h).abs() * e_scale + FEW * ((scale.abs() * h_abs) + shift.abs())
    slope = torch.where(y > 0, 1.0, head.slope).to(y)
    logit = ((slope * y) @ w + head.linear2.bias.detach()).requires_grad_()
    e_logit = (slope * (e_y + H**0.5 * y.abs())) @ w.abs() + FEW * logit.detach().abs()

    loss = focal_bce(logit, targets.to(logit), gamma, focal).mean()
    (g,) = torch.autograd.grad(loss, logit, create_graph=True)
    curvature = torch.autograd.grad(g.sum(), logit)[0].abs()
    g, logit = g.detach(), logit.detach()
    # |log σ| <= |logit| + 1: the power q^γ is an exponential, which multiplies the rounding of its argument.
    e_g = curvature * e_logit + FEW * g.abs() * (FEW + gamma * (logit.abs() + 1))

    k, e_k = slope * g[:, None], slope * e_g[:, None]
    n = P**0.5 + FEW
    Y, e_Y = k.sum(0), e_k.sum(0) + n * k.abs().sum(0)
    X, e_X = (k * h).sum(0), (e_k * h.abs() + k.abs() * e_h + n * k.abs() * h_abs).sum(0)
    d_bn, d_shift = w * rstd * X, w * Y
    e_bn = (w * rstd).abs() * (e_X + X.abs() * (e_scale + FEW))
    e_shift = w.abs() * (e_Y + FEW * Y.abs())
    e_w = scale.abs() * (e_X + X.abs() * (e_scale + FEW)) + shift.abs() * (e_Y + FEW * Y.abs())

    # ∂h = by_k · k + constant + by_h · h for each pair, of which the last two are batch-norm's.
    by_k, terms = (scale * w).abs(), (scale * w * k).abs()
    e_dh = by_k * (e_k + k.abs() * e_scale)
    if bn.training:
        by_h = (scale * rstd * d_bn).abs() / P
        terms = terms + (scale * d_shift).abs() / P + by_h * h_abs
        e_dh = e_dh + scale.abs() * (e_shift + d_shift.abs() * e_scale) / P
        e_dh = e_dh + (scale * rstd).abs() * e_bn / P * h.abs() + by_h * (e_h + h_abs * 2 * e_scale)
    e_dh = e_dh + FEW * terms
    e_W = e_dh.T @ u_abs + (P**0.5 + FEW) * (terms.T @ u_abs)
    e_b = by_k * (e_Y + Y.abs() * (e_scale + FEW)) + (0 if not bn.training else 2 * FEW * by_k * Y.abs())
    # Batch statistics make Σ ∂h vanish; without them the centre comes back into the gradient of W.
    if not bn.training:
        e_W = e_W + e_b[:, None] * aggregate(centre[None], centre[None], kind).abs()
    e_u = e_dh @ W.abs() + H**0.5 * (terms @ W.abs())  # (P, D): the error of each pair's part
    e_z = torch.zeros_like(z)
    for rows, side in ((left, 0), (right, 1)):
        part = e_u[:, side * d : side * d + d] if kind == "cat" else e_u * (0.5 if kind == "mean" else 1.0)
        e_z.index_add_(0, rows.long(), part)
    gradients = [e_z, e_W, e_b, e_bn, e_shift, e_w[None], (e_g.sum() + n * g.abs().sum())[None]]

    signs = (y.abs() > UNIT * e_y)[:, scale != 0]  # a unit without scale is its bias, which is exact
    return Bounds(
        loss=UNIT * ((g.abs() * e_logit).sum() + FEW * (FEW + gamma) * loss.detach()),
        gradients=[UNIT * e for e in gradients],
        running_mean=UNIT * FEW * (bn.running_mean.abs() + (offset + fixed).abs()),
        running_var=UNIT * (2 * (h.abs() * e_h).mean(0) + FEW * (h.square().mean(0) + bn.running_var)),
        certain=bool(signs.all() and (logit.abs() > UNIT * e_logit).all()),
    )
