"""The findings as JSON, for programs: what is slow, what to do, and what it gives.

The schema, version 1; all times are seconds, all steps are the recorder's numbers, and `gain` is [value, low, high]
with a 90 % interval, relative to full synchrony of all workers:

* `version`: 1. `trace`: name. `workers`, `steps`, `tuning_steps`, `evaluation_steps`: numbers.
* `headline`: {`problem`, `advice`}, the two paragraphs of the page. `rule`: a sentence; empty for full synchrony.
* `causes`: a list, what costs most of the steps in which it shows first: {`kind`, `workers` (names), `node` (name or
  null), `since`, `until` (steps or null), `factor`, `share` of full synchrony's time that it costs, `lasting`,
  `headline`, `evidence`, `stages` (of a step, in which most of it is)}.
* `frontier`: null, or where the wait is in a stage {`stages` (in order, the last with the wait), `seconds` of a step by
  stage and worker, which add up to it, `last` (names of who may be late in the last, and cannot be told apart)}.
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
* `network`: null where no communication was recorded, or {`share` of a step that is transfer, `local_steps`,
  `local_share` with one message for so many, `bits`, `bits_share` with so many a number, `link`: null or {`workers` of
  the ring, `latency`, `bandwidth` in bytes per second}, `gradient_bytes` of a worker and step, `server_workers` from
  which a server with one such link is saturated}; estimates are [value, low, high] with a 95 % interval, or [null, low,
  high] where only bounds are known, since sizes do not tell latency from bandwidth.
* `failures`: null of a live run, or {`outages`: [{`step`, `workers` (names; none: all stood still), `seconds`}],
  `between`, `repair` (mean seconds), `checkpoint_seconds`, `checkpoint_known` ("flag", "phase" or "", an example),
  `checkpoint_every` (Young's interval), `spares`: [{`up` (share of the time), `workers`}]}, with intervals likewise.
* `timeouts`: null without --timeouts, or {`steps`, `few` (whether too few), `rows`: [{`name` ("process_group", "step",
  "join" or "quorum"), `seconds`, `false_drops` (steps that waited longer), `at_most` (upper bound of their
  probability, 95 %), `longest` wait}]}. `rejoin_seconds`: that a dropped worker takes to come back.
* `left_out`: protocol -> why it was not tried. `notes`: what the reader decided. `waiting`: share of worker-seconds.

Numbers that do not exist are null.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sgdlab.report.finite import finite
from sgdlab.stragglers.answer import headline, rules
from sgdlab.stragglers.comparison.protocol import Protocol, usage
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.failures import UP, Failures
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.network import BITS, LOCAL_STEPS, Network
from sgdlab.stragglers.what_if.what_if import WhatIf
from sgdlab.traces import Recording

VERSION = 1


def text(findings: Findings) -> str:
    """The findings as the text of a JSON file."""
    return json.dumps(finite(as_dict(findings)), indent=1, ensure_ascii=False) + "\n"


def as_dict(findings: Findings) -> dict[str, Any]:
    """The findings as the module's docstring says."""
    parts, verdict, said = findings.parts, findings.verdict, headline.headline(findings)
    frontier = findings.diagnosis.frontier
    steps, pauses, chosen, drained = parts.complete.steps, parts.pauses, verdict.chosen, verdict.drained
    return {
        "version": VERSION,
        "trace": parts.name,
        "workers": len(parts.workers),
        "steps": int(parts.recording.steps.size),
        "tuning_steps": len(parts.train),
        "evaluation_steps": len(parts.test),
        "headline": said._asdict(),
        "rule": rules.rule(chosen, len(parts.workers)),
        "causes": [_cause(parts.complete, cause) for cause in findings.diagnosis.causes],
        "frontier": frontier
        and {
            "stages": frontier.stages,
            "seconds": frontier.seconds.tolist(),
            "last": _names(parts.workers, frontier.last),
        },
        "pauses": {
            "steps": steps[pauses.rows].tolist(),
            "extra_seconds": pauses.extra.tolist(),
            "period": pauses.period.every if pauses.period else None,
        },
        "recommendation": {
            "protocol": chosen.title,
            "parameters": chosen.setting,
            "gain": verdict.table.relative(chosen.result),
            "since": int(parts.test_steps[verdict.table.first]),
            "gradients_per_update": chosen.result.waited_for,
            "flags": chosen.flags,
        },
        "take_out": drained
        and {"workers": _names(parts.workers, drained.without), "gain": verdict.table.relative(drained.result)},
        "protocols": [_protocol(findings, protocol) for protocol in findings.comparison.protocols],
        "pipelines": _pipelines(findings.what_if),
        "network": _network(findings.network),
        "failures": _failures(findings.failures, parts.recording),
        "timeouts": findings.timeouts
        and {**findings.timeouts._asdict(), "rows": [row._asdict() for row in findings.timeouts.rows]},
        "rejoin_seconds": findings.settings.rejoin_seconds,
        "left_out": findings.comparison.left_out,
        "notes": parts.recording.notes,
        "waiting": findings.comparison.synchrony.idle,
    }


