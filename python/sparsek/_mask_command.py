"""`python -m sparsek mask`: draws masks as text."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from ._mask_draw import _SHADES
from ._mask_gallery import MASKS, Sizes, make

_ASCII = dict(zip(_SHADES, " .:+#", strict=True))


def add_parser(commands: Any) -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:<10} {maker.__doc__}" for name, maker in MASKS.items())
    parser = commands.add_parser(
        "mask",
        help="draw masks in the terminal",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Draws each mask: queries downwards, keys to the right.\n\n"
        f"{names}\n\n"
        "Names joined by & (in both) or | (in either) make one mask: 'causal&documents', 'window|global'.",
    )
    # Not `choices`: a name may be an expression.
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--q-len", type=int, help=f"queries ({Sizes.q_len}, or kv-len)")
    parser.add_argument("--kv-len", type=int, help="keys (q-len)")
    parser.add_argument("--block", type=int, nargs="+", help=f"q_block [kv_block] ({Sizes.q_block})")
    parser.add_argument(
        "--window", type=_side, nargs="+", metavar="N", help="LEFT [RIGHT] in tokens, or none (q-len/4 0)"
    )
    parser.add_argument("--stride", type=int, help="tokens (q-len/8)")
    parser.add_argument("--global-tokens", type=int, help=f"({Sizes.global_tokens})")
    parser.add_argument("--prefix", type=int, help="tokens (q-len/4)")
    parser.add_argument("--documents", type=int, nargs="+", metavar="N", help="the length of each document")
    parser.add_argument("--density", type=float, help=f"share of random blocks ({Sizes.density})")
    parser.add_argument("--seed", type=int, help=f"of random ({Sizes.seed})")
    parser.add_argument("--width", type=int, help="characters (64, or the terminal's width)")
    return parser


def _side(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'expected a number of tokens or "none", got {text!r}')
    return int(text)


def _sizes(options: argparse.Namespace) -> Sizes:
    total = None if options.documents is None else sum(options.documents)
    q_len = next((x for x in (options.q_len, options.kv_len, total) if x is not None), Sizes.q_len)
    kv_len = q_len if options.kv_len is None else options.kv_len
    given: dict[str, Any] = {"left": q_len // 4, "stride": max(1, q_len // 8), "prefix": q_len // 4}
    for name, most in (("block", 2), ("window", 2)):
        values = getattr(options, name)
        if values is not None and len(values) > most:
            raise ValueError(f"--{name}: expected one or two numbers, got {len(values)}")
    if options.block:
        given |= {"q_block": options.block[0], "kv_block": options.block[-1]}
    if options.window:
        given |= {"left": options.window[0], "right": options.window[1] if len(options.window) == 2 else 0}
    for name, least in (("stride", 1), ("global_tokens", 0), ("prefix", 0), ("seed", 0)):
        value = getattr(options, name)
        if value is not None:
            if value < least:
                raise ValueError(f"--{name.replace('_', '-')}: expected at least {least}, got {value}")
            given[name] = value
    if options.density is not None:
        if not 0 <= options.density <= 1:
            raise ValueError(f"--density: expected 0 to 1, got {options.density}")
        given["density"] = options.density
    if options.documents:
        given["documents"] = tuple(options.documents)
    return Sizes(q_len=q_len, kv_len=kv_len, **given)


def run(options: argparse.Namespace) -> int:
    """Draws what was asked for; 2, with one line on stderr, where that is impossible."""
    width = min(64, shutil.get_terminal_size().columns) if options.width is None else options.width
    try:
        sizes = _sizes(options)
        masks = {name: make(name, sizes) for name in options.names}
        pictures = {name: mask.to_text(width) for name, mask in masks.items()}
    except (ValueError, TypeError) as error:
        print(f"mask: error: {error}", file=sys.stderr)
        return 2
    for name, mask in masks.items():
        print(f"{name}: {mask!r}")
        print(_printable(pictures[name]))
        print()
    print(_printable("██ all pairs  ▓▓ ▒▒ ░░ fewer  ·· none"))
    return 0


def _printable(text: str) -> str:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "".join(_ASCII.get(letter, letter) for letter in text)
    return text
