from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BloomConfig,
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTNeoConfig,
    GPTNeoXConfig,
    GraniteConfig,
    InternLM3Config,
    LlamaConfig,
    LlamaForCausalLM,
    MiniCPM3Config,
    MistralConfig,
    MixtralConfig,
    MptConfig,
    Olmo2Config,
    OpenAIGPTConfig,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SeedOssConfig,
    SmolLM3Config,
    StableLmConfig,
)

from blockpilot_rl.decoding.forward import LeanForward, ModuleForward, is_lean, target_forward
from blockpilot_rl.errors import BlockPilotError

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LEAN = {
    "llama": LlamaConfig(**SHAPE),
    "llama-bias": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "llama-tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama-llama3-rope": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama-multi-head": LlamaConfig(**{**SHAPE, "num_key_value_heads": 4}),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen2-yarn": Qwen2Config(**SHAPE, rope_parameters=YARN),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "seed-oss": SeedOssConfig(**SHAPE, attention_bias=True, attention_out_bias=False, head_dim=8),
    "smollm3": SmolLM3Config(**SHAPE, no_rope_layers=[1, 0, 1, 1], pad_token_id=0),
    "internlm3": InternLM3Config(**SHAPE, head_dim=8),
    "llama-gelu": LlamaConfig(**SHAPE, hidden_act="gelu"),
    "mistral-window": MistralConfig(**SHAPE, sliding_window=6),
    "qwen2-window": Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=6, max_window_layers=2
    ),
    "gemma3": Gemma3TextConfig(
        **SHAPE, head_dim=8, query_pre_attn_scalar=8, sliding_window=6, pad_token_id=0
    ),
    "gemma3-ropes": Gemma3TextConfig(
        **SHAPE,
        head_dim=8,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=3,
        pad_token_id=0,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
}
WITHOUT_GROUPS = {k: v for k, v in SHAPE.items() if k != "num_key_value_heads"}
MODULES = {
    "gemma": GemmaConfig(**SHAPE, head_dim=8, pad_token_id=0),
    "gemma2": Gemma2Config(
        **SHAPE, head_dim=8, sliding_window=6, pad_token_id=0, final_logit_softcapping=2.0
    ),
    "gemma3-scale": Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=6, pad_token_id=0),
    "gemma3-cap": Gemma3TextConfig(
        **SHAPE, head_dim=8, query_pre_attn_scalar=8, pad_token_id=0, final_logit_softcapping=2.0
    ),
    "gemma4": Gemma4TextConfig(
        **{**SHAPE, "num_hidden_layers": 6},
        head_dim=8,
        global_head_dim=8,
        sliding_window=6,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=64,
        pad_token_id=0,
        final_logit_softcapping=2.0,
    ),
    "gpt-neox": GPTNeoXConfig(**WITHOUT_GROUPS),
    "gpt2": GPT2Config(vocab_size=64, n_embd=32, n_layer=4, n_head=4, n_positions=256),
    "gpt-neo": GPTNeoConfig(
        vocab_size=64,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        attention_types=[[["global", "local"], 2]],
        window_size=6,
        max_position_embeddings=256,
    ),
    "opt": OPTConfig(
        vocab_size=64,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
        word_embed_proj_dim=32,
        pad_token_id=1,
    ),
    "bloom": BloomConfig(vocab_size=64, hidden_size=32, n_layer=4, n_head=4),
    "mpt": MptConfig(vocab_size=64, d_model=32, n_layers=4, n_heads=4, max_seq_len=256),
    "falcon-alibi": FalconConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, alibi=True
    ),
    "phi-head-bias": PhiConfig(**WITHOUT_GROUPS, pad_token_id=0),
    "phi3": Phi3Config(**SHAPE, pad_token_id=0, sliding_window=6),
    "olmo2": Olmo2Config(**SHAPE),
    "granite": GraniteConfig(
        **SHAPE,
        embedding_multiplier=3.0,
        logits_scaling=4.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
    ),
    "cohere": CohereConfig(**SHAPE, logit_scale=0.25, pad_token_id=0),
    "minicpm3": MiniCPM3Config(
        **{**SHAPE, "num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=8,
        head_dim=4,
        pad_token_id=0,
    ),
    "stablelm": StableLmConfig(**SHAPE),
    "mixtral": MixtralConfig(**SHAPE, num_local_experts=4),
    "qwen3-moe": Qwen3MoeConfig(
        **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8
    ),
}
EVERY = {**LEAN, **MODULES}


def build(config, seed: int = 0):
    """A random model whose biases and norms are random too, unlike those of new models."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def reference(model, ids, **options):
    """Logits and the outputs of all layers, from transformers' own pass."""
    output = model(input_ids=ids, output_hidden_states=True, use_cache=False, **options)
    return output.logits, output.hidden_states


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_the_fitting_pass_is_chosen(name):
    model = build(EVERY[name])
    assert is_lean(model) == (name in LEAN)
    assert type(target_forward(model, [])) is (LeanForward if name in LEAN else ModuleForward)


