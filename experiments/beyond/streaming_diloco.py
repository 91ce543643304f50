"""Bandwidth of Streaming DiLoCo: hours at 1 Gbit/s, and what utilisations need (Douillard et al. 2025, Tables 1 and 4).

Two data centres train a model of 1, 10 or 100 billion parameters and synchronise over a slow link: at every step (data
parallel), at every hundredth (DiLoCo), fragment by fragment (streaming), each while the next step is computed
(overlapped), and in 4 bits in place of 16. Messages are as large as sgdlab's compressors make them and take as long as
its ring all-reduce; the backward pass, two thirds of a step, hides the first seconds of each. Nothing is fitted: taken
from the paper are the seconds of a step, the number of fragments, H = 100, and for Table 1 the hours with free
messages. The paper's thresholds are points of a grid of bandwidths, the first that suffices; so are ours.
Nothing is trained. The tables' numbers are the paper's; the model of its simulation is a reconstruction.
"""

import itertools

import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond import bandwidth
from experiments.beyond.bandwidth import BACKWARD, Exchange
from experiments.beyond.sources import STREAMING
from experiments.harness import PALETTE, Claim, Count, Output, Scale, canvas, figure
from experiments.thresholds import HOURS_CLOSE, MOST_THRESHOLDS
from sgdlab import compressions

METHODS = ("data parallel", "DiLoCo", "streaming", "overlapped", "4 bits")
"""Rows of Table 4; each from the third on adds its own to what is before it."""

STEPS = {1: 0.1, 10: 0.8, 100: 4.9}
"""Billions of parameters -> seconds of a step."""
FRAGMENTS = {1: 8, 10: 16, 100: 36}

TABLE_4 = {
    1: (
        (86.8, 152.6, 184.2, 222.3, 569.0),
        (1.4, 6.2, 13.3, 23.3, 86.8),
        (1.4, 5.2, 9.1, 16.0, 28.1),
        (1.4, 4.3, 6.2, 9.1, 11.0),
        (0.4, 0.9, 1.7, 2.0, 3.0),
    ),
    10: (
        (104.8, 222.3, 222.3, 268.3, 471.5),
        (1.7, 7.5, 16.0, 33.9, 104.8),
        (1.7, 5.2, 9.1, 13.3, 19.3),
        (1.7, 3.6, 5.2, 6.2, 7.5),
        (0.4, 0.9, 1.4, 1.4, 1.7),
    ),
    100: (
        (184.2, 323.8, 390.7, 390.7, 471.5),
        (3.0, 11.0, 23.3, 49.4, 184.2),
        (2.4, 6.2, 9.1, 11.0, 19.3),
        (1.7, 3.6, 4.3, 5.2, 5.2),
        (0.5, 0.9, 1.1, 1.1, 1.4),
    ),
}
"""Billions of parameters -> Gbit/s of each of `METHODS`, for each of `UTILISATIONS`."""

TABLE_1 = {25: (0.67, 109.0, 0.88), 100: (2.7, 438.0, 3.5), 250: (6.75, 1097.0, 8.75)}
"""Billions of tokens -> hours of 1 billion parameters: with free messages, then of two methods at 1 Gbit/s."""

FEWER_BITS = 400
"""Times fewer bits than data parallel training, of the paper."""

EVERY, GBITS = 100, 1.0
"""H of all methods but the first; and Gbit/s of Table 1."""


@figure(
    STREAMING,
    ("Table 1", "Table 4"),
    scales={"smoke": Scale("1 s", billions=[1]), "laptop": Scale("2 s")},
    differs="The paper simulates a step layer by layer; here it is one closed form, with a backward pass of two thirds "
    "of a step and two data centres, which are ours.",
    full_size=True,
)
def streaming_diloco(*, billions: list[Count] = (1, 10, 100)) -> Output:
    """Compute hours, and thresholds of bandwidth.

    Args:
      billions: numbers of parameters of models, of 1, 10 and 100.

    Raises:
      ValueError: where there is no such model.
    """
    if unknown := sorted(set(billions) - set(STEPS)):
        raise ValueError(f"billions={','.join(map(str, unknown))} must be among {', '.join(map(str, STEPS))}")
    rows = {
        (size, method): bandwidth.thresholds(exchange(method, size), printed)
        for size in sorted(set(billions))
        for method, printed in zip(METHODS, TABLE_4[size], strict=True)
    }
    found = hours()
    table = [
        {"table": 1, "billions": 1, "method": method, "tokens, 1e9": tokens, "quantity": f"hours at {GBITS:g} Gbit/s"}
        | {"ours": ours, "paper": paper}
        for (method, tokens), (ours, paper) in found.items()
    ]
    table += [
        {"table": 4, "billions": size, "method": method, "quantity": "Gbit/s"} | row
        for (size, method), of in rows.items()
        for row in of
    ]
    return Output(pd.DataFrame(table), _drawn(sorted(set(billions))), claims(rows, found), _notes(rows))


