"""Claims on stale rollouts, in reinforcement learning of language models, checked on simulated runs."""