def test_heads_with_a_bias_and_moving_ropes_are_not_lean():
    model = build(LEAN["llama"])
    model.lm_head = torch.nn.Linear(32, 64)
    assert not is_lean(model)
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    assert not is_lean(build(LlamaConfig(**SHAPE, rope_parameters=dynamic)))


def test_code_of_a_checkpoints_own_is_not_lean():
    """It may call itself a llama and compute something else."""

    class Other(LlamaForCausalLM):
        pass

    assert not is_lean(Other(LEAN["llama"]))


def test_linears_that_are_more_than_a_matrix_are_not_lean():
    """Quantised and adapted ones keep scales and adapters next to their weight."""

    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model, ids = build(LEAN["llama"]), tokens(1, 5)
    scaled = Scaled(32, 16, bias=False)
    scaled.load_state_dict(model.model.layers[2].self_attn.k_proj.state_dict())
    model.model.layers[2].self_attn.k_proj = scaled
    forward = target_forward(model, [0])
    assert type(forward) is ModuleForward
    hidden = forward(ids, forward.new_cache(1, 5))
    assert_close(hidden.last, reference(model, ids)[1][-1])


class Leaky(torch.nn.Module):
    """Layers that keep the sum of all they have read, rejected drafts included."""

    def __init__(self, layers):
        super().__init__()
        self.layers, self.sum = layers, 0.0

    def forward(self, input_ids, **options):
        output = self.layers(input_ids=input_ids, **options)
        output.last_hidden_state = output.last_hidden_state + self.sum
        self.sum = self.sum + output.last_hidden_state.mean()
        return output


def leaky():
    model = build(MODULES["gpt-neox"])
    model.gpt_neox = Leaky(model.gpt_neox)
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: build(BertConfig(**WITHOUT_GROUPS)), "BertLMHeadModel cannot be decoded: their"),
        (
            lambda: build(OpenAIGPTConfig(vocab_size=64, n_embd=32, n_layer=4, n_head=4)),
            "OpenAIGPTLMHeadModel cannot be decoded",
        ),
        (leaky, "GPTNeoXForCausalLM cannot be decoded: their logits change"),
    ],
)
def test_models_that_cannot_take_drafts_back_are_refused(model, message):
    """Regardless of their configs (huggingface/transformers#49036)."""
    with pytest.raises(BlockPilotError, match=message):
        target_forward(model(), [0])


def test_layers_that_give_no_features_are_refused():
    """Gemma 3n's outputs hold several streams; it can be decoded, but not drafted for."""
    model = build(
        Gemma3nTextConfig(
            **{**SHAPE, "num_hidden_layers": 10},
            head_dim=8,
            vocab_size_per_layer_input=64,
            hidden_size_per_layer_input=8,
            num_kv_shared_layers=5,
            sliding_window=6,
            laurel_rank=4,
            altup_num_inputs=2,
            activation_sparsity_pattern=[0.0] * 10,
            pad_token_id=0,
        )
    )
    assert target_forward(model, []).vocab_size == 64
    with pytest.raises(BlockPilotError, match="give no drafter its features"):
        target_forward(model, [0, 2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*LEAN, "gemma2", "gpt2", "granite"])
@torch.inference_mode()
def test_half_precision_equals_the_modules_up_to_rounding(name, dtype):
    """bstnxbt/dflash-mlx#60: a wrong cast made acceptance zero."""
    model, ids = build(EVERY[name]).to(dtype), tokens(1, 12)
    forward = target_forward(model, [0, 2])
    cache = forward.new_cache(1, 12)
    first, then = forward(ids[:, :9], cache), forward(ids[:, 9:], cache)
    last, logits = torch.cat([first.last, then.last], dim=1), forward.logits(then.last)
    assert {last.dtype, then.features.dtype, logits.dtype} == {dtype}
    expected, states = reference(model, ids)
    for ours, theirs in ((last, states[-1]), (logits, expected[:, 9:])):
        difference = (ours - theirs).float().norm() / theirs.float().norm()
        assert difference < 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", EVERY)
@torch.inference_mode()
def test_equals_the_modules(name):
    """Final states, features and logits, for a prompt and then token by token and in blocks."""
    model, ids = build(EVERY[name]), tokens(1, 16)
    logits, states = reference(model, ids)
    forward = target_forward(model, [0, 2])
    cache = forward.new_cache(1, 16)
    for start, end in ((0, 7), (7, 8), (8, 9), (9, 16)):
        hidden = forward(ids[:, start:end], cache)
        assert cache.length == end
        assert_close(hidden.last, states[-1][:, start:end])
        assert_close(hidden.features, torch.cat([states[1], states[3]], dim=-1)[:, start:end])
        assert_close(forward.logits(hidden.last), logits[:, start:end])
        assert_close(forward.logits(hidden.last[0, -1]), logits[0, end - 1])


