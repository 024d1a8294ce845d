"""Builds ONNX graphs for tests from nodes and constants."""

import numpy as np
from onnx import helper


class GraphBuilder:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], {}

    def constant(self, value, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"{op}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names
