"""Policies wrap the model call or the tool call, one file each.

None is a graph node, because every node costs a superstep and a checkpoint. `chains.py` lists them in order, and
`base.py` folds them into one middleware.
"""
