"""What is measured of problems that the field's own benchmarks do not have, by section: each comparison's
problems are timed interleaved (docs/measuring.md tells what each section is to show)."""

from dataclasses import replace

from problems import Comparison, Problem, Role

_MASKS = (True, False)


def _grouped():
    return [
        Comparison(
            "grouped",
            (Role("", Problem(batch, 64, 4096, 128, causal, heads_kv=8), ("cudnn", "cudnn_expanded", "fa2")),),
            least_speed_ratio=(("cudnn", 0.95),),
        )
        for batch in (1, 2)
        for causal in _MASKS
    ]


def _window():
    whole = Problem(1, 16, 16384, 128, True)
    roles = (
        Role("", whole, ("cudnn", "fa2")),
        Role("window", replace(whole, window_left=1024), ("fa2",)),
    )
    # At most 1.3 times the share of the time that it has of the pairs.
    return [Comparison("window", roles, least_rate_ratio=1 / 1.3)]


# Drawn once, between 128 and 4096, and kept, so that every run measures the same.
PACKED_LENGTHS = (
    1536, 4096, 517, 128, 2048, 771, 3001, 256, 1024, 3584, 131, 2500, 640, 1777, 384, 2816,
)


def equal_work_length(lengths):
    """Of a dense batch of as many sequences with about as many pairs: the root of the mean square, as the
    nearest multiple of 128, so that no tile of the dense batch is partly filled."""
    mean_square = sum(length**2 for length in lengths) / len(lengths)
    return 128 * round(mean_square**0.5 / 128)


def _packed():
    def compare(causal):
        dense = Problem(len(PACKED_LENGTHS), 16, equal_work_length(PACKED_LENGTHS), 128, causal)
        roles = (
            Role("", dense, ("cudnn", "fa2")),
            Role("packed", Problem.packed(PACKED_LENGTHS, 16, 128, causal), ("fa2",)),
        )
        # As packed tensors usually lie: a token's heads beside each other.
        return Comparison("packed", roles, least_rate_ratio=0.9, layout="bshd")

    return [compare(causal) for causal in _MASKS]


def _wide():
    peers = ("cudnn", "fa2")
    return [
        Comparison("wide", (Role("", Problem(batch, 16, 4096, d, causal, head_dim_v=d_v), peers),))
        for d, d_v in ((192, 128), (256, 256))
        for batch in (2, 8)
        for causal in _MASKS
    ]


def _deterministic():
    def compare(shape, causal):
        usual = Problem(*shape, causal)
        roles = (
            Role("", usual, ("fa2",)),
            Role("deterministic", replace(usual, deterministic=True), ("fa2",)),
        )
        return Comparison(
            "deterministic", roles, least_rate_ratio=0.85 if usual.seqlen == 4096 else None
        )

    shapes = ((8, 16, 4096, 128), (16, 16, 1024, 128), (4, 32, 4096, 64), (16, 32, 1024, 64))
    return [compare(shape, causal) for shape in shapes for causal in _MASKS]


def _types():
    peers = ("cudnn", "fa2")

    def compare(causal):
        usual = Problem(8, 16, 4096, 128, causal)
        roles = (
            Role("", usual, peers),
            Role("fp32", replace(usual, gradient_type="fp32")),
            Role("accumulated", replace(usual, gradient_type="fp32", accumulate_gradients=True)),
            Role("4095", replace(usual, seqlen=4095), peers),
            Role("128/96", replace(usual, head_dim_v=96), peers),
        )
        return Comparison("types", roles)

    return [compare(causal) for causal in _MASKS]


_SECTIONS = {
    "grouped": _grouped,
    "window": _window,
    "packed": _packed,
    "wide": _wide,
    "deterministic": _deterministic,
    "types": _types,
}

NAMES = tuple(_SECTIONS)


def comparisons(names, peers):
    """Of the sections of these names, in their order, beside those of the peers that take part: cudnn with
    its other way, and fa3 and fa4 on plain problems."""

    def beside(role):
        wanted = [peer for peer in role.peers if peer.removesuffix("_expanded") in peers]
        if role.peers and role.problem.is_plain:
            wanted += [peer for peer in ("fa3", "fa4") if peer in peers]
        return replace(role, peers=tuple(wanted))

    return [
        replace(comparison, roles=tuple(map(beside, comparison.roles)))
        for name in dict.fromkeys(names)
        for comparison in _SECTIONS[name]()
    ]
