"""Test error against the average staleness of the gradients, simulated by one worker (Chen et al. 2016, Figure 2).

As in Appendix A.1: plain SGD for 25 epochs, a rate annealed to 0, the error of the parameters' moving average (decay
0.98; 0.9999 is too slow here). The best rate loses the fewest runs (diverged, or training error above 80 %).
"""

from typing import Literal

from configs import digits
from experiments import harness, papers
from experiments.harness import Claim, Count, Output, Positive, Scale, Sweep, Whole, above, all_of, canvas, interval

PRINTED = {0: 0.36, 20: 0.47, 50: 0.79}  # staleness -> test error in % on MNIST, section 2.1
KEYS = ["ramp, epochs", "average staleness", "rate"]


@harness.figure(
    papers.CHEN,
    "Figure 2",
    scales={"smoke": Scale("5 s", staleness=[0, 5], rates=[0.05], seeds=1, epochs=0.5), "laptop": Scale("4 min")},
    differs="UCI digits and a smaller net, without weight normalization and augmentation: compare no levels.",
)
def figure2(
    *,
    staleness: list[Whole] = (0, 5, 10, 15, 20, 30, 40, 50),
    rates: list[Positive] = (0.1, 0.05, 0.02),
    seeds: Count = 3,
    epochs: Positive = 25.0,
    decay: Literal["linear", "hold_linear"] = "linear",
) -> Output:
    """Trains each staleness with the paper's ramp, from 0 over the first 3 epochs, and without it.

    Args:
      staleness: values of the average staleness, in updates.
      rates: learning rates; the best is chosen for each staleness.
      seeds: number of seeds: 0, 1, ...
      epochs: length of each run.
      decay: of the rate to 0, over the whole run or over its last 10 epochs.
    """
    base, part = digits.get_config(), "protocol.simulated_staleness"
    base.method, base.epochs, base.batch_size, base.evaluations = "simulated_staleness", epochs, 16, 10
    base.cluster.num_workers, base.network.conv.channels = 1, (32, 64)
    base.rate.warmup_epochs, base.rate.decay = 0.0, decay
    over = {f"{part}.ramp_epochs": [0.0, 3.0], f"{part}.average": staleness, "optimizer.learning_rate": rates}
    runs = Sweep(base, over | {"seed": range(seeds)}).table().rename(columns=dict(zip(over, KEYS, strict=True)))
    runs["lost, %"] = 100.0 * (runs.diverged | (runs.train_accuracy.fillna(0) < 0.2))
    runs["ours"] = 100 * (1 - runs.average_accuracy).where(runs["lost, %"] == 0)
    runs["final"], runs["±"] = 100 * (1 - runs.test_accuracy).where(runs["lost, %"] == 0), runs.ours
    table = runs.groupby(KEYS).agg({"lost, %": "mean", "final": "mean", "ours": "mean", "±": "std"}).reset_index()
    best = table.sort_values(["lost, %", "ours"], kind="stable").drop_duplicates(KEYS[:2]).sort_values(KEYS)
    table["best rate"] = table.index.isin(best.index)
    table["paper"] = table[KEYS[1]].map(PRINTED).where(table["best rate"])
    error, cases, rises = runs.merge(best[KEYS]).pivot(index="seed", columns=KEYS[:2], values="ours")[3.0], [], []
    for s in (20, 50):
        run = {0, s} <= set(staleness)
        rises.append(above((error[s] - error[0]).dropna()) if run else None)
        cases.append(f"{interval((error[s] / error[0]).dropna())} times with {s}" if run else f"{s} not run")
    says, paper = "The error rises with an average staleness of 20 steps, and of 50", "0.36 % to 0.47 % and 0.79 %"
    claims = [Claim(says, "section 2.1", ", ".join(cases), all_of(rises), paper, PRINTED[0] < PRINTED[20])]
    fast, ramp, high = runs.rate == max(rates), runs[KEYS[0]] > 0, runs[KEYS[1]] > 15
    for says, more, less in (
        ("Training is much less stable above 15 steps (at the largest rate)", fast & high, fast & ~high),
        ("The ramp is crucial above 15 steps (lost without and with it)", high & ~ramp, high & ramp),
        ("Lower rates explode less often above 15 steps", high & fast, high & ~fast),
    ):
        lost, fewer = (runs[where].groupby("seed")["lost, %"].mean() for where in (more, less))
        ours = f"{interval(lost)} % lost, against {interval(fewer)} %" if lost.size * fewer.size else "not run"
        claims.append(Claim(says, "section 2.1", ours, above((lost - fewer).dropna())))
    picture, ((left, right),) = canvas(1, 2, width=12)
    for ramp, label, style, shade in ((0.0, "digits, no ramp", "^--", 5), (3.0, "digits, with ramp", "o-", 0)):
        here = best[best[KEYS[0]] == ramp]
        error, half = (here[column] / best.ours.iloc[0] for column in ("ours", "±"))
        left.errorbar(here[KEYS[1]], error, half, fmt=style, color=harness.PALETTE[shade], label=label)
        right.plot(runs[runs[KEYS[0]] == ramp].groupby(KEYS[1])["lost, %"].mean(), style, color=harness.PALETTE[shade])
    left.plot(PRINTED.keys(), [error / PRINTED[0] for error in PRINTED.values()], "ks", label="paper, MNIST")
    left.set(xlabel="average staleness, updates", ylabel="test error at the best rate, over that at 0")
    right.set(xlabel="average staleness, updates", ylabel="lost runs, mean over the rates, %", ylim=(0, 100))
    left.legend()
    return Output(table, picture, claims, ["Errors in %, over the seeds whose runs are not lost; ± is their spread."])
