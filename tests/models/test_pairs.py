from __future__ import annotations

import dataclasses
import json
import shutil

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, BloomConfig, BloomForCausalLM

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.default_target import convert_gguf
from blockpilot_rl.models.pairs import load_pair, parse_dtype
from tests.tiny_pair import MASK, STOP, encode, tiny_drafter, tiny_pair, tiny_target, variant

FIRST = 60
IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


def test_a_pair_describes_itself(tiny):
    pair = load_pair(*tiny)
    assert (pair.target_name, pair.drafter_name) == ("target", "drafter")
    assert (pair.dtype, pair.device.type, pair.block_size) == (torch.float32, "cpu", 8)
    assert pair.stop_token_ids == (STOP,)
    assert not pair.target.training


def test_a_target_alone(tiny):
    pair = load_pair(tiny[0], with_drafter=False)
    assert (pair.drafter, pair.drafter_name, pair.block_size) == (None, None, 1)
    assert pair.fingerprint == pair.target_fingerprint == load_pair(*tiny).target_fingerprint


def test_another_target_has_no_default_drafter(tiny):
    with pytest.raises(BlockPilotError, match="has no default drafter; name a drafter"):
        load_pair(tiny[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_both_models_run_in_the_same_dtype(tiny, dtype):
    """bstnxbt/dflash-mlx#60: a wrong cast made acceptance zero."""
    pair = load_pair(*tiny, dtype)
    wanted = {getattr(torch, dtype)}
    assert {p.dtype for p in pair.target.parameters()} == wanted
    assert {p.dtype for p in pair.drafter.parameters()} == wanted
    assert pair.dtype in wanted


def test_dtype_names():
    assert parse_dtype("bf16") is parse_dtype("bfloat16") is torch.bfloat16
    assert (parse_dtype("fp32"), parse_dtype("fp16")) == (torch.float32, torch.float16)
    with pytest.raises(BlockPilotError, match=r"unknown dtype 'bfloat15'. Did you mean 'bfloat16'"):
        parse_dtype("bfloat15")


def test_the_shorter_model_sets_the_length(tiny, tmp_path):
    short = variant(tiny[1], tmp_path / "short", max_position_embeddings=100)
    assert load_pair(tiny[0], short).max_length == 100
    assert load_pair(*tiny).max_length == 256


def test_fingerprint_is_the_same_in_bfloat16(tiny):
    assert load_pair(*tiny, "bfloat16").fingerprint == load_pair(*tiny).fingerprint


def test_fingerprints_of_different_pairs_differ(tiny, tmp_path):
    pair = load_pair(*tiny)
    assert pair.fingerprint == load_pair(*tiny).fingerprint
    weights, theta = tiny_drafter(seed=9), tiny_drafter()
    theta.config.rope_parameters["rope_theta"] = 500_000.0
    others = [dataclasses.replace(pair, drafter=other) for other in (weights, theta)]
    others.append(dataclasses.replace(pair, target=tiny_target(seed=9)))
    assert len({other.fingerprint for other in (pair, *others)}) == 4
    assert others[0].target_fingerprint == pair.target_fingerprint
    nested = variant(
        tiny[1], tmp_path / "nested", block_size=None, dflash_config={**IDS, "block_size": 8}
    )
    assert load_pair(tiny[0], nested).fingerprint == pair.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "nonsense"}, "config of target .* cannot be read: .*nonsense"),
        ({"model_type": None}, "config of target .* cannot be read: .*model_type"),
        ({"hidden_size": "x"}, "config of target .* cannot be read: .*'hidden_size'"),
        ({"hidden_size": 40}, "cannot load target"),
    ],
)
def test_unusable_target_config(tiny, tmp_path, changes, message):
    folder = variant(tiny[0], tmp_path / "target", **changes)
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_pair(folder, tiny[1])
    assert "\n" not in str(refused.value)


def test_broken_target_files(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:500])
    with pytest.raises(BlockPilotError, match="cannot load target"):
        load_pair(folder, tiny[1])
    weights.unlink()
    with pytest.raises(BlockPilotError, match=r"no file named model\.safetensors"):
        load_pair(folder, tiny[1])
    weights.write_bytes(kept)
    tokenizer.write_text("{}", encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"tokenizer of target .* cannot be read"):
        load_pair(folder, tiny[1])
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"config of target .* cannot be read"):
        load_pair(folder, tiny[1])


def test_a_target_that_lacks_tensors_is_refused(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BlockPilotError, match=r"lacks 2 tensors, such as model\.layers\.1\.mlp"):
        load_pair(folder, tiny[1])