@pytest.mark.parametrize("name", EVERY)
@torch.inference_mode()
def test_left_padding_changes_nothing(name):
    """Each row of a padded batch equals the row alone, and transformers' padded pass."""
    model, rows = build(EVERY[name]), [tokens(2, 12)[0], tokens(2, 12)[1, :7]]
    forward = target_forward(model, [0, 2])
    padding = torch.tensor([0, 5])
    batch = torch.stack([rows[0], torch.nn.functional.pad(rows[1], (5, 0))])
    cache = forward.new_cache(2, 12)
    first = forward(batch[:, :9], cache, padding)
    then = forward(batch[:, 9:], cache, padding)
    last = torch.cat([first.last, then.last], dim=1)
    features = torch.cat([first.features, then.features], dim=1)
    mask = (torch.arange(12) >= padding[:, None]).long()
    _, padded = reference(
        model, batch, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)
    )
    for row, ids in enumerate(rows):
        _, states = reference(model, ids[None])
        n = len(ids)
        assert_close(last[row, -n:], states[-1][0])
        assert_close(last[row, -n:], padded[-1][row, -n:])
        assert_close(features[row, -n:], torch.cat([states[1], states[3]], dim=-1)[0])


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt-neox", "gemma3", "gpt2", "bloom"])
@torch.inference_mode()
def test_a_feature_is_the_output_of_its_layer(name):
    """Ids are 0-based decoder layers (vllm-project/vllm#40727 was off by one)."""
    model, ids = build(EVERY[name]), tokens(1, 5)
    layers = getattr(model.base_model, "layers", None) or model.base_model.h
    for index in range(3):
        forward, seen = target_forward(model, [index]), []
        hook = layers[index].register_forward_hook(
            lambda module, args, output, seen=seen: seen.append(output)
        )
        model(input_ids=ids)
        hook.remove()
        expected = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
        assert_close(forward(ids, forward.new_cache(1, 5)).features, expected)


@pytest.mark.parametrize("name", ["llama", "gpt-neox"])
@pytest.mark.parametrize("ids", [[2, 0], [1, 1], [2, 0, 1]])
@torch.inference_mode()
def test_features_come_in_the_order_of_the_config(name, ids):
    model, prompt = build(EVERY[name]), tokens(1, 5)
    forward = target_forward(model, ids)
    features = forward(prompt, forward.new_cache(1, 5)).features
    singles = []
    for index in ids:
        single = target_forward(model, [index])
        singles.append(single(prompt, single.new_cache(1, 5)).features)
    assert_close(features, torch.cat(singles, dim=-1))


@pytest.mark.parametrize("name", ["llama", "gpt-neox"])
@torch.inference_mode()
def test_a_target_without_feature_layers(name):
    forward = target_forward(build(EVERY[name]), [])
    assert forward(tokens(1, 5), forward.new_cache(1, 5)).features.shape == (1, 5, 0)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("length", [0, 1, 13, 14])
@torch.inference_mode()
def test_cropped_positions_leave_no_trace(name, length):
    """Also beyond a sliding window, which cannot move back (vllm-project/vllm#40727).

    `DynamicCache.crop` has meant three things across transformers' releases.
    """
    forward = target_forward(build(EVERY[name]), [1])
    ids, other = tokens(1, 18), tokens(1, 18).flip(1)
    cache = forward.new_cache(1, 18)
    forward(ids[:, :13], cache)
    forward(other[:, 13:14], cache)
    cache.crop(length)
    assert cache.length == length
    if length == 14:
        cache.crop(13)
        length = 13
    hidden = forward(ids[:, length:], cache)
    _, states = reference(forward.model, ids)
    assert_close(hidden.last, states[-1][:, length:])


@torch.inference_mode()
def test_positions_beyond_the_first_table():
    """The rotary table grows with the cache."""
    model = build(LlamaConfig(**{**SHAPE, "max_position_embeddings": 2048}))
    forward, ids = target_forward(model, [0]), tokens(1, 700)
    hidden = forward(ids, forward.new_cache(1, 700))
    assert_close(hidden.last[:, -3:], reference(model, ids)[1][-1][:, -3:])


@pytest.mark.parametrize("name", ["llama", "gpt-neox"])
@torch.inference_mode()
def test_rows_can_be_dropped(name):
    forward = target_forward(build(EVERY[name]), [0])
    ids = tokens(3, 8)
    cache = forward.new_cache(3, 8)
    forward(ids[:, :5], cache)
    cache.select(torch.tensor([2, 0]))
    hidden = forward(ids[[2, 0], 5:], cache)
    assert_close(hidden.last, reference(forward.model, ids[[2, 0]])[1][-1][:, 5:])


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-neox"])
def test_embeddings_are_the_models_own(name):
    model = build(EVERY[name])
    ids = tokens(1, 4)
    assert torch.equal(target_forward(model, []).embed(ids), model.get_input_embeddings()(ids))
