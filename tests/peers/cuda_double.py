"""PyTorch on the CPU in the place of a CUDA device, for the flow of bench_peers.py: importing it puts the
doubles in place. Attention operators have the signatures of the release that is installed, and compute in
fp32."""

import contextlib
import time

import torch

torch.set_num_threads(1)


class _Event:
    def __init__(self, enable_timing=False):
        self.time = None

    def record(self):
        self.time = time.perf_counter()

    def query(self):
        return False

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.time - self.time) * 1e3


class _Stream:
    cuda_stream = 0


class _Generator:
    """A class, as PyTorch's own modules have it in their type hints."""

    _of_the_cpu = torch.Generator

    def __new__(cls, device):
        return cls._of_the_cpu("cpu")


def _on_the_cpu(make):
    def made(*arguments, **keywords):
        if keywords.get("device") == "cuda":
            keywords["device"] = "cpu"
        return make(*arguments, **keywords)

    return made


def _attention(query, key, value, scale, left, right):
    """Output and LSE of (batch, heads, seqlen, head_dim)."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * scale
    distance = torch.arange(key.shape[2])[None, :] - torch.arange(query.shape[2])[:, None]
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    hidden |= distance > right if right is not None else hidden
    hidden |= distance < -left if left is not None else hidden
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, dim=-1) @ value, torch.logsumexp(scores, dim=-1)


class _Operator:
    """Arguments go by the schema of the operator whose place it takes."""

    calls = []

    def __init__(self, name, function):
        self._schema = getattr(torch.ops.aten, name).default._schema
        self._name, self._function = name, function
        self.default = self

    def __call__(self, *arguments, **keywords):
        names = [argument.name for argument in self._schema.arguments if not argument.kwarg_only]
        assert len(arguments) == len(names), f"{self._name} takes {names}"
        _Operator.calls.append((self._name, torch.are_deterministic_algorithms_enabled()))
        return self._function(**dict(zip(names, arguments)), **keywords)


def _forward(query, key, value, is_causal, scale, transposed, left=None, right=None):
    order = (lambda x: x.transpose(1, 2)) if transposed else (lambda x: x)
    inputs = [order(x).detach().float().requires_grad_() for x in (query, key, value)]
    out, lse = _attention(*inputs, scale, left, 0 if is_causal else right)
    return inputs, out, lse, lambda x: order(x).to(query.dtype)


def _double(forward_name, transposed, results):
    """The forward and the backward operator, of which the second computes all anew."""

    def window(values):
        return {"left": values.get("window_size_left"), "right": values.get("window_size_right")}

    def forward(query, key, value, is_causal, scale=None, **values):
        _, out, lse, ordered = _forward(
            query, key, value, is_causal, scale, transposed, **window(values)
        )
        return (ordered(out.detach()), lse.detach(), *(results * [torch.zeros(1)]))

    def backward(grad_out, query, key, value, is_causal, scale=None, **values):
        inputs, out, _, ordered = _forward(
            query, key, value, is_causal, scale, transposed, **window(values)
        )
        grad_out = grad_out.transpose(1, 2) if transposed else grad_out
        return tuple(map(ordered, torch.autograd.grad(out, inputs, grad_out.float())))

    for name, function in ((forward_name, forward), (_backward_name(forward_name), backward)):
        setattr(torch.ops.aten, name, _Operator(name, function))


def _backward_name(forward_name):
    return forward_name.removesuffix("_forward") + "_backward"


_double("_scaled_dot_product_cudnn_attention", False, 7)
_double("_scaled_dot_product_flash_attention", False, 7)
_double("_flash_attention_forward", True, 3)

torch.cuda.Event = _Event
torch.cuda._sleep = lambda cycles: None
torch.cuda.synchronize = lambda: None
torch.cuda.init = lambda: None
torch.cuda.set_device = lambda device: None
torch.cuda.current_stream = _Stream
torch.cuda.Stream = _Stream
torch.cuda.stream = lambda stream: contextlib.nullcontext()
for _name in ("zeros", "empty", "full", "randn", "ones"):
    setattr(torch, _name, _on_the_cpu(getattr(torch, _name)))
torch.Generator = _Generator

calls = _Operator.calls
