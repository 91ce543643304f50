"""Barkai et al. 2020, "Gap-Aware mitigation of gradient staleness": its tables, figures and theorem."""
