"""Policies wrap the model call or the tool call.

None is a graph node, because every node costs a superstep and a checkpoint. `chains.py` lists them in order, and
`agent/core/policy.py` folds them into one middleware.
"""
