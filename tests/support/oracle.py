"""An oracle written loop by loop from the paper's formulas; it shares no code with the package.

Pairs by a double loop over views, features and batch-norm as lists of scalars, and the loss as the paper prints it:
-w [t log y + (1 - t) log(1 - y)] with w = ½ [(1 - t) y + t (1 - y)]^γ. Gradients are autograd's over these scalars.
"""

import torch


def oracle_pairs(K, M, partner):
    """[(left row, right row, target)]; `partner(count, n)` is whom image n meets at the count-th pair of views."""
    pairs, count = [], 0
    for i in range(K):
        for j in range(i + 1, K):
            for n in range(M):
                pairs.append((i * M + n, j * M + n, 1))
            for n in range(M):
                pairs.append((i * M + n, j * M + partner(count, n), 0))
            count += 1
    return pairs


def rolled(M):
    """The paper's listing: the shift starts at 1, grows with each pair of views, and goes back to 1 on reaching M."""

    def partner(count, n):
        shift = 1
        for _ in range(count):
            shift += 1
            if shift >= M:
                shift = 1
        return (n - shift) % M

    return partner


def oracle_loss(z, pairs, aggregation, weight1, bias1, bn_weight, bn_bias, weight2, bias2, gamma, focal, eps=1e-5):
    P, H = len(pairs), weight1.shape[0]
    inputs = []
    for left, right, _ in pairs:
        a, b = z[left], z[right]
        if aggregation == "cat":
            inputs.append([*a.unbind(), *b.unbind()])
        else:
            join = {"sum": lambda x, y: x + y, "mean": lambda x, y: (x + y) / 2, "max": torch.maximum}[aggregation]
            inputs.append([join(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True)])
    logits = [bias2[0] for _ in range(P)]
    for unit in range(H):
        hidden = [bias1[unit] + sum(w * x for w, x in zip(weight1[unit].unbind(), u, strict=True)) for u in inputs]
        mean = sum(hidden) / P
        variance = sum((h - mean) ** 2 for h in hidden) / P
        for p in range(P):
            y = bn_weight[unit] * (hidden[p] - mean) / torch.sqrt(variance + eps) + bn_bias[unit]
            logits[p] = logits[p] + weight2[0, unit] * (y if y > 0 else 0.01 * y)
    total = 0.0
    for logit, (_, _, t) in zip(logits, pairs, strict=True):
        y = 1 / (1 + torch.exp(-logit))
        w = 0.5 * ((1 - t) * y + t * (1 - y)) ** gamma if focal else 1.0
        total = total - w * (t * torch.log(y) + (1 - t) * torch.log(1 - y))
    return total / P


def assert_gradients_close(gradients, expected, tolerance, training=True):
    """Each gradient within `tolerance` of its own norm; in the order features, then the head's parameters.

    The two biases are sums over pairs whose terms have both signs, so rounding is held against the layer's weight where
    they cancel: linear1.bias (place 2) wholly under batch statistics, linear2.bias (place 6) by chance, to below 1 %.
    """
    norms = [right.norm() for right in expected]
    norms[2] = norms[1] if training else norms[2]
    norms[6] = max(norms[6], 0.01 * norms[5])
    for place, (gradient, right) in enumerate(zip(gradients, expected, strict=True)):
        error = (gradient.double() - right).norm()
        assert error <= tolerance * norms[place], f"gradient {place}: off by {error:.2e} of {norms[place]:.2e}"