def exchange(method: str, billions: int) -> Exchange:
    """Return what a method computes and sends.

    Args:
      method: one of `METHODS`.
      billions: of parameters.

    Example:
      >>> exchange("4 bits", 1)
      Exchange(step=0.1, size=500000004.0, every=100, fragments=8, hidden=0.16666666666666666)
    """
    number, step = METHODS.index(method), STEPS[billions]
    shape = [(billions * 10**9,)]
    four, half = (
        compressions.FourBit().message_bytes(shape),
        compressions.Uncompressed().message_bytes(shape, "bfloat16"),
    )
    return Exchange(
        step=step,
        size=four if method == "4 bits" else half,
        every=1 if method == "data parallel" else EVERY,
        fragments=FRAGMENTS[billions] if number >= METHODS.index("streaming") else 1,
        hidden=(BACKWARD + (number >= METHODS.index("overlapped"))) * step,
    )


def hours() -> dict[tuple[str, int], tuple[float, float]]:
    """Return the hours of Table 1, ours and the paper's, by method and billions of tokens."""
    methods = METHODS[0], METHODS[-1]
    return {
        (method, tokens): (free / exchange(method, 1).utilisation(GBITS), paper)
        for tokens, (free, *printed) in TABLE_1.items()
        for method, paper in zip(methods, printed, strict=True)
    }


def claims(rows: dict[tuple[int, str], list[dict]], found: dict[tuple[str, int], tuple[float, float]]) -> list[Claim]:
    """Return what the tables say; all is arithmetic, so that nothing is a finding."""
    off = {
        method: max(abs(ours / paper - 1) for (m, _), (ours, paper) in found.items() if m == method)
        for method, _ in found
    }
    per_step = [exchange(method, 1) for method in (METHODS[0], METHODS[-1])]
    fewer = (per_step[0].size / per_step[0].every) / (per_step[1].size / per_step[1].every)
    near, count = bandwidth.within(itertools.chain(*rows.values()), 1)
    return [
        Claim(
            "a model of 1 billion parameters takes 109, 438 and 1097 hours at 1 Gbit/s in place of 0.67, 2.7 and 6.75, "
            f"and 0.88, 3.5 and 8.75 with Streaming DiLoCo (here: within {100 * HOURS_CLOSE:g} %)",
            "Table 1",
            ours="; ".join(f"{method}: at most {100 * most:.1f} % off" for method, most in off.items()),
            holds=all(most <= HOURS_CLOSE for most in off.values()),
            identity=True,
        ),
        Claim(
            f"it exchanges {FEWER_BITS} times fewer bits than data parallel training",
            STREAMING.source,
            ours=f"{fewer:.4g} times: one synchronisation in 100 steps, and 4 bits in place of 16",
            holds=round(fewer) == FEWER_BITS,
            identity=True,
        ),
        Claim(
            "the bandwidths that utilisations from 50 to 99 % need are those of bytes over bandwidth (here: "
            f"{100 * MOST_THRESHOLDS:g} % of them within one point of the grid, a factor of 1.21)",
            "Table 4",
            ours=f"{near} of {count}; no volume is fitted, but two data centres and a backward pass of two thirds of a "
            "step are ours, set with the table at hand",
            holds=near >= MOST_THRESHOLDS * count,
            identity=True,
        ),
    ]


def _notes(rows: dict[tuple[int, str], list[dict]]) -> list[str]:
    of = {key: bandwidth.within(found, 1) for key, found in rows.items()}
    words = [
        f"{method} " + ", ".join(f"{of[size, method][0]}" for size in sorted({size for size, _ in rows}))
        for method in METHODS
    ]
    far = [
        f"{size}B, {method}, {row['utilisation, %']:g} % ({row['ours']:.1f} for {row['paper']:g})"
        for (size, method), found in rows.items()
        for row in found
        if abs(row["grid points off"]) > 1
    ]
    everything = bandwidth.within(itertools.chain(*rows.values()), 0)
    return [
        "Gbit/s: the first point of the paper's grid that suffices. Of 5 thresholds of each model, within one point: "
        + "; ".join(words)
        + f". Equal: {everything[0]} of {everything[1]}.",
        f"Further off: {'; '.join(far) or 'none'}.",
        "Ours, and not the paper's: two data centres, whose ring sends each number once each way (more of them would "
        "send up to twice as much), and a backward pass of two thirds of a step; both set with the tables at hand.",
        "Table 1 takes the number of steps from the paper's own hours with free messages.",
    ]


def _drawn(billions: list[int]) -> Figure:
    drawn, panels = canvas(1, len(billions), width=4.2 * len(billions) + 2.4 / len(billions), height=4.8, sharey=True)
    for panel, size in zip(panels[0], billions, strict=True):
        for shade, mark, method, printed in zip(PALETTE, "os^Dv", METHODS, TABLE_4[size], strict=False):
            bandwidth.draw(panel, exchange(method, size), printed, label=method, shade=shade, mark=mark)
        panel.set_title(f"{size} billion parameters, {STEPS[size]:g} s a step")
    panels[0, 0].set_ylabel("compute utilisation")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, title="marks: Table 4")
    return drawn
