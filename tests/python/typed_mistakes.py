"""What type checkers have to find: each line that says so."""
from __future__ import annotations

import shardscope

checkpoint = shardscope.open("a")
shardscope.open("a", format="dpc")  # wrong
shardscope.open("a", tp_dims="*=0")  # wrong
shardscope.latest("a", level="deep")  # wrong
shardscope.convert("a", "b", to="safetensor")  # wrong
shardscope.convert("a", "b", mehs="tp=2")  # wrong
shardscope.convert("a", "b", verify="hard")  # wrong
shardscope.average(["a"], "b", fill_gaps="nan")  # wrong
shardscope.diff("a", "b", verify="full")  # wrong
checkpoint.validate(level="value")  # wrong
checkpoint.validate(variant="id=1")  # wrong
checkpoint.info()["total"]  # wrong
checkpoint["a"].shapes  # wrong
checkpoint["a"].name + 1  # wrong
checkpoint.validate().findings[0].rules  # wrong
checkpoint.validate().findings[0].severity == "fatal"
shardscope.run("a").latest()["nam"]  # wrong
len(shardscope.latest("a"))  # wrong
