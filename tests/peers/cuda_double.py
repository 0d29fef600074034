"""PyTorch on the CPU in the place of a CUDA device, for the flow of bench_peers.py: importing it puts the
doubles in place. Attention operators have the signatures of the release that is installed, and compute in
fp32."""

import contextlib
import time

import torch

torch.set_num_threads(1)
# Its first call imports modules that go through all operators: before some are doubles.
torch.use_deterministic_algorithms(False)


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


def _empty(*arguments, _of_the_cpu=torch.empty, **keywords):
    """Begins where CUDA's allocator would let it."""
    empty = _of_the_cpu(*arguments, **keywords)
    room = _of_the_cpu(empty.nbytes + 512, dtype=torch.uint8)
    begin = -room.data_ptr() % 512
    return room[begin : begin + empty.nbytes].view(empty.dtype).view(empty.shape)


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


def _forward(query, key, value, is_causal, scale, transposed, values):
    """Inputs that gradients are wanted of, output, LSE; and what brings a tensor into the operator's order."""
    starts, packed = values.get("cum_seq_q"), values.get("cum_seq_q") is not None
    left, right = values.get("window_size_left"), values.get("window_size_right")
    right = 0 if is_causal else right

    def heads_first(tensor):
        tensor = tensor[None] if packed else tensor
        return tensor.transpose(1, 2) if transposed else tensor

    def own(tensor):
        tensor = tensor.transpose(1, 2) if transposed else tensor
        return (tensor[0] if packed else tensor).to(query.dtype)

    inputs = [heads_first(x).detach().float().requires_grad_() for x in (query, key, value)]
    ends = starts.tolist() if packed else [0, inputs[0].shape[2]]
    parts = [
        _attention(*(x[:, :, begin:end] for x in inputs), scale, left, right)
        for begin, end in zip(ends, ends[1:])
    ]
    out, lse = (torch.cat(x, dim=2) for x in zip(*parts))
    return inputs, out, lse[0] if packed else lse, heads_first, own


def _double(forward_name, transposed, results):
    """The forward and the backward operator, of which the second computes all anew."""

    def forward(query, key, value, is_causal, scale=None, **values):
        _, out, lse, _, own = _forward(query, key, value, is_causal, scale, transposed, values)
        return (own(out.detach()), lse.detach(), *(results * [torch.zeros(1)]))

    def backward(grad_out, query, key, value, is_causal, scale=None, cum_seq_q=None, **values):
        # Dense forwards return something in its place.
        values["cum_seq_q"] = cum_seq_q if query.dim() == 3 else None
        inputs, out, _, heads_first, own = _forward(
            query, key, value, is_causal, scale, transposed, values
        )
        return tuple(map(own, torch.autograd.grad(out, inputs, heads_first(grad_out).float())))

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
torch.empty = _empty
for _name in ("zeros", "empty", "randn", "tensor"):
    setattr(torch, _name, _on_the_cpu(getattr(torch, _name)))
torch.Generator = _Generator

calls = _Operator.calls