@pytest.mark.parametrize("device", ["gpu7", "cuda:99", "meta"])
def test_a_device_that_is_not_there(tiny, device):
    """Reported before anything is read, because large models take minutes."""
    with pytest.raises(BlockPilotError, match=f"models cannot run on {device}: ") as refused:
        load_pair(*tiny, device=device)
    assert "\n" not in str(refused.value)


def test_gguf_files_that_are_missing_or_broken(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BlockPilotError, match=r"nowhere\.gguf does not exist"):
        load_pair(tmp_path / "nowhere.gguf", tiny[1])
    broken = tmp_path / "Broken.gguf"
    broken.write_bytes(b"GGUF nonsense")
    with pytest.raises(BlockPilotError, match=r"cannot read .*Broken\.gguf as a GGUF model"):
        load_pair(broken, tiny[1])
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_gguf_file_is_a_target(tiny, tmp_path, monkeypatch):
    """It is converted once, to bfloat16; the second load needs only the converted folder."""
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "cache"))
    model = tiny_target(bos_token_id=0).bfloat16()
    file = write_gguf(tmp_path / "Tiny.gguf", model)
    pair = load_pair(file, tiny[1], "bfloat16")
    assert (pair.target_name, pair.drafter_name) == ("Tiny.gguf", "drafter")
    ours, theirs = pair.target.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert pair.tokenizer.convert_ids_to_tokens([5, 6]) == ["t5", "t6"]
    monkeypatch.setattr("blockpilot_rl.models.default_target.convert_gguf", None)
    assert load_pair(file, tiny[1], "bfloat16").fingerprint == pair.fingerprint


def test_a_gguf_file_is_parsed_once(tmp_path, monkeypatch):
    """Parsing the names of 262k tokens takes a minute."""
    file = write_gguf(tmp_path / "Tiny.gguf", tiny_target())
    parsed, original = [], gguf.GGUFReader
    build = original._build_fields
    monkeypatch.setattr(
        original, "_build_fields", lambda self, *given: parsed.append(1) or build(self, *given)
    )
    convert_gguf(file, tmp_path / "target")
    assert (len(parsed), gguf.GGUFReader) == (1, original)
    file.write_bytes(b"GGUF nonsense")
    with pytest.raises(BlockPilotError, match="as a GGUF model"):
        convert_gguf(file, tmp_path / "other")
    assert gguf.GGUFReader is original


def write_gguf(path, model):
    """Write a Llama as llama.cpp's converter does, with a small tokenizer."""
    config, state = model.config, {k: v.float().numpy() for k, v in model.state_dict().items()}

    def interleaved(weight, heads):
        rows = weight.reshape(heads, 2, -1, weight.shape[1])
        return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(weight.shape))

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", *(f"t{i}" for i in range(3, config.vocab_size))])
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(STOP)
    names = {"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
    names |= {f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for i in range(config.num_hidden_layers):
        for name, short in names.items():
            writer.add_tensor(f"blk.{i}.{short}.weight", state[f"model.layers.{i}.{name}.weight"])
        for name, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            weight = state[f"model.layers.{i}.self_attn.{name}_proj.weight"]
            writer.add_tensor(f"blk.{i}.attn_{name}.weight", interleaved(weight, heads))
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    writer.add_tensor("output.weight", state["lm_head.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_stop_tokens_come_from_every_source(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 9]}))
    assert load_pair(folder, tiny[1]).stop_token_ids == (2, 5, 9)


def test_prompts_are_rendered_with_the_template(tmp_path):
    pair = tiny_pair(tmp_path)
    ids = encode(pair, "ab")
    assert pair.tokenizer.decode(ids[0]) == "ab|"
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}{% if loud %}!a{% endif %}"
    messages = [{"role": "user", "content": "ab"}]
    assert pair.encode(messages).shape == (1, 2)
    assert pair.encode(messages, loud=True).shape == (1, 4)


def test_template_options_belong_to_the_pair(tiny, tmp_path):
    """Thinking changes acceptance (z-lab/dflash#133), so records store the options."""
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    rendered = "{{ messages[0]['content'] }}{% if not enable_thinking %}.{% endif %}{{ tail }}"
    (folder / "chat_template.jinja").write_text(rendered, encoding="utf-8")
    messages = [{"role": "user", "content": "ab"}]

    def render(**options):
        pair = load_pair(folder, tiny[1], template=options)
        assert pair.template == options
        return pair.tokenizer.decode(pair.encode(messages)[0])

    assert render() == "ab."
    assert render(enable_thinking=True) == "ab"
    assert render(enable_thinking=False, tail="c") == "ab.c"
    pair = load_pair(folder, tiny[1], template={"enable_thinking": True})
    assert pair.encode(messages, tail="cd").shape == (1, 4)
    assert load_pair(folder, tiny[1]).fingerprint == pair.fingerprint


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "enable_thinkin",
            r"without the option 'enable_thinkin'. Did you mean 'enable_thinking'\?",
        ),
        ("add_generation_prompt", "without the option 'add_generation_prompt'"),
        ("tokenize", "without the option 'tokenize'"),
    ],
)
def test_options_that_a_template_would_ignore_are_refused(tiny, tmp_path, option, message):
    """A setting that is parsed and ignored (charlie12345/ROCmFPX#31)."""
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    (folder / "chat_template.jinja").write_text("{{ messages }}{{ enable_thinking }}")
    with pytest.raises(BlockPilotError, match=message):
        load_pair(folder, tiny[1], template={option: False})
    with pytest.raises(BlockPilotError, match=message):
        load_pair(folder, tiny[1]).encode([{"role": "user", "content": "a"}], **{option: False})


