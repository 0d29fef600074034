"""What is measured: attention backwards as the library's AttentionProblem has them. No GPU, no PyTorch."""

import itertools
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Problem:
    """One self-attention backward: queries and keys have the same lengths. What is left out is as the
    library has it where it is not given."""

    batch: int
    heads: int
    seqlen: int
    head_dim: int
    causal: bool
    heads_kv: int | None = None
    head_dim_v: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    gradient_type: str = "input"
    accumulate_gradients: bool = False
    deterministic: bool = False
    # Of sequences that lie packed, one after another; `packed` makes such a problem.
    lengths: tuple | None = None

    @classmethod
    def packed(cls, lengths, heads, head_dim, causal):
        return cls(len(lengths), heads, max(lengths), head_dim, causal, lengths=tuple(lengths))

    @property
    def rows(self):
        """Of one head in one tensor, packed or of one batch entry."""
        return self.seqlen if self.lengths is None else sum(self.lengths)

    @property
    def starts(self):
        """Where packed sequences begin, and where the last ends."""
        return [0, *itertools.accumulate(self.lengths)]

    @property
    def effective_heads_kv(self):
        return self.heads if self.heads_kv is None else self.heads_kv

    @property
    def effective_head_dim_v(self):
        return self.head_dim if self.head_dim_v is None else self.head_dim_v

    @property
    def group(self):
        """Query heads to a head of keys and values."""
        return self.heads // self.effective_heads_kv

    @property
    def has_window(self):
        return self.window_left is not None or self.window_right is not None

    @property
    def softmax_scale(self):
        return self.head_dim**-0.5

    @property
    def name(self):
        """"8_16_4096_128_causal"; numbers of keys and values follow where they differ: "1_64/8_…"."""
        parts = [
            str(self.batch),
            _pair(self.heads, self.effective_heads_kv),
            str(self.seqlen) if self.lengths is None else f"packed{self.rows}",
            _pair(self.head_dim, self.effective_head_dim_v),
            "causal" if self.causal else "full",
        ]
        if self.has_window:
            parts.append("window_" + ",".join(
                "all" if side is None else str(side) for side in (self.window_left, self.window_right)
            ))
        if self.gradient_type != "input":
            parts.append(self.gradient_type)
        if self.accumulate_gradients:
            parts.append("accumulated")
        if self.deterministic:
            parts.append("deterministic")
        return "_".join(parts)

    @property
    def is_plain(self):
        """One of the field's own benchmarks: nothing but shape and causal mask."""
        return self == Problem(self.batch, self.heads, self.seqlen, self.head_dim, self.causal)

    def with_plain_gradients(self):
        """The problem with the same inputs and the same forward."""
        return replace(self, gradient_type="input", accumulate_gradients=False, deterministic=False)

    def as_json(self, dtype):
        """As the bridge takes it."""
        fields = {
            "batch": self.batch,
            "heads": self.heads,
            "heads_kv": self.heads_kv,
            "seqlen": self.seqlen,
            "head_dim": self.head_dim,
            "head_dim_v": self.head_dim_v,
            "causal": self.causal,
            "window_left": self.window_left,
            "window_right": self.window_right,
            "dtype": dtype,
            "gradient_type": self.gradient_type,
            "accumulate_gradients": self.accumulate_gradients,
            "deterministic": self.deterministic,
            "lengths": self.lengths,
        }
        return {name: value for name, value in fields.items() if value is not None}


def _pair(queries, keys):
    return str(queries) if queries == keys else f"{queries}/{keys}"


@dataclass(frozen=True)
class Role:
    """A problem in a comparison. `label` is empty for the one that the others are compared with;
    `peers` are those that are timed on it besides ours."""

    label: str
    problem: Problem
    peers: tuple = ()


@dataclass(frozen=True)
class Comparison:
    """What is timed interleaved: the roles' problems, by ours and by the peers.

    `least_rate_ratio`: what the rate of ours on a labelled role must be at least, over that on the
    first. `least_speed_ratio`: what ours must be at least over a peer, {peer: ratio}, where a peer of
    several ways ("cudnn", "cudnn_expanded") is taken at its best. `layout`: in place of the command line's.
    """

    section: str
    roles: tuple
    least_rate_ratio: float | None = None
    least_speed_ratio: tuple = ()
    layout: str | None = None

    @property
    def problem(self):
        return self.roles[0].problem

    @property
    def name(self):
        return self.problem.name


def contestant_name(contestant, label):
    """"fa2", and "fa2[window]" on a labelled role."""
    return f"{contestant}[{label}]" if label else contestant


def split_name(name):
    """(contestant, label) of `contestant_name`."""
    contestant, _, label = name.partition("[")
    return contestant, label.removesuffix("]")
