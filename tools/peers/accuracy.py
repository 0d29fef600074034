"""How far each contestant's gradients are from an fp32 computation, and from cuDNN's."""

import math

import torch

GRADIENTS = ("d_q", "d_k", "d_v")


def reference_gradients(inputs, batch, head):
    """(dQ, dK, dV) of one head in fp32, from the same 16-bit Q, K, V, dO and nothing else."""
    q, k, v, d_o = (
        x[batch, head].float() for x in (inputs.query, inputs.key, inputs.value, inputs.grad_out)
    )
    scale = inputs.cell.softmax_scale
    scores = (q @ k.T).mul_(scale)
    if inputs.cell.causal:
        n = scores.shape[0]
        hidden = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(hidden, float("-inf"))
    p = torch.softmax(scores, dim=-1)
    del scores
    delta = (d_o * (p @ v)).sum(-1, keepdim=True)
    d_v = p.T @ d_o
    d_s = (d_o @ v.T).sub_(delta).mul_(p).mul_(scale)
    del p
    return d_s @ k, d_s.T @ q, d_v


def _finite(value):
    """None, which JSON has, for what it has not; `not_finite` tells how many there are."""
    return value if math.isfinite(value) else None


def _relative_l2(difference_squared, reference_squared):
    return _finite((difference_squared / reference_squared) ** 0.5) if reference_squared else None


def _squares(values, reference):
    values, reference = values.double(), reference.double()
    return (values - reference).square().sum().item(), reference.square().sum().item()


def _of_heads(gradients, references):
    """Relative L2 error and largest difference of each gradient over the heads there are references of."""
    errors = {}
    for index, name in enumerate(GRADIENTS):
        difference = norm = largest = 0.0
        for (batch, head), reference in references.items():
            ours = gradients[index][batch, head].float()
            squares = _squares(ours, reference[index])
            difference, norm = difference + squares[0], norm + squares[1]
            largest = max((ours - reference[index]).abs().max().item(), largest)
        errors[name] = {"relative_l2": _relative_l2(difference, norm), "largest": _finite(largest)}
    return errors


def _of_all(gradients, others):
    """Relative L2 difference of whole tensors, one batch entry at a time for the memory's sake."""
    differences = {}
    for name, ours, other in zip(GRADIENTS, gradients, others):
        squares = [_squares(a, b) for a, b in zip(ours, other)]
        differences[name] = _relative_l2(sum(s[0] for s in squares), sum(s[1] for s in squares))
    return differences


def accuracy_of(inputs, contestants):
    """By contestant's name. The heads compared with fp32 are the first and the last; all heads are compared
    with cuDNN's, and looked through for what is not finite."""
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        cell = inputs.cell
        heads = dict.fromkeys([(0, 0), (cell.batch - 1, cell.heads - 1)])
        references = {where: reference_gradients(inputs, *where) for where in heads}
        results = {}
        for contestant in contestants:
            contestant.run()
        torch.cuda.synchronize()
        cudnn = next((c.gradients() for c in contestants if c.name == "cudnn"), None)
        for contestant in contestants:
            gradients = contestant.gradients()
            result = {
                "heads": [list(where) for where in heads],
                "against_fp32": _of_heads(gradients, references),
                "not_finite": {
                    name: x.numel() - torch.isfinite(x).sum().item()
                    for name, x in zip(GRADIENTS, gradients)
                },
            }
            if cudnn is not None and contestant.name != "cudnn":
                result["against_cudnn"] = _of_all(gradients, cudnn)
            results[contestant.name] = result
        return results
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