def _cause(complete: Recording, cause: Cause) -> dict[str, Any]:
    since, until = (None if row is None else int(complete.steps[row]) for row in (cause.since, cause.until))
    return {
        "kind": cause.kind,
        "workers": _names(complete.workers, cause.workers),
        "node": cause.node,
        "since": since,
        "until": until,
        "factor": float(cause.factor),
        "share": float(cause.share),
        "lasting": cause.lasting,
        "headline": cause.headline(complete),
        "evidence": cause.evidence,
        "stages": list(cause.stages),
    }


def _pipelines(result: WhatIf) -> dict[str, Any] | None:
    job, found, workers = result.recording.job, result.pipelines, result.recording.workers
    if job is None or found is None:
        return None
    steps = len(result.recording.steps)
    return {
        "recorded": float(found.recorded.mean()),
        "longest_path": float(found.base.mean()),
        "ideal": found.ideal,
        "slowdown": found.overall,
        "by_kind": found.kinds,
        "by_rank": dict(zip(workers, found.ranks.tolist(), strict=True)),
        "by_stage": dict(zip(map(str, job.operations.stages), found.stages.tolist(), strict=True)),
        "slowest_workers": found.workers,
        "last_stage": found.last_stage,
        "repairs": [
            {
                "kind": row.kind,
                "title": row.title,
                "said": row.said,
                "ranks": _names(workers, row.workers),
                "since": row.since,
                "seconds": row.in_turn / steps,
                "low": row.in_turn_interval[0] / steps,
                "high": row.in_turn_interval[1] / steps,
            }
            for row in result.lines
            if row.evident
        ],
    }


def _network(network: Network | None) -> dict[str, Any] | None:
    if network is None:
        return None
    link = network.link
    return {
        "share": network.share,
        "local_steps": LOCAL_STEPS,
        "local_share": network.local,
        "bits": BITS,
        "bits_share": network.few_bits,
        "link": link and {"workers": link.members, "latency": link.latency, "bandwidth": link.bandwidth},
        "gradient_bytes": network.gradient or None,
        "server_workers": network.saturated,
    }


def _failures(failures: Failures | None, recording: Recording) -> dict[str, Any] | None:
    if failures is None:
        return None
    outages = [
        {"step": int(recording.steps[row]), "workers": _names(recording.workers, workers), "seconds": seconds}
        for row, workers, seconds in failures.outages
    ]
    return {
        "outages": outages,
        "between": failures.between,
        "repair": failures.repair,
        "checkpoint_seconds": failures.checkpoint_seconds,
        "checkpoint_known": failures.known,
        "checkpoint_every": failures.checkpoint_every,
        "spares": [{"up": share, "workers": failures.spares(share)} for share in UP],
    }


def _protocol(findings: Findings, protocol: Protocol) -> dict[str, Any]:
    result, used, workers = protocol.result, usage(protocol), findings.parts.workers
    return {
        "protocol": protocol.title,
        "parameters": protocol.setting,
        "role": protocol.role,
        "gain": findings.table.relative(result),
        "gradients_per_second": result.gradients_per_second,
        "waiting": result.idle,
        "work_lost": result.lost,
        "without": _names(workers, protocol.without),
        "tree_distance": used.tree_distance,
        "effective_workers": used.effective_workers,
        "least_used": {"worker": workers[used.least_used], "share": used.least_share},
        "under_used": _names(workers, used.under_used),
    }


def _names(workers: Sequence[str], indices: Iterable[int]) -> list[str]:
    return [workers[index] for index in indices]
