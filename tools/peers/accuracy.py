"""How far each contestant's gradients are from an fp32 computation, and from cuDNN's."""

import math

import torch

from inputs import without_tf32
from problems import split_name

GRADIENTS = ("d_q", "d_k", "d_v")

# Relative L2 error against fp32 that a contestant's gradients may have: about twice what kernels have that
# round P and dS to the inputs' type.
LARGEST_RELATIVE_L2 = {"bf16": 6e-3, "fp16": 8e-4}


def reference_gradients(inputs, sequence, key_head):
    """(dQ, dK, dV) of one head of keys and its group of queries, in fp32, from the same 16-bit Q, K, V, dO
    and nothing else. dQ is (heads of the group, seqlen, head_dim)."""
    problem = inputs.problem
    k, v = (inputs.of_sequence(x, sequence)[key_head].float() for x in (inputs.key, inputs.value))
    d_q, d_k, d_v = [], torch.zeros_like(k), torch.zeros_like(v)
    for head in _group_of(problem, key_head):
        q, d_o = (inputs.of_sequence(x, sequence)[head].float() for x in (inputs.query, inputs.grad_out))
        p = torch.softmax(inputs.scores(q, k), dim=-1)
        delta = (d_o * (p @ v)).sum(-1, keepdim=True)
        d_v += p.T @ d_o
        d_s = (d_o @ v.T).sub_(delta).mul_(p).mul_(problem.softmax_scale)
        del p
        d_q.append(d_s @ k)
        d_k += d_s.T @ q
    return torch.stack(d_q), d_k, d_v


def _group_of(problem, key_head):
    return range(key_head * problem.group, (key_head + 1) * problem.group)


def _finite(value):
    """None, which JSON has, for what it has not; `not_finite` tells how many there are."""
    return value if math.isfinite(value) else None


def _relative_l2(difference_squared, reference_squared):
    return _finite((difference_squared / reference_squared) ** 0.5) if reference_squared else None


def _squares(values, reference):
    values, reference = values.double(), reference.double()
    return (values - reference).square().sum().item(), reference.square().sum().item()


def _of_heads(inputs, gradients, references):
    """Relative L2 error and largest difference of each gradient over the heads there are references of."""
    errors = {}
    for index, name in enumerate(GRADIENTS):
        difference = norm = largest = 0.0
        for (sequence, key_head), reference in references.items():
            group = _group_of(inputs.problem, key_head)
            heads = slice(group.start, group.stop) if name == "d_q" else key_head
            ours = inputs.of_sequence(gradients[index], sequence)[heads].float()
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


def is_accurate(result, dtype):
    errors = [entry["relative_l2"] for entry in result["against_fp32"].values()]
    return not any(result["not_finite"].values()) and all(
        error is not None and error <= LARGEST_RELATIVE_L2[dtype] for error in errors
    )


@without_tf32()
def accuracy_of(inputs, contestants):
    """By contestant's name; all compute the gradients of these inputs. The heads of keys compared with fp32
    are the first and the last; all heads are compared with cuDNN's, and looked through for what is not
    finite."""
    problem, sequences = inputs.problem, inputs.sequences()
    heads = dict.fromkeys([(sequences[0], 0), (sequences[-1], problem.effective_heads_kv - 1)])
    references = {where: reference_gradients(inputs, *where) for where in heads}
    results = {}
    for contestant in contestants:
        contestant.start_over()
        contestant.run()
    torch.cuda.synchronize()
    cudnn = next(
        (c.gradients() for c in contestants if split_name(c.name)[0] == "cudnn"), None
    )
    for contestant in contestants:
        gradients = contestant.gradients()
        result = {
            "heads": [list(where) for where in heads],
            "against_fp32": _of_heads(inputs, gradients, references),
            "not_finite": {
                name: x.numel() - torch.isfinite(x).sum().item()
                for name, x in zip(GRADIENTS, gradients)
            },
        }
        result["accurate"] = is_accurate(result, inputs.dtype)
        if cudnn is not None and split_name(contestant.name)[0] != "cudnn":
            result["against_cudnn"] = _of_all(gradients, cudnn)
        results[contestant.name] = result
    return results