def test_a_target_without_a_limit_of_positions(tiny, tmp_path):
    """BLOOM's config has no `max_position_embeddings`."""
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).unlink()
    config = BloomConfig(vocab_size=64, hidden_size=32, n_layer=4, n_head=4, pad_token_id=1)
    BloomForCausalLM(config).save_pretrained(folder)
    assert load_pair(folder, tiny[1]).max_length == 256
    assert load_pair(folder, with_drafter=False).max_length > 10**9


def test_prompts_that_cannot_be_rendered(tmp_path):
    pair = tiny_pair(tmp_path)
    for messages in ([], [{"role": "user", "content": " \n"}]):
        with pytest.raises(BlockPilotError, match="the prompt is empty"):
            pair.encode(messages)
    pair.tokenizer.chat_template = "{{ raise_exception('no system turns') }}"
    with pytest.raises(BlockPilotError, match="target refuses this conversation: no system turns"):
        encode(pair, "a")
    pair.tokenizer.chat_template = "{{ messages[0].content + tail }}"
    with pytest.raises(BlockPilotError, match=r"refuses this conversation: .*concatenate"):
        pair.encode([{"role": "user", "content": "a"}], tail=3)
    pair.tokenizer.chat_template = None
    with pytest.raises(BlockPilotError, match=r"no chat template; give it prompts .*--completion"):
        encode(pair, "a")


@pytest.fixture
def base_target(tiny, tmp_path):
    """A target without a chat template, whose tokenizer begins every text with a token."""
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])
    tokenizer.chat_template = None
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<extra0> $A", special_tokens=[("<extra0>", FIRST)]
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_completions_are_the_text_with_the_special_tokens_of_the_tokenizer(tiny, base_target):
    base = load_pair(base_target, tiny[1], completion=True)
    chat = load_pair(*tiny)
    text = " ab, c "
    plain = base.encode(text)
    assert plain.tolist() == [[FIRST, *chat.encode(text)[0, :-1].tolist()]]
    for content in (text, [{"type": "text", "text": text}]):
        assert torch.equal(base.encode([{"role": "user", "content": content}]), plain)
    assert base.template == {"completion": True}
    assert load_pair(base_target, tiny[1], template=base.template).template == base.template


def test_a_target_with_a_chat_template_reads_completions_too(tiny):
    chat, text = load_pair(*tiny), load_pair(*tiny, completion=True)
    assert torch.equal(text.encode("abc"), chat.encode("abc")[:, :-1])
    assert torch.equal(chat.encode("abc", completion=True), text.encode("abc"))
    assert torch.equal(text.encode("abc", completion=False), chat.encode("abc"))
    assert load_pair(*tiny, template={"completion": False}).template == chat.template == {}
    assert text.fingerprint == chat.fingerprint


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([("user", "a"), ("assistant", "b"), ("user", "c")], "user and assistant and user"),
        ([("system", "a"), ("user", "b")], "not a conversation of system and user"),
        ([("assistant", "a")], "not a conversation of assistant"),
        ([("user", " \n")], "the prompt is empty"),
        ([], "the prompt is empty"),
    ],
)
def test_completions_are_one_text(tiny, messages, message):
    pair = load_pair(*tiny, completion=True)
    with pytest.raises(BlockPilotError, match=message):
        pair.encode([{"role": role, "content": content} for role, content in messages])


def test_completions_have_no_template_options(tiny):
    for given in ({"completion": True, "enable_thinking": False}, {"tail": "a"}):
        with pytest.raises(BlockPilotError, match="completions are plain text, without the option"):
            load_pair(*tiny, template=given, completion=True)
