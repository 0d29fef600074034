"""The cells: the problems of the field's own benchmarks, 16 Ki tokens and more a batch."""

import fnmatch

from problems import Comparison, Problem, Role

_SHAPES = (
    (8, 16, 4096, 128),
    (32, 16, 512, 128),
    (16, 16, 1024, 128),
    (8, 16, 2048, 128),
    (2, 16, 8192, 128),
    (1, 16, 16384, 128),
    (32, 32, 512, 64),
    (16, 32, 1024, 64),
    (8, 32, 2048, 64),
    (4, 32, 4096, 64),
    (2, 32, 8192, 64),
    (1, 32, 16384, 64),
)

ALL_CELLS = tuple(Problem(*shape, causal) for shape in _SHAPES for causal in (True, False))

# Accuracy alone is looked at in fp16, where one short and one long length tell what there is to tell.
FP16_CELLS = tuple(cell for cell in ALL_CELLS if cell.seqlen in (1024, 4096))


def parse_cell(text):
    """"8_16_4096_128_causal"; raises ValueError with the text and the rule."""
    parts = text.split("_")
    numbers = parts[:4]
    if len(parts) != 5 or not all(n.isdigit() and int(n) > 0 for n in numbers) or (
        parts[4] not in ("causal", "full")
    ):
        raise ValueError(
            f"cells has '{text}': it must be batch_heads_seqlen_headdim_causal or …_full, or a "
            "pattern such as '*_128_causal' that fits some of the table"
        )
    return Problem(*map(int, numbers), parts[4] == "causal")


def select_cells(patterns):
    """The cells of the table that fit a pattern, in the patterns' order, and cells given in full."""
    if not patterns:
        return list(ALL_CELLS)
    chosen = []
    for pattern in patterns:
        found = [cell for cell in ALL_CELLS if fnmatch.fnmatchcase(cell.name, pattern)]
        for cell in found or [parse_cell(pattern)]:
            if cell not in chosen:
                chosen.append(cell)
    return chosen


def comparison_of(cell, peers):
    return Comparison("cells", (Role("", cell, tuple(peers)),))
