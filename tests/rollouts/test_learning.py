"""Replay of rollouts: against a naive loop that keeps all versions whole, exact gradients, and identities of rules."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import rollouts, rules
from sgdlab.rollouts.ratios import second_moment_mask

TASK = rollouts.toy(classes=4, features=3, symbols=2)
WORK = rollouts.lognormal(prompts=200, group=2, attempts=3, seed=1)
SYSTEM = rollouts.System(engines=2, slots=8, batch=4, train=4.0)
NAMES = tuple(rollouts.RATIO_RULES)


def trained_on(policy, steps, *, system=SYSTEM, work=WORK, task=TASK, **given):
    run = rollouts.simulate(work, system, functools.partial(policy, **given), num_steps=steps)
    return run, rollouts.TrainedOn.of(run, work, task)


RUN, STALE = trained_on(rollouts.admission, 8, eta=3.0)
_, FRESH = trained_on(rollouts.synchronous, 8)


def rule(name, **given):
    return rollouts.RATIO_RULES[name].make(**given)


def log_policy(params, question, of=np):
    """The log probabilities of the toy's symbols, [T, A]: its features, and nothing of the task's functions."""
    features = np.random.default_rng(0).normal(size=(4, 3)) / np.sqrt(3)
    logits = of.einsum("f,tfa->ta", features[question], params)
    return logits - of.log(of.exp(logits).sum(axis=1, keepdims=True))


def right(params):
    """The probabilities of the right answers, [K]."""
    return [np.exp(log_policy(params, q)[[0, 1], TASK.answers[q]].sum()) for q in range(4)]


def surrogate(name, now, prox, behaviour, advantage, lag):
    """The printed formulas, a token at a time; no M2PO, whose mask is of a batch."""
    stop = jax.lax.stop_gradient
    if name == "a3po":
        weight = 0.0 if lag < 1 else 1 - 1 / lag
        prox = weight * stop(now) + (1 - weight) * behaviour
    clip = lambda r: jnp.minimum(r * advantage, jnp.clip(r, 0.8, 1.2) * advantage)
    match name:
        case "none":
            return now * advantage
        case "ppo":
            return clip(jnp.exp(now - behaviour))
        case "decoupled" | "a3po":
            return jnp.minimum(jnp.exp(prox - behaviour), 2.0) * clip(jnp.exp(now - prox))
        case "truncated_is":
            return jnp.minimum(jnp.exp(stop(now) - behaviour), 2.0) * now * advantage


@pytest.mark.parametrize("name", [name for name in NAMES if name != "m2po"])
def test_a_rule_is_its_formula_where_clips_and_caps_bind(name):
    random = np.random.default_rng(0)
    now, prox, behaviour = random.standard_normal((3, 40)) / 2 - 1
    advantage = random.standard_normal(40)
    lag = random.integers(0, 5, 40).astype(float)
    of = lambda now: rule(name)(
        rollouts.SampledTokens(now, *map(jnp.asarray, (prox, behaviour, advantage, lag, lag * 0 + 1)))
    )
    values, slopes = of(jnp.asarray(now)), jax.grad(lambda now: of(now).sum())(jnp.asarray(now))
    for place, fixed in enumerate(zip(prox, behaviour, advantage, lag, strict=True)):
        value, slope = jax.value_and_grad(lambda now, fixed=fixed: surrogate(name, now, *fixed))(now[place])
        np.testing.assert_allclose([values[place], slopes[place]], [value, slope], rtol=1e-12)


def naively(run, work, name, rate, *, seed, minibatches):
    """Parameters after all steps: Python loops over steps and rollouts; every version is kept whole."""
    versions, group = [np.zeros((2, 3, 2))], work.group
    order = np.argsort(np.argsort(np.log(work.tokens).mean(axis=(0, 2))))
    for step in range(run.num_steps):
        batch = []
        for number in np.flatnonzero(run.step == step):
            question = int(order[run.prompt[number]] * 4 // work.prompts)
            members = []
            for place, row in enumerate(np.flatnonzero(run.group == number)):
                made = np.repeat(run.span_version[run.span_rollout == row], run.span_tokens[run.span_rollout == row])
                key = jax.random.key(seed)
                for part in (run.prompt[number], run.attempt[number], place):
                    key = jax.random.fold_in(key, part)
                answer, behaviour, lags = [], [], []
                for symbol in range(2):
                    version = made[(2 * symbol + 1) * len(made) // 4]
                    log_probs = log_policy(versions[version], question)[symbol]
                    answer.append(int(jax.random.categorical(jax.random.fold_in(key, symbol), log_probs)))
                    behaviour.append(float(log_probs[answer[-1]]))
                    lags.append(step - version)
                reward = float(answer == TASK.answers[question].tolist())
                members.append((question, answer, behaviour, lags, run.withheld[row], reward))
            mean, deviation = (of([member[-1] for member in members]) for of in (np.mean, np.std))
            assert len(members) == group
            batch.append([(*m[:4], (m[5] - mean) / (deviation + 1e-4)) for m in members if not m[4]])
        params = versions[-1]
        for part in range(minibatches):
            rows = list(itertools.chain(*batch[part::minibatches]))

            def loss(params, rows=rows):
                total = 0.0
                for question, answer, behaviour, lags, advantage in rows:
                    now, prox = log_policy(params, question, jnp), log_policy(versions[-1], question)
                    for t, a in enumerate(answer):
                        total += surrogate(name, now[t, a], float(prox[t, a]), behaviour[t], advantage, lags[t])
                return -total / len(rows)

            params = params - rate * np.asarray(jax.grad(loss)(params))
        versions.append(params)
    return versions


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.representatives("decoupled")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "m2po"])
def test_a_naive_loop_agrees(name, minibatches):
    versions = naively(RUN, WORK, name, 2.0, seed=3, minibatches=minibatches)
    found = rollouts.replay(STALE, TASK, rule(name), optax.sgd(2.0), seeds=[3], minibatches=minibatches)
    assert STALE.lag().max() > 2
    assert RUN.staleness().max() >= STALE.lag().max()  # some were made by newer versions than their rollouts began on
    np.testing.assert_allclose(found.params[0], versions[-1], atol=1e-12)
    np.testing.assert_allclose(found.rewards[0], list(map(right, versions)), atol=1e-12)


@pytest.mark.parametrize(("name", "minibatches"), [("none", 2), ("decoupled", 1)])
def test_rewards_of_rollouts_that_are_withheld_count_and_their_tokens_do_not(name, minibatches):
    one_of_two = np.random.default_rng(0).integers(3, size=RUN.prompt.size)[RUN.group] == np.arange(RUN.group.size) % 2
    run = dataclasses.replace(RUN, withheld=one_of_two & (RUN.step[RUN.group] >= 0))
    trained, of = rollouts.TrainedOn.of(run, WORK, TASK), {"seeds": [3], "minibatches": minibatches}
    assert 0.2 < run.withheld[run.step[run.group] >= 0].mean() < 0.5
    found = rollouts.replay(trained, TASK, rule(name), optax.sgd(2.0), **of)
    versions = naively(run, WORK, name, 2.0, seed=3, minibatches=minibatches)
    np.testing.assert_allclose(found.params[0], versions[-1], atol=1e-12)
    assert np.abs(found.params - rollouts.replay(STALE, TASK, rule(name), optax.sgd(2.0), **of).params).max() > 1e-3


def test_what_a_policy_withholds_is_not_kept():
    run, trained = trained_on(rollouts.window, 8, lag=0, stale="withhold")
    assert trained.question.shape == STALE.question.shape
    assert trained.kept.sum() == run.trained().sum() < trained.kept.size
    late = (run.step[run.group] - run.read)[run.step[run.group] >= 0] > 0
    assert late.sum() == (~trained.kept).sum()


@pytest.mark.representatives("ppo")
@pytest.mark.parametrize("name", NAMES[1:])
def test_all_rules_are_one_where_nothing_is_stale(name):
    first, params = (
        rollouts.replay(FRESH, TASK, rule(one), optax.sgd(4.0), seeds=[0, 1]).params for one in ("none", name)
    )
    assert FRESH.lag().max() == 0
    np.testing.assert_allclose(params, first, rtol=0, atol=1e-12)
    assert np.abs(first).max() > 0.1


def test_with_one_optimizer_step_a_batch_decoupled_is_truncated():
    of = functools.partial(rollouts.replay, STALE, TASK, rules=optax.sgd(16.0), seeds=[0, 1])
    first, second = of(rule("decoupled")).params, of(rule("truncated_is")).params
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-11)
    assert STALE.lag().max() > 2


def mean_reward(params, trained):
    """The expected reward of the questions of a batch."""
    return np.asarray(right(params))[trained.question[0]].mean()


def test_the_exact_gradient_is_that_of_the_expected_reward():
    names = ("question", "draw", "version", "kept")
    one = rollouts.TrainedOn(*(getattr(FRESH, name)[:1] for name in names), 2, FRESH.applied[:1])
    of = functools.partial(rollouts.replay, one, TASK, rule("none"), optax.sgd(1.0), normalise=False)
    step = np.asarray(of(seeds=[0], exact=True).params[0])
    for place in np.ndindex(2, 3, 2):
        moved = np.zeros((2, 3, 2))
        moved[place] = 1e-5
        slope = (mean_reward(moved, one) - mean_reward(-moved, one)) / 2e-5
        assert step[place] == pytest.approx(slope, abs=1e-9)
    # Of sampled ones the mean is (1 - 1 / G) times that, since a rollout's reward is in the mean of its group.
    drawn = np.asarray(of(seeds=range(4000)).params)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - step / 2) <= 4.5 * error).all()
    assert (4.5 * error).max() < 0.2 * np.abs(step).max()


def test_corrected_exact_gradients_do_not_see_staleness():
    # All answers weighted by their ratios have the expectation under the trained policy, whatever the behaviour was.
    single = rollouts.toy(classes=4, length=1, features=3, symbols=3)
    run, stale = trained_on(rollouts.unbounded, 8, task=single)
    fresh = rollouts.TrainedOn(stale.question, stale.draw, stale.version + stale.lag(), stale.kept, 2, run.applied)
    of = functools.partial(rollouts.replay, task=single, rules=optax.sgd(2.0), seeds=[0], exact=True, normalise=False)
    weighted = rule("truncated_is", cap=1e9)
    np.testing.assert_allclose(of(stale, ratio=weighted).params, of(fresh, ratio=weighted).params, atol=1e-12)
    plain = rule("none")
    assert np.abs(of(stale, ratio=plain).params - of(fresh, ratio=plain).params).max() > 1e-4


def test_one_seed_is_one_result_and_runs_do_not_touch():
    of = functools.partial(rollouts.replay, task=TASK, ratio=rule("decoupled"))
    rates = [rules.asgd(learning_rate=rate) for rate in (1.0, 4.0, 1.0)]
    together = of([STALE, FRESH, FRESH], rules=rates, seeds=[5, 6, 5])
    alone = of(FRESH, rules=rates[1], seeds=[6])
    np.testing.assert_allclose(together.params[1], alone.params[0], rtol=0, atol=1e-12)
    assert of(FRESH, rules=rates[1], seeds=[6]).rewards.tobytes() == alone.rewards.tobytes()
    assert np.abs(together.params[2] - alone.params[0]).max() > 0.1


def test_policies_share_random_numbers():
    # Of a prompt, the first attempt's first rollout has one answer under every policy while versions are alike.
    same = (STALE.draw[0][:, None] == FRESH.draw[0]).all(axis=2)
    assert same.any()
    frozen = functools.partial(rollouts.replay, task=TASK, ratio=rule("none"), seeds=[0], normalise=False)
    row, other = np.argwhere(same)[0] // 2 * 2
    pair = [
        rollouts.TrainedOn(
            *(getattr(of, name)[:1, at : at + 2] for name in ("question", "draw")),
            of.version[:1, at : at + 2] * 0,
            np.ones((1, 2), bool),
            2,
            [1],
        )
        for of, at in ((STALE, row), (FRESH, other))
    ]
    first, second = (np.asarray(frozen(one, rules=optax.sgd(1.0)).params) for one in pair)
    assert first.tobytes() == second.tobytes()


def test_rules_are_told_the_staleness():
    delays = []

    def update(updates, state, params=None, *, delay=1, **extra):
        jax.debug.callback(lambda value: delays.append(float(value)), delay)
        return jax.tree.map(lambda leaf: -leaf / delay, updates), state

    spy = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    found = rollouts.replay(STALE, TASK, rule("none"), spy, seeds=[0])
    jax.effects_barrier()
    assert sorted(delays) == pytest.approx(sorted(1 + STALE.lag().mean(axis=(1, 2))))
    ours = rules.staleness_aware(learning_rate=1.0, momentum=0.0)
    again = rollouts.replay(STALE, TASK, rule("none"), ours, seeds=[0])
    np.testing.assert_allclose(found.params, again.params, rtol=0, atol=1e-12)


def test_the_version_that_was_read_is_given():
    # A rule whose steps are the distance to the version read: with one version for all, its lag is the batch's.
    def update(updates, state, params, *, read_params=None, **extra):
        return jax.tree.map(lambda now, then: 1.0 + now - then, params, read_params), state

    two_before = np.maximum(np.arange(8) - 2, 0)[:, None, None] + 0 * STALE.version
    run = dataclasses.replace(STALE, version=two_before)
    receive = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    rule_of = rules.server_rule(optax.identity(), receive=receive)
    found = np.asarray(rollouts.replay(run, TASK, rule("none"), rule_of, seeds=[0]).params)
    versions = [0.0]
    for step in range(8):
        versions.append(versions[-1] + 1.0 + versions[-1] - versions[max(step - 2, 0)])
    np.testing.assert_allclose(found, versions[-1])


def test_the_mask_of_m2po_by_hand():
    moments = jnp.array([[0.5, 0.01], [0.0, 0.09]])
    ones = jnp.ones((2, 2))
    # Sorted 0, 0.01, 0.09, 0.5 have the means 0, 0.005, 0.0333, 0.15.
    assert second_moment_mask(moments, ones, 0.04).tolist() == [[False, True], [True, True]]
    assert second_moment_mask(moments, ones, 0.03).tolist() == [[False, True], [True, False]]
    assert second_moment_mask(moments, ones, 1.0).all()
    assert second_moment_mask(moments + 1, ones, 0.04).tolist() == [[False, False], [True, False]]
    # A token that counts ten times: (0.01 * 10 + 0.09) / 12 is below 0.02. One that does not count changes nothing.
    assert second_moment_mask(moments, ones.at[0, 1].set(10.0), 0.02).tolist() == [[False, True], [True, True]]
    assert second_moment_mask(moments, ones.at[1, 0].set(0.0), 0.051).tolist()[1][1]
    logs = jnp.log(jnp.array([[1.6, 1.1], [1.0, 1 / 1.3]]))
    fill = {"prox": ones, "behaviour": ones, "lag": ones, "weight": ones}
    gradient = jax.grad(lambda now: rule("m2po")(rollouts.SampledTokens(now, advantage=2 * ones, **fill)).sum())(
        1 + logs
    )
    np.testing.assert_allclose(gradient, [[0.0, 2.2], [2.0, 2 / 1.3]])


def test_symbols_are_of_the_versions_that_made_their_tokens():
    run, trained = trained_on(rollouts.unbounded, 8)
    for step in range(8):
        rows = np.flatnonzero(run.step[run.group] == step)
        for number, row in enumerate(rows):
            made = np.repeat(run.span_version[run.span_rollout == row], run.span_tokens[run.span_rollout == row])
            parts = np.array([made[len(made) // 4], made[3 * len(made) // 4]])
            assert trained.version[step, number].tolist() == parts.tolist()
            assert trained.draw[step, number, 0] == run.prompt[run.group[row]]
    assert (trained.lag() >= 0).all()
    assert (trained.lag()[..., 0] != trained.lag()[..., 1]).any()


def test_questions_are_of_the_prompts_classes_by_length():
    task = rollouts.AnswerTask(None, None, None, np.zeros((5, 1), int), np.array([0, 1, 1, 0, 1]), 2)
    asked = task.questions(np.array([0, 0, 1, 1, 1, 1]), np.array([0, 1, 0, 1, 2, 3]))
    assert asked.tolist() == [0, 3, 1, 2, 4, 1]
    _, trained = trained_on(rollouts.unbounded, 8)
    order = np.argsort(np.log(WORK.tokens).mean(axis=(0, 2)))
    longest = np.isin(trained.draw[..., 0], order[150:])  # of 200 prompts, in four classes
    assert ((trained.question == 3) == longest).all()
    assert longest.any()


@pytest.mark.full
def test_the_rate_with_the_highest_reward_of_the_run_is_chosen():
    rates, ratio = [1e-3, 4.0, 1e4], rule("none")
    cells = [([STALE] * 2, [FRESH] * 3), ([FRESH] * 2, [STALE] * 3)]
    chosen, found = rollouts.tuned(cells, TASK, ratio, rates, seeds=([7, 8], [0, 1, 2]))
    for (tuning, reported), rate, rewards in zip(cells, chosen, np.split(found.rewards, 2), strict=True):
        of = functools.partial(rollouts.replay, task=TASK, ratio=ratio)
        reached = [of(tuning[0], rules=rules.asgd(learning_rate=one), seeds=[7, 8]).rewards.mean() for one in rates]
        assert rate == rates[np.argmax(reached)]
        again = of(reported[0], rules=rules.asgd(learning_rate=rate), seeds=[0, 1, 2]).rewards
        np.testing.assert_allclose(rewards, again, rtol=0, atol=1e-12)


def test_seconds_to_a_target_by_hand():
    rewards = np.array([[[0.0, 0.2], [0.4, 0.6], [0.5, 0.7]], [[0.0, 0.0], [0.1, 0.1], [0.2, 0.2]]])
    found = rollouts.Learned(rewards, np.array([[0.0, 3.0, 7.0]] * 2), None)
    assert found.seconds_to(0.5).tolist() == [3.0, np.inf]
    assert found.seconds_to(0.1).tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": [STALE, FRESH]}, "runs must be one, or one for each of the 1 seeds, not 2"),
        ({"rules": [rules.asgd(learning_rate=1.0)] * 3}, "rules must be one, or one for each of the 1 seeds, not 3"),
        ({"minibatches": 3}, "minibatches=3 must divide the 4 groups of a batch"),
        ({"minibatches": 0}, "minibatches=0 must be a whole number of at least 1"),
        ({"rules": rules.dana(learning_rate=0.1, num_workers=2)}, "rules must have no entries for single workers"),
    ],
)
def test_mistakes_are_named(change, message):
    given = {"runs": STALE, "task": TASK, "ratio": rule("none"), "rules": optax.sgd(1.0), "seeds": [0]} | change
    with pytest.raises(ValueError, match=message):
        rollouts.replay(given.pop("runs"), given.pop("task"), given.pop("ratio"), given.pop("rules"), **given)


def test_runs_of_other_shapes_are_refused():
    _, longer = trained_on(rollouts.synchronous, 9)
    with pytest.raises(ValueError, match="runs must have as many steps of as many rollouts in groups, not"):
        rollouts.replay([STALE, longer], TASK, rule("none"), optax.sgd(1.0), seeds=[0, 1])
