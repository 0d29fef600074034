"""The tensors of a problem, and an fp32 computation of its forward."""

import contextlib
import copy

import torch

TORCH_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextlib.contextmanager
def without_tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Inputs:
    """Q, K, V, dO ~ N(0, 1), and O and LSE.

    All are (batch, heads, seqlen, head_dim) to PyTorch; `layout` says what is contiguous in memory: that
    ("bhsd") or (batch, seqlen, heads, head_dim) ("bshd"). Packed sequences are a batch of one. Problems that differ in nothing but how the
    gradients are written share their inputs.
    """

    def __init__(self, problem, dtype, layout, seed=1):
        self.problem, self.dtype, self.layout = problem, dtype, layout
        self.torch_dtype = TORCH_TYPES[dtype]
        generator = torch.Generator("cuda").manual_seed(seed)

        def normal(heads, head_dim):
            shape = self._memory_shape(heads, head_dim)
            return self._view(
                torch.randn(shape, device="cuda", dtype=self.torch_dtype, generator=generator)
            )

        queries, keys = problem.heads, problem.effective_heads_kv
        d, d_v = problem.head_dim, problem.effective_head_dim_v
        self.query, self.key, self.value = normal(queries, d), normal(keys, d), normal(keys, d_v)
        self.grad_out = normal(queries, d_v)
        self.out = self.lse = None
        self.starts = None
        if problem.lengths is not None:
            self.starts = torch.tensor(problem.starts, dtype=torch.int32, device="cuda")

    def shared_with(self, problem):
        """The same tensors for a problem that differs in how its gradients are written."""
        shared = copy.copy(self)
        shared.problem = problem
        return shared

    def _memory_shape(self, heads, head_dim):
        n = self.problem.rows
        b = self.problem.batch if self.problem.lengths is None else 1
        return (b, n, heads, head_dim) if self.layout == "bshd" else (b, heads, n, head_dim)

    def _view(self, memory):
        return memory.transpose(1, 2) if self.layout == "bshd" else memory

    def empty(self, like, dtype):
        """A tensor of that shape in the layout."""
        return self._view(
            torch.empty(self._memory_shape(like.shape[1], like.shape[3]), device="cuda", dtype=dtype)
        )

    def set_forward(self, out, lse):
        """O and LSE for the contestants without a forward of their own, in the layout of the rest."""
        self.out = self.empty(self.grad_out, self.torch_dtype)
        self.out.copy_(out)
        self.lse = lse.reshape(self.query.shape[:3]).float().contiguous()

    @without_tf32()
    def compute_forward(self):
        """Where no peer of the problem has a forward."""
        out = self.empty(self.grad_out, self.torch_dtype)
        lse = torch.empty(self.query.shape[:3], dtype=torch.float32, device="cuda")
        for entry in self.sequences():
            of_query, of_key, of_value, of_out = (
                self.of_sequence(x, entry) for x in (self.query, self.key, self.value, out)
            )
            of_lse = self.of_sequence(lse, entry)
            for head in range(self.problem.heads):
                key_head = head // self.problem.group
                scores = self.scores(of_query[head].float(), of_key[key_head].float())
                of_lse[head] = torch.logsumexp(scores, dim=-1)
                p = scores.sub_(of_lse[head][:, None]).exp_()
                of_out[head] = (p @ of_value[key_head].float()).to(out.dtype)
        self.out, self.lse = out, lse

    def scores(self, q, k):
        """Of one head in fp32; minus infinity where a query does not attend to a key."""
        problem = self.problem
        scores = (q @ k.T).mul_(problem.softmax_scale)
        left, right = problem.window_left, 0 if problem.causal else problem.window_right
        if left is not None or right is not None:
            position = torch.arange(q.shape[0], device=q.device)[:, None]
            keys = torch.arange(k.shape[0], device=q.device)[None, :]
            if right is not None:
                scores.masked_fill_(keys > position + right, float("-inf"))
            if left is not None:
                scores.masked_fill_(keys < position - left, float("-inf"))
        return scores

    def sequences(self):
        """What `of_sequence` takes."""
        return range(self.problem.batch)

    def of_sequence(self, tensor, sequence):
        """(heads, seqlen, …) of one sequence."""
        if self.problem.lengths is None:
            return tensor[sequence]
        begin, end = self.problem.starts[sequence : sequence + 2]
        return tensor[0][:, begin:end]
