# my_method.py
from sgdlab.runs import register_method

for name, bound in (("tight", 1), ("loose", 16)):
    register_method(
        name,
        protocol="bounded_staleness",
        rule="delay_compensated",
        title=f"Delay compensation, bound {bound}",
        entries={"bound": bound},  # of the protocol
        rule_entries={"adaptive": True, "variance_control": 2.0},
    )
