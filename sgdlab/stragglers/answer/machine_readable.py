"""The findings as JSON, for programs: what is slow, what to do, and what it gives.

The schema, version 1; all times are seconds, all steps are the recorder's numbers, and `gain` is [value, low, high]
with a 90 % interval, relative to full synchrony of all workers:

* `version`: 1. `trace`: name. `workers`, `steps`, `tuning_steps`, `evaluation_steps`: numbers.
* `headline`: {`problem`, `advice`}, the two paragraphs of the page. `rule`: a sentence; empty for full synchrony.
* `causes`: a list, what costs most of the steps in which it shows first: {`kind`, `workers` (names), `node` (name or
  null), `since`, `until` (steps or null), `factor`, `share` of full synchrony's time that it costs, `lasting`,
  `headline`, `evidence`}.
* `pauses`: {`steps`, `extra_seconds`, `period` (in steps, or null)}.
* `recommendation`: {`protocol`, `parameters`, `gain`, `since`, `gradients_per_update`, `flags` of `sgdlab train`}, for
  as long as all workers take part; chosen on the steps from `since` on, of which its gain and that of `take_out` are.
* `take_out`: {`workers`, `gain`}: workers to take out first, or null.
* `protocols`: the rows of the table: {`protocol`, `parameters`, `role`, `gain`, `gradients_per_second`, `waiting`,
  `work_lost`, `without` (names), `tree_distance` (R of Birch SGD), `effective_workers` (1 / sum of the squared shares
  of the used gradients), `least_used` {`worker`, `share` (over an equal one)}, `under_used` (names of the workers with
  less than half of an equal share)}.
* `pipelines`: null, or of a job of pipelines {`recorded`, `longest_path`, `ideal` (mean seconds of a step), `slowdown`
  (S), `by_kind`, `by_rank`, `by_stage` (S_t, S_w, S_s), `slowest_workers` (M_W), `last_stage` (M_S), `repairs`:
  [{`kind`, `title`, `said`, `ranks` (names), `since`, `seconds` of a step that it saves, made after those before it,
  `low`, `high`}]}.
* `left_out`: protocol -> why it was not tried. `notes`: what the reader decided. `waiting`: share of worker-seconds.

Numbers that do not exist are null.
"""

import json
from typing import Any

from sgdlab.report.finite import finite
from sgdlab.stragglers.answer import headline, sentences
from sgdlab.stragglers.comparison.protocol import Protocol, usage
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.findings import Findings

VERSION = 1


def text(findings: Findings) -> str:
    """The findings as the text of a JSON file."""
    return json.dumps(finite(as_dict(findings)), indent=1, ensure_ascii=False) + "\n"


def as_dict(findings: Findings) -> dict[str, Any]:
    """The findings as the module's docstring says."""
    parts, verdict = findings.parts, findings.verdict
    said = headline.headline(findings)
    steps = parts.complete.steps
    return {
        "version": VERSION,
        "trace": parts.name,
        "workers": len(parts.workers),
        "steps": int(parts.recording.steps.size),
        "tuning_steps": len(parts.train),
        "evaluation_steps": len(parts.test),
        "headline": {"problem": said.problem, "advice": said.advice},
        "rule": sentences.rule(findings),
        "causes": [_cause(findings, cause) for cause in findings.diagnosis.causes],
        "pauses": {
            "steps": steps[parts.pauses.rows].tolist(),
            "extra_seconds": parts.pauses.extra.tolist(),
            "period": parts.pauses.period,
        },
        "recommendation": {
            "protocol": verdict.chosen.title,
            "parameters": verdict.chosen.setting,
            "gain": _chosen_gain(findings, verdict.chosen),
            "since": int(parts.test_steps[verdict.first]),
            "gradients_per_update": verdict.chosen.paper.waited_for,
            "flags": list(verdict.chosen.flags),
        },
        "take_out": verdict.drained
        and {"workers": _names(findings, verdict.drained.without), "gain": _chosen_gain(findings, verdict.drained)},
        "protocols": [_protocol(findings, protocol) for protocol in findings.comparison.protocols],
        "pipelines": _pipelines(findings),
        "left_out": dict(findings.comparison.left_out),
        "notes": list(parts.recording.notes),
        "waiting": findings.comparison.synchrony.idle,
    }


def _cause(findings: Findings, cause: Cause) -> dict[str, Any]:
    complete = findings.parts.complete

    def step(row: int | None) -> int | None:
        return None if row is None else int(complete.steps[row])

    return {
        "kind": cause.kind,
        "workers": _names(findings, cause.workers),
        "node": cause.node,
        "since": step(cause.since),
        "until": step(cause.until),
        "factor": float(cause.factor),
        "share": float(cause.share),
        "lasting": cause.lasting,
        "headline": cause.headline(complete),
        "evidence": cause.evidence,
    }


def _pipelines(findings: Findings) -> dict[str, Any] | None:
    job, result, steps = findings.parts.complete.job, findings.what_if, len(findings.parts.complete.steps)
    if job is None or result.pipelines is None:
        return None
    found = result.pipelines
    return {
        "recorded": float(found.recorded.mean()),
        "longest_path": float(found.base.mean()),
        "ideal": found.ideal,
        "slowdown": found.overall,
        "by_kind": dict(found.kinds),
        "by_rank": dict(zip(result.recording.workers, found.ranks.tolist(), strict=True)),
        "by_stage": dict(zip(map(str, job.operations.stages), found.stages.tolist(), strict=True)),
        "slowest_workers": found.workers,
        "last_stage": found.last_stage,
        "repairs": [
            {
                "kind": row.kind,
                "title": row.title,
                "said": row.said,
                "ranks": _names(findings, row.workers),
                "since": row.since,
                "seconds": row.in_turn / steps,
                "low": row.in_turn_interval[0] / steps,
                "high": row.in_turn_interval[1] / steps,
            }
            for row in result.lines
            if row.evident
        ],
    }


def _protocol(findings: Findings, protocol: Protocol) -> dict[str, Any]:
    result, used = protocol.paper, usage(protocol, findings.parts.test)
    least = {"worker": findings.parts.workers[used.least_used], "share": used.least_share}
    return {
        "protocol": protocol.title,
        "parameters": protocol.setting,
        "role": protocol.role,
        "gain": _gain(findings, protocol),
        "gradients_per_second": result.gradients_per_second,
        "waiting": result.idle,
        "work_lost": result.lost,
        "without": _names(findings, protocol.without),
        "tree_distance": used.tree_distance,
        "effective_workers": used.effective_workers,
        "least_used": least,
        "under_used": _names(findings, tuple(used.under_used.tolist())),
    }


def _names(findings: Findings, workers: tuple[int, ...]) -> list[str]:
    return [findings.parts.workers[i] for i in workers]


def _gain(findings: Findings, protocol: Protocol) -> list[float]:
    return [float(value) for value in findings.table.relative(protocol.paper)]


def _chosen_gain(findings: Findings, protocol: Protocol) -> list[float]:
    return [float(value) for value in findings.table.since(findings.verdict.first).relative(protocol.paper)]
