"""Compares every byte with layers that PyTorch computed, with VNNI and limited to AVX2, where sums saturate."""

import json
import pathlib
import unittest

import layers
import numpy as np
import torch

INTACT = torch.ops.intact
FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/data/torch-layers"


def tensor(path):
    return torch.from_numpy(np.load(path))


def run(folder, mode, max_isa):
    """The output of the layer in `folder`, channels last like the files."""
    layer = json.loads((folder / "layer.json").read_text())
    is_conv = layer["operator"] == "conv2d"

    def first(t):  # channels first
        return t.movedim(-1, 1) if is_conv else t

    scales, zeros = (torch.tensor(layer["weight"][key]) for key in ("scales", "zero_points"))
    integers = first(tensor(folder / "weights.npy"))
    weight = torch._make_per_channel_quantized_tensor(
        integers,
        scales.double().expand(len(integers)).contiguous(),
        zeros.expand(len(integers)).contiguous(),
        0,
    )
    input = torch._make_per_tensor_quantized_tensor(
        first(tensor(folder / "activations.npy")), layer["input"]["scale"], layer["input"]["zero_point"]
    )
    bias = tensor(folder / "bias.npy") if (folder / "bias.npy").exists() else None
    options = dict(mode=mode, max_isa=max_isa)
    output = layer["output"]["scale"], layer["output"]["zero_point"]
    if is_conv:
        params = layers.conv(
            weight, bias, layer["stride"], layer["padding"], 0, layer["dilation"], layer["groups"], **options
        )
        op = INTACT.conv_relu if layer["relu"] else INTACT.conv
        return op(input, params, *output).int_repr().movedim(1, -1)
    op = INTACT.linear_relu if layer["relu"] else INTACT.linear
    return op(input, layers.linear(weight, bias, **options), *output).int_repr()


class Goldens(unittest.TestCase):
    def test_all(self):
        folders = sorted(folder for folder in FOLDER.iterdir() if folder.is_dir())
        self.assertEqual(len(folders), 20)
        changed = 0
        for folder in folders:
            with self.subTest(layer=folder.name):
                exact, saturated = (tensor(folder / f"output_{name}.npy") for name in ("onednn", "avx2"))
                self.assertTrue(torch.equal(run(folder, "exact", "avx2"), exact))
                self.assertTrue(torch.equal(run(folder, "exact", "any"), exact))
                self.assertTrue(torch.equal(run(folder, "saturating", "avx2"), saturated))
                changed += not torch.equal(exact, saturated)
        self.assertGreater(changed, 2)  # saturation is visible


if __name__ == "__main__":
    unittest.main()
