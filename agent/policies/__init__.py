"""Policies: small functions around the model call and the tool call, one file each.

They wrap; none is a graph node, because every node costs a superstep and a checkpoint. `agent/factory.py` states their
order, `base.py` folds them.
"""
