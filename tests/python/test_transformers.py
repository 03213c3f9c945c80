"""Small models of Hugging Face transformers, randomly initialised, with sparsek's attention and with sdpa's."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
import warnings

import pytest
import torch
from reference import allowed_pairs

import sparsek
from sparsek import BlockMask

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what other packages say while they are imported
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import masking_utils

    from sparsek.integrations import _masks
    from sparsek.integrations import transformers as integration

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

# On the GPU both compute in bfloat16: then logits of about 1 differ by a few of its steps.
DEVICES = [
    pytest.param("cpu", torch.float32, 5e-6, id="cpu"),
    pytest.param("cuda", torch.bfloat16, 4e-2, id="cuda", marks=pytest.mark.gpu),
]
LENGTH = 150

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
DECODERS = {
    "llama": ("Llama", {"num_key_value_heads": 2}),
    "mistral": ("Mistral", {"num_key_value_heads": 1, "sliding_window": 40}),
    "gemma3": ("Gemma3", {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 40}),
}


@pytest.fixture(autouse=True)
def _registered():
    integration.register()


def pair(name, device="cpu", dtype=torch.float32, **changes):
    """The same model with sdpa and with sparsek."""
    torch.manual_seed(0)
    kind, options = DECODERS.get(name, (name, {}))
    config_name = f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, config_name)(**{**SIZES, **options, **changes})
    suffix = "ForCausalLM" if name in DECODERS else "Model"
    model = getattr(transformers, f"{kind}{suffix}")(config).eval().to(device, dtype)
    model.set_attn_implementation("sdpa")
    ours = copy.deepcopy(model)
    ours.set_attn_implementation("sparsek")
    return model, ours


def batch(rng, device="cpu", length=LENGTH, side="left"):
    """Tokens (3, length), and their mask: one text without padding, one with a few, one with 100 tokens of it."""
    ids = torch.from_numpy(rng.integers(3, 97, (3, length)))
    mask = torch.ones_like(ids)
    for row, padding in ((1, 3), (2, 100)):
        mask[row, slice(0, padding) if side == "left" else slice(length - padding, None)] = 0
    return ids.to(device), mask.to(device)


def check(got, wanted, tolerance, mask=None):
    if mask is not None:
        got, wanted = got[mask.bool()], wanted[mask.bool()]
    torch.testing.assert_close(got, wanted, rtol=0, atol=tolerance * max(1.0, wanted.abs().max().item()))


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(("device", "dtype", "tolerance"), DEVICES)
@torch.no_grad()
def test_decoder(name, side, device, dtype, tolerance, rng):
    theirs, ours = pair(name, device, dtype)
    ids, mask = batch(rng, device, side=side)
    mask = None if side is None else mask
    check(ours(ids, attention_mask=mask).logits, theirs(ids, attention_mask=mask).logits, tolerance, mask)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["Bert", "ModernBert"])
@pytest.mark.parametrize(("device", "dtype", "tolerance"), DEVICES)
@torch.no_grad()
def test_encoder(name, padded, device, dtype, tolerance, rng):
    changes = {"local_attention": 32, "num_hidden_layers": 4} if name == "ModernBert" else {}
    theirs, ours = pair(name, device, dtype, **changes)
    ids, mask = batch(rng, device, side="right")
    mask = mask if padded else None
    wanted, got = (model(ids, attention_mask=mask).last_hidden_state for model in (theirs, ours))
    check(got, wanted, tolerance, mask)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", DECODERS)
def test_generation(name, padded, cache, rng):
    theirs, ours = pair(name)
    ids, mask = batch(rng, length=60)
    ids, mask = (ids, mask) if padded else (ids[:2], torch.ones_like(ids[:2]))
    if padded:
        mask[2] = 1
        mask[2, :35] = 0
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "disable_compile": True}
    options |= {"return_dict_in_generate": True, "output_logits": True, "cache_implementation": cache}
    wanted, got = (model.generate(ids, attention_mask=mask, **options) for model in (theirs, ours))
    assert torch.equal(got.sequences, wanted.sequences)
    check(torch.stack(got.logits), torch.stack(wanted.logits), 5e-6)


def test_beams(rng):
    ids, mask = batch(rng, length=40)
    mask[2] = 1
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": 3, "do_sample": False}
    wanted, got = (model.generate(ids, attention_mask=mask, **options) for model in pair("mistral"))
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize(("device", "dtype", "tolerance"), DEVICES)
@torch.no_grad()
def test_steps_with_a_cache(name, device, dtype, tolerance, rng):
    """The same tokens for both, a prompt and then some at a time, so that rounding cannot choose another token."""
    ids, mask = batch(rng, device)
    logits = []
    for model in pair(name, device, dtype):
        cache, parts = None, []
        for first, stop in ((0, 120), (120, 121), (121, 140), (140, LENGTH)):
            out = model(ids[:, first:stop], attention_mask=mask[:, :stop], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            parts.append(out.logits)
        logits.append(torch.cat(parts, dim=1))
    check(logits[1], logits[0], tolerance, mask)


@torch.no_grad()
def test_cross_attention(rng):
    sizes = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
    }
    theirs = transformers.BartModel(transformers.BartConfig(vocab_size=97, d_model=32, **sizes)).eval()
    ours = copy.deepcopy(theirs)
    ours.set_attn_implementation("sparsek")
    ids, mask = batch(rng, side="right")
    wanted, got = (
        model(ids, attention_mask=mask, decoder_input_ids=ids[:, :40]).last_hidden_state for model in (theirs, ours)
    )
    check(got, wanted, 5e-6)


@torch.no_grad()
def test_packed_sequences(rng):
    theirs, ours = pair("llama")
    ids, _ = batch(rng)
    positions = torch.cat([torch.arange(length) for length in (40, 7, 103)]).expand(3, -1)
    wanted, got = (model(ids, position_ids=positions, use_cache=False).logits for model in (theirs, ours))
    check(got, wanted, 5e-6)


@pytest.mark.parametrize("kind", ["bool", "float"])
@torch.no_grad()
def test_masks_of_four_axes(kind, rng):
    theirs, ours = pair("llama")
    ids, _ = batch(rng)
    seen = torch.from_numpy(rng.random((3, 1, LENGTH, LENGTH)) < 0.3) | torch.eye(LENGTH, dtype=torch.bool)
    mask = seen if kind == "bool" else torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    check(ours(ids, attention_mask=mask).logits, theirs(ids, attention_mask=mask).logits, 5e-6)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_gradients(name, checkpointing, rng):
    models = pair(name, use_cache=False)
    ids, mask = batch(rng)
    if checkpointing:
        models[1].gradient_checkpointing_enable()
    labels = torch.where(mask == 1, ids, -100)
    for model in models:
        model.train()
        model(ids, attention_mask=mask, labels=labels).loss.backward()
    for (parameter, wanted), (_, got) in zip(*(model.named_parameters() for model in models), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-3, atol=1e-6, msg=lambda m, p=parameter: f"{p}: {m}")


@torch.no_grad()
def test_compiled(rng):
    torch._dynamo.reset()
    theirs, ours = pair("mistral")
    ids, mask = batch(rng)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    got = compiled(ids, attention_mask=mask, use_cache=False).logits
    check(got, theirs(ids, attention_mask=mask, use_cache=False).logits, 5e-6, mask)


# What is made of masks


def test_windows_of_the_library_are_recognised():
    window_of = _masks.window_of
    assert window_of(masking_utils.causal_mask_function) == (None, 0)
    assert window_of(masking_utils.bidirectional_mask_function) == (None, None)
    assert window_of(masking_utils.sliding_window_causal_mask_function(9)) == (8, 0)
    assert window_of(masking_utils.sliding_window_bidirectional_mask_function(9)) == (9, 9)
    assert window_of(masking_utils.chunked_causal_mask_function(9, torch.zeros(1, dtype=torch.long))) is None
    assert window_of(lambda b, h, q, k: q >= k) is None


@pytest.mark.parametrize("function", ["causal", "sliding", "chunked", "both-ways"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("q_length", "kv_length", "q_offset", "kv_offset"), [(70, 70, 0, 0), (3, 90, 87, 0), (5, 30, 70, 45), (20, 90, 0, 0)])  # fmt: skip # noqa: E501
def test_patterns_are_the_masks_of_sdpa(function, padded, q_length, kv_length, q_offset, kv_offset, rng):
    functions = {
        "causal": masking_utils.causal_mask_function,
        "sliding": masking_utils.sliding_window_causal_mask_function(12),
        "chunked": masking_utils.chunked_causal_mask_function(16, torch.zeros(2, dtype=torch.long)),
        "both-ways": masking_utils.sliding_window_bidirectional_mask_function(12),
    }
    padding = None
    if padded:
        padding = torch.ones(2, q_offset + q_length, dtype=torch.bool)
        padding[1, : q_offset + 2] = False
    arguments = {
        "batch_size": 2,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": functions[function],
        "attention_mask": padding,
    }
    made = _masks.pattern(**arguments)
    wanted = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    assert made.shape == (2, 1, q_length, kv_length)
    dense = None if made.mask is None else made.mask.to_dense()
    seen = allowed_pairs(q_length, kv_length, mask=dense, window=made.window)
    assert torch.equal(seen.expand(wanted.shape), wanted)
    # A model that computes with it gets the dense one.
    assert torch.equal(made[:, :, 1:, :10], wanted[:, :, 1:, :10])
    assert made.contiguous() is made


def test_blocks_of_padding_are_not_listed():
    padding = torch.ones(2, 512, dtype=torch.bool)
    padding[1, :300] = False
    mask = _masks.pattern(2, 512, 512, attention_mask=padding).mask
    assert isinstance(mask, BlockMask)
    assert mask.counts[1].unique().tolist() == [4]  # 64 keys each, of which 300 are padding


# What is refused


def test_refused(rng):
    ids, _ = batch(rng)
    _, ours = pair("llama", attention_dropout=0.1)
    with pytest.raises(NotImplementedError, match=r"dropout: .* expected 0, got 0\.1"):
        ours.train()(ids)
    ours = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SIZES, attn_logit_softcapping=50.0))
    ours.eval().set_attn_implementation("sparsek")
    with pytest.raises(NotImplementedError, match="softcap: sparsek's attention does not have soft capping"):
        ours(ids)
    _, ours = pair("llama")
    with pytest.raises(NotImplementedError, match="attention_mask: sparsek's attention does not have biases"):
        ours(ids, attention_mask=torch.randn(3, 1, LENGTH, LENGTH))
    query = torch.zeros(1, 2, 8, 16)
    for feature in ("position_bias", "s_aux", "head_mask", "cache"):
        with pytest.raises(NotImplementedError, match=f"{feature}: sparsek's attention does not have"):
            integration.attention_forward(ours, query, query, query, None, **{feature: query})
    with pytest.raises(ValueError, match=r"attention_mask: expected \(batch, heads, q_len, kv_len\).*\(1, 8\)"):
        integration.attention_forward(ours, query, query, query, torch.ones(1, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"backend: expected one of .*, got 'fast'"):
        integration.register(backend="fast")


def test_weights_are_missed_once(caplog):
    integration._say_once.cache_clear()
    query = torch.randn(1, 2, 8, 16)
    module = torch.nn.Module()
    with caplog.at_level(logging.WARNING, logger="sparsek"):
        for _ in range(3):
            out, weights = integration.attention_forward(module, query, query, query, None, output_attentions=True)
    assert weights is None
    assert sum("output_attentions=True" in record.getMessage() for record in caplog.records) == 1
    torch.testing.assert_close(out, sparsek.attention(*[query.transpose(1, 2)] * 3, causal=True))


def test_another_name_and_backend():
    integration.register("sparsek-cpu", backend="cpu")
    model, _ = pair("llama")
    model.set_attn_implementation("sparsek-cpu")
    assert model(torch.ones(1, 5, dtype=torch.long)).logits.shape == (1, 5, 97)


@pytest.mark.parametrize("module", ["transformers", "torch"])
def test_a_missing_package_is_named(module):
    code = f"import sys; sys.modules['{module}'] = None\nimport sparsek.integrations.transformers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"needs {module}: pip install 'sparsek[transformers]'" in done.stderr
