"""PyTorch's backends on problems that the field's own benchmarks do not have."""

import torch

from contestants import PyTorchBackend, keywords, positional, require, require_plain_gradients


class ExpandedCudnn(PyTorchBackend):
    """cuDNN given K and V once for each query head, which grouped heads can also be computed by. Their
    copies are made beforehand; the sums over the heads of a group belong to the backward."""

    def __init__(self, inputs):
        problem = inputs.problem
        require(inputs, "cudnn_expanded", problem.group > 1, "differs from cudnn for grouped heads only")
        self._group = problem.group
        super().__init__("cudnn", inputs)
        self.name = "cudnn_expanded"
        self.description["heads_kv"] = problem.heads

    def _of_keys(self, tensor):
        return tensor.repeat_interleave(self._group, dim=1)

    def run(self):
        super().run()
        d_q, *expanded = self._gradients[:3]
        self._gradients = (d_q, *(x.unflatten(1, (-1, self._group)).sum(2) for x in expanded))


class FlashAttention2:
    """PyTorch's FlashAttention-2 by the operator that takes windows, grouped heads and packed sequences.

    It wants (batch, seqlen, heads, head_dim). O and dO, which it would copy otherwise, are brought into
    that order beforehand; it reads Q, K and V as they are. Values narrower than queries and keys are
    padded with zeros, beforehand too, as it takes one head dimension.
    """

    name = "fa2"

    def __init__(self, inputs):
        problem = inputs.problem
        require_plain_gradients(inputs, "fa2")
        d, d_v = problem.head_dim, problem.effective_head_dim_v
        require(inputs, "fa2", d_v <= d, "takes no values wider than queries")
        self._inputs, self._head_dim_v = inputs, d_v
        self._deterministic = problem.deterministic
        self.description = {"operator": "_flash_attention_backward"}
        if d_v < d:
            self.description["padded_head_dim_v"] = d
        if self._deterministic:
            self.description["deterministic"] = True

        def padded(tensor):
            return torch.nn.functional.pad(tensor, (0, d - d_v)) if d_v < d else tensor

        values = {
            "query": self._to_own(inputs.query),
            "key": self._to_own(inputs.key),
            "value": self._to_own(padded(inputs.value)),
            "grad_out": self._to_own(padded(inputs.grad_out)).contiguous(),
            "is_causal": problem.causal,
            "scale": problem.softmax_scale,
            "dropout_p": 0.0,
            "return_debug_mask": False,
            "window_size_left": problem.window_left,
            "window_size_right": 0 if problem.causal else problem.window_right,
        } | self._lengths()
        if not problem.has_window:
            values["window_size_left"] = values["window_size_right"] = None
        forward = torch.ops.aten._flash_attention_forward.default
        results = forward(*positional(forward, values), **keywords(forward, values))
        values["out"], values["logsumexp"] = results[:2]
        values["rng_state"], values["unused"] = results[2:4]
        values["philox_seed"], values["philox_offset"] = results[2:4]  # As releases before 2.7 call them.
        self.out = self._from_own(values["out"])[..., :d_v]
        self.lse = self._lse(values["logsumexp"])
        self._backward = torch.ops.aten._flash_attention_backward.default
        self._arguments = positional(self._backward, values)
        self._keywords = keywords(self._backward, values)
        self._gradients = None

    def _lengths(self):
        n, starts = self._inputs.problem.seqlen, self._inputs.starts
        return {"cum_seq_q": starts, "cum_seq_k": starts, "max_q": n, "max_k": n}

    def _to_own(self, tensor):
        own = tensor.transpose(1, 2)
        return own if self._inputs.starts is None else own[0]

    def _from_own(self, tensor):
        own = tensor if self._inputs.starts is None else tensor[None]
        return own.transpose(1, 2)

    def _lse(self, lse):
        """Of packed sequences, releases before 2.6 give (batch, heads, largest length)."""
        lengths = self._inputs.problem.lengths
        if lengths is None or lse.dim() == 2:
            return lse
        return torch.cat([of_one[:, :length] for of_one, length in zip(lse, lengths)], dim=1)

    def run(self):
        if not self._deterministic:
            self._gradients = self._backward(*self._arguments, **self._keywords)
            return
        # Its only way to ask for it. Filling new tensors, which the mode does besides, is not its work.
        filling = torch.utils.deterministic.fill_uninitialized_memory
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.use_deterministic_algorithms(True)
        try:
            self._gradients = self._backward(*self._arguments, **self._keywords)
        finally:
            torch.use_deterministic_algorithms(False)
            torch.utils.deterministic.fill_uninitialized_memory = filling

    def gradients(self):
        d_q, d_k, d_v = map(self._from_own, self._gradients[:3])
        return d_q, d_k, d_v[..., : self._head_dim_v]

    def start_over(self):
        self._gradients = None

    def close(self):
        self._gradients = None
