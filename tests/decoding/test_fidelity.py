"""Every change of a model shows in our decoding, before the first call and between calls."""

from __future__ import annotations

import copy
import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize, prune
from transformers.models.llama.modeling_llama import LlamaMLP

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.fidelity import Snapshot, is_lean
from blockpilot_rl.decoding.forward import LeanForward, ModuleForward
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.integrations.transformers import block_pilot
from tests.integrations import test_transformers
from tests.tiny_pair import PROMPTS, encode, tiny_target

BUDGET = 16


def generate(pair, **options):
    """`generate` of transformers for one prompt."""
    return test_transformers.generate(pair, **{"max_new_tokens": BUDGET, **options})


@pytest.fixture
def pair(trained):
    """A copy of the trained pair, to be changed."""
    models = copy.deepcopy((trained.target, trained.drafter))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield dataclasses.replace(trained, target=models[0], drafter=models[1])


def roll(module, args, output):
    """A module's output, one place further along its last dimension."""
    return output.roll(1, -1)


def shrink(module, args, output):
    """Half of a module's output, of any type."""
    if isinstance(output, torch.Tensor):
        return output * 0.5
    if isinstance(output, tuple):
        return (output[0] * 0.5, *output[1:])
    for name in ("logits", "last_hidden_state"):
        if hasattr(output, name):
            output[name] = output[name].roll(1, -1)
    return output


class Wrapper(nn.Module):
    """A layer that steers another one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs).roll(1, -1)

    @property
    def weight(self):
        return self.inner.weight


class Adapter(nn.Module):
    """A low-rank adapter on a linear."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=4.0)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class ScaledLinear(nn.Linear):
    def forward(self, x):
        return 0.5 * super().forward(x)


class Shifted(nn.Module):
    def forward(self, weight):
        return weight.roll(1, 0)


def replace(module, name, new):
    setattr(module, name, new(getattr(module, name)))


def scaled(linear):
    other = ScaledLinear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    other.load_state_dict(linear.state_dict())
    return other


def patch_forward(module, change=shrink):
    own = module.forward
    module.forward = lambda *args, **kwargs: change(module, args, own(*args, **kwargs))


def patch_call(module):
    own = module._call_impl
    module._call_impl = lambda *args, **kwargs: shrink(module, args, own(*args, **kwargs))


@torch.no_grad()
def edit_gain(module):
    module.weight_g.mul_(-0.5)


def unregister(linear, weight):
    """As a merge that stays differentiable: the weight is a tensor, not a parameter."""
    del linear.weight
    linear.weight = weight


def change_inputs(module, args, kwargs):
    return args, {**kwargs, "input_ids": (kwargs["input_ids"] * 3 + 1) % 60}


CUSTOMIZATIONS = {
    "hook on a layer": lambda m: m.model.layers[1].register_forward_hook(shrink),
    "hook on the last layer": lambda m: m.model.layers[3].register_forward_hook(roll),
    "hook on attention": lambda m: m.model.layers[2].self_attn.register_forward_hook(shrink),
    "hook on a linear": lambda m: m.model.layers[1].mlp.up_proj.register_forward_hook(shrink),
    "hook on a norm": lambda m: m.model.norm.register_forward_hook(roll),
    "hook on the embedding": lambda m: m.model.embed_tokens.register_forward_hook(shrink),
    "hook on the head": lambda m: m.lm_head.register_forward_hook(roll),
    "hook on the backbone": lambda m: m.model.register_forward_hook(shrink),
    "hook on the model": lambda m: m.register_forward_hook(shrink),
    "pre-hook on a layer": lambda m: m.model.layers[2].register_forward_pre_hook(
        lambda m, args: (args[0] * 0.5, *args[1:])
    ),
    "pre-hook on a linear": lambda m: m.model.layers[0].mlp.down_proj.register_forward_pre_hook(
        lambda m, args: (args[0] * 0.5,)
    ),
    "pre-hook on the model": lambda m: m.register_forward_pre_hook(change_inputs, with_kwargs=True),
    "forward of a layer": lambda m: patch_forward(m.model.layers[1]),
    "forward of a linear": lambda m: patch_forward(m.model.layers[3].self_attn.o_proj),
    "forward of the head": lambda m: patch_forward(m.lm_head, roll),
    "forward of the model": lambda m: patch_forward(m),
    "wrapped layer": lambda m: replace(m.model.layers, "1", Wrapper),
    "wrapped head": lambda m: replace(m, "lm_head", Wrapper),
    "sequence for a layer's part": lambda m: replace(
        m.model.layers[1], "mlp", lambda mlp: nn.Sequential(mlp, nn.Tanh())
    ),
    "adapter on a linear": lambda m: replace(m.model.layers[2].self_attn, "q_proj", Adapter),
    "adapters on every layer": lambda m: [
        replace(layer.mlp, "gate_proj", Adapter) for layer in m.model.layers
    ],
    "subclass of linear": lambda m: replace(m.model.layers[0].self_attn, "v_proj", scaled),
    "parametrization": lambda m: parametrize.register_parametrization(
        m.model.layers[1].mlp.up_proj, "weight", Shifted()
    ),
    "spectral norm": lambda m: nn.utils.spectral_norm(m.model.layers[1].mlp.up_proj).eval(),
    "other scaling of attention": lambda m: setattr(m.model.layers[1].self_attn, "scaling", 0.1),
    "other epsilon": lambda m: setattr(m.model.layers[1].input_layernorm, "variance_epsilon", 9.0),
    "fewer layers": lambda m: setattr(m.config, "num_hidden_layers", 3),
    "hook that is always called": lambda m: m.model.layers[1].register_forward_hook(
        shrink, always_call=True, prepend=True
    ),
    "hook with keywords": lambda m: m.model.layers[1].register_forward_hook(
        lambda m, args, kwargs, output: shrink(m, args, output), with_kwargs=True
    ),
    "hook on the rotary embedding": lambda m: m.model.rotary_emb.register_forward_hook(shrink),
    "parametrized norm": lambda m: parametrize.register_parametrization(
        m.model.layers[1].input_layernorm, "weight", nn.Softsign()
    ),
    "weight norm": lambda m: edit_gain(nn.utils.weight_norm(m.model.layers[1].mlp.up_proj)),
    "pruning": lambda m: prune.l1_unstructured(m.model.layers[1].mlp.down_proj, "weight", 0.6),
    "attention to later tokens": lambda m: [
        setattr(layer.self_attn, "is_causal", False) for layer in m.model.layers
    ],
    "one bias of three": lambda m: setattr(
        m.model.layers[1].self_attn.q_proj, "bias", nn.Parameter(torch.linspace(-5, 5, 32))
    ),
    "bias of the head": lambda m: setattr(
        m.lm_head, "bias", nn.Parameter(torch.linspace(-5, 5, 64))
    ),
    "call of a layer": lambda m: patch_call(m.model.layers[1]),
}


@torch.no_grad()
def edit(model, name="model.layers.1.mlp.down_proj.weight"):
    model.get_parameter(name).mul_(-0.5)


def assign_data(model, name):
    parameter = model.get_parameter(name)
    parameter.data = parameter.data.flip(0) * torch.linspace(0.1, 2.0, parameter.shape[-1])


@torch.inference_mode()
def edit_one_row(model):
    model.model.layers[2].mlp.up_proj.weight[7] = 30.0


@torch.inference_mode()
def edit_one_column(model):
    model.model.layers[1].self_attn.o_proj.weight[:, 5] = 30.0


def edit_data(model):
    model.model.layers[0].self_attn.q_proj.weight.data.mul_(-3.0)


def merge_adapter(model):
    """As peft merges: the weight changes in place through `.data`."""
    weight = model.model.layers[2].mlp.gate_proj.weight
    weight.data += torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1])


EDITS = {
    "load_state_dict": lambda m: m.load_state_dict(tiny_target(seed=5).state_dict()),
    "load_state_dict by assignment": lambda m: m.load_state_dict(
        tiny_target(seed=5).state_dict(), assign=True
    ),
    ".data of a linear": lambda m: assign_data(m, "model.layers.0.self_attn.o_proj.weight"),
    ".data of a norm": lambda m: assign_data(m, "model.layers.3.input_layernorm.weight"),
    ".data of the embedding": lambda m: assign_data(m, "model.embed_tokens.weight"),
    ".data of the head": lambda m: assign_data(m, "lm_head.weight"),
    "in place without gradients": edit,
    "in place on the head": lambda m: edit(m, "lm_head.weight"),
    "in place on a norm": lambda m: edit(m, "model.norm.weight"),
    "in place through .data": edit_data,
    "in place in inference mode": torch.inference_mode()(edit),
    "one row in inference mode": edit_one_row,
    "one column in inference mode": edit_one_column,
    "a merged adapter": merge_adapter,
    "a new parameter": lambda m: setattr(
        m.model.layers[1].mlp.up_proj, "weight", nn.Parameter(torch.randn(48, 32))
    ),
    "a new layer": lambda m: m.model.layers.__setitem__(1, tiny_target(seed=5).model.layers[1]),
    "a layer moved": lambda m: m.model.layers.insert(0, m.model.layers.pop(2)),
    "rotary frequencies": lambda m: m.model.rotary_emb.inv_freq.mul_(0.3),
    "rotary scale": lambda m: setattr(m.model.rotary_emb, "attention_scaling", 0.4),
    "another activation": lambda m: setattr(m.model.layers[1].mlp, "act_fn", nn.Tanh()),
    "head tied to the embedding": lambda m: setattr(
        m.lm_head, "weight", m.model.embed_tokens.weight
    ),
    "a weight that is no parameter": lambda m: unregister(
        m.model.layers[1].mlp.up_proj, torch.randn(48, 32)
    ),
}
CHANGES = {**CUSTOMIZATIONS, **EDITS}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_is_decoded_as_plain_generate_decodes_it(pair, name):
    """The change comes before the first call."""
    unchanged = generate(pair)
    CHANGES[name](pair.target)
    expected = generate(pair)
    assert not torch.equal(expected, unchanged)
    assert torch.equal(generate(pair, custom_generate=block_pilot(pair, block_size=5)), expected)
    assert is_lean(pair.target) == (name in EDITS or name == "other epsilon")


@pytest.mark.parametrize("name", CHANGES)
def test_a_kept_hook_follows_every_change(pair, name):
    """The change comes between two calls of one hook and of one decoder."""
    hook, decoder, ids = block_pilot(pair, block_size=5), Decoder(pair), encode(pair, "a b c d")
    before = generate(pair)
    assert torch.equal(generate(pair, custom_generate=hook), before)
    assert decoder.generate(ids, 5, BUDGET).tokens == before[0, ids.shape[1] :].tolist()
    CHANGES[name](pair.target)
    expected = generate(pair)
    assert not torch.equal(expected, before)
    for _ in range(2):
        assert torch.equal(generate(pair, custom_generate=hook), expected)
    assert decoder.generate(ids, 5, BUDGET).tokens == expected[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize(
    "name", [name for name in CUSTOMIZATIONS if name.startswith(("hook", "pre"))]
)
def test_a_removed_hook_is_forgotten(pair, name):
    """The lean pass comes back with the model's own text."""
    before, decoder = generate(pair), Decoder(pair)
    ids = encode(pair, "a b c d")
    handle = CUSTOMIZATIONS[name](pair.target)
    decoder.generate(ids, 5, BUDGET)
    assert type(decoder.target) is ModuleForward
    handle.remove()
    assert decoder.generate(ids, 5, BUDGET).tokens == before[0, ids.shape[1] :].tolist()
    assert type(decoder.target) is LeanForward


def test_a_reset_hook_reads_every_weight_again(pair):
    """An edit of single values in inference mode leaves no trace in PyTorch."""
    hook = block_pilot(pair, block_size=5)
    generate(pair, custom_generate=hook)
    with torch.inference_mode():
        pair.target.lm_head.weight[11, 3:20] = 40.0
    hook.reset()
    assert torch.equal(generate(pair, custom_generate=hook), generate(pair))


@pytest.mark.parametrize("register", ["forward_hook", "forward_pre_hook"])
def test_global_module_hooks_are_honoured(pair, register):
    before, hook = generate(pair), block_pilot(pair, block_size=5)
    generate(pair, custom_generate=hook)

    def halve(module, args, output=None):
        if isinstance(module, LlamaMLP):
            return args[0] * 0.5 if output is None else output * 0.5
        return None

    handle = getattr(torch_module, f"register_module_{register}")(halve)
    try:
        expected = generate(pair)
        assert not torch.equal(expected, before)
        assert torch.equal(generate(pair, custom_generate=hook), expected)
    finally:
        handle.remove()
    assert torch.equal(generate(pair, custom_generate=hook), before)


PATCHED = ["LlamaMLP", "LlamaDecoderLayer", "LlamaAttention", "LlamaRMSNorm", "LlamaForCausalLM"]


@pytest.mark.parametrize("named_alike", [False, True])
@pytest.mark.parametrize("patched", PATCHED)
def test_a_patched_class_is_honoured(pair, monkeypatch, patched, named_alike):
    """Also by a function that `functools.wraps` gives the name and module of the original."""
    from transformers.models.llama import modeling_llama

    hook, before = block_pilot(pair, block_size=5), generate(pair)
    generate(pair, custom_generate=hook)
    kind = getattr(modeling_llama, patched)
    own = kind.forward

    def forward(self, *args, **kwargs):
        return shrink(self, args, own(self, *args, **kwargs))

    if patched == "LlamaForCausalLM":

        def forward(self, input_ids=None, **kwargs):
            changed = None if input_ids is None else (input_ids * 3 + 1) % 60
            return own(self, changed, **kwargs)

    monkeypatch.setattr(kind, "forward", functools.wraps(own)(forward) if named_alike else forward)
    expected = generate(pair)
    assert not torch.equal(expected, before)
    assert torch.equal(generate(pair, custom_generate=hook), expected)


@pytest.mark.parametrize("named_alike", [False, True])
@pytest.mark.parametrize("helper", ["apply_rotary_pos_emb", "rotate_half"])
def test_a_patched_function_is_honoured(pair, monkeypatch, helper, named_alike):
    from transformers.models.llama import modeling_llama

    hook, before = block_pilot(pair, block_size=5), generate(pair)
    generate(pair, custom_generate=hook)
    own = getattr(modeling_llama, helper)

    def halved(*args, **kwargs):
        found = own(*args, **kwargs)
        return 0.5 * found if helper == "rotate_half" else (0.1 * found[0], found[1])

    patch = functools.wraps(own)(halved) if named_alike else halved
    monkeypatch.setattr(modeling_llama, helper, patch)
    expected = generate(pair)
    assert not torch.equal(expected, before)
    assert torch.equal(generate(pair, custom_generate=hook), expected)


def last_position(module, args, output):
    output = output.clone()
    output[:, -1] *= 0.3
    return output


PLACES = {
    "the last token of a pass": last_position,
    "the first token of a pass": lambda m, a, o: torch.cat([0.3 * o[:, :1], o[:, 1:]], dim=1),
    "passes over one token": lambda m, a, o: 0.3 * o if o.shape[1] == 1 else o,
    "passes over a prompt": lambda m, a, o: 0.3 * o if o.shape[1] > 1 else o,
}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", PLACES)
def test_hooks_that_depend_on_the_place_in_a_pass_verify_no_blocks(pair, name, kept):
    """They would change a block differently than its tokens one by one."""
    hooks = {size: block_pilot(pair, block_size=size) for size in (1, 5)}
    if kept:
        generate(pair, custom_generate=hooks[5])
    pair.target.model.layers[1].register_forward_hook(PLACES[name])
    expected = generate(pair)
    assert torch.equal(generate(pair, custom_generate=hooks[1]), expected)
    with pytest.raises(BlockPilotError, match="decode with block size 1"):
        generate(pair, custom_generate=hooks[5])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_dtype_is_followed_or_refused(pair, dtype):
    hook = block_pilot(pair.drafter, block_size=5)
    generate(pair, custom_generate=hook)
    pair.target.to(dtype)
    with pytest.raises(BlockPilotError, match="load both with the same dtype and device"):
        generate(pair, custom_generate=hook)
    pair.drafter.to(dtype)
    output = generate(pair, custom_generate=hook)
    if dtype == torch.float64:
        assert torch.equal(output, generate(pair))
    assert hook._decoder.target.head.dtype == dtype


@pytest.mark.parametrize("part", ["model.layers.1.mlp", "lm_head", "model.layers.0"])
def test_offloaded_weights_are_refused(pair, part):
    kept = block_pilot(pair, block_size=5)
    generate(pair, custom_generate=kept)
    pair.target.get_submodule(part).to("meta")
    for hook in (kept, block_pilot(pair, block_size=5)):
        with pytest.raises(BlockPilotError, match="offloaded weights"):
            generate(pair, custom_generate=hook)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        # Such embeddings are scaled in place whenever they are read.
        (lambda m: setattr(m.model.embed_tokens, "max_norm", 0.1), "changed since this prefill"),
        (lambda m: m.model.layers.__setitem__(2, m.model.layers[1]), "cannot be decoded"),
        (lambda m: m.config.update({"num_attention_heads": 2, "head_dim": 16}), None),
        (lambda m: m.config.update({"num_key_value_heads": 4}), None),
    ],
)
def test_what_cannot_be_decoded_is_refused_and_what_changes_nothing_is_not(
    pair, change, message, kept
):
    hook, before = block_pilot(pair, block_size=5), generate(pair)
    if kept:
        generate(pair, custom_generate=hook)
    change(pair.target)
    if message is None:
        assert torch.equal(generate(pair, custom_generate=hook), before)
        return
    with pytest.raises(BlockPilotError, match=message):
        generate(pair, custom_generate=hook)


@pytest.mark.parametrize(
    "name", ["hook on a layer", "hook on the model", "wrapped layer", "forward of a layer"]
)
def test_features_and_prefill_include_what_hooks_change(pair, name):
    """Also after transformers has registered its own recording hooks, which then run first."""
    pair.target.model(encode(pair, "abc"), output_hidden_states=True)
    CUSTOMIZATIONS[name](pair.target)
    ids, read = encode(pair, "a b c d"), []
    # Hooks may change a layer's input on its way to the next one; a feature is what that one reads.
    handles = [
        pair.target.model.layers[index + 1].register_forward_pre_hook(
            lambda module, args, kwargs: read.append((args or [kwargs["hidden_states"]])[0]),
            with_kwargs=True,
        )
        for index in (0, 2)
    ]
    pair.target(ids)
    for handle in handles:
        handle.remove()
    prefill = Decoder(pair).prefill(ids, 8)
    torch.testing.assert_close(prefill.features, torch.cat(read, dim=-1))
    torch.testing.assert_close(prefill.logits, pair.target(ids).logits[0, -1])


@pytest.mark.parametrize(
    "name", [None, "hook on a layer", "hook on the model", "wrapped layer", "adapter on a linear"]
)
def test_threads_that_share_a_decoder_get_their_own_texts(pair, name):
    """Recording features in one thread shows in no other."""
    if name is not None:
        CUSTOMIZATIONS[name](pair.target)
    decoder, prompts = Decoder(pair), [encode(pair, text) for text in PROMPTS]
    expected = [decoder.generate(prompt, 5, BUDGET).tokens for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        for _ in range(8):
            found = pool.map(lambda prompt: decoder.generate(prompt, 5, BUDGET).tokens, prompts)
            assert list(found) == expected


@pytest.mark.parametrize("change", ["edit", "hook"])
def test_a_model_that_changes_after_prefill_is_refused(pair, change):
    decoder = Decoder(pair)
    prefill = decoder.prefill(encode(pair, "a b c d"), 8)
    if change == "edit":
        edit_data(pair.target)
    else:
        CUSTOMIZATIONS["hook on a layer"](pair.target)
    with pytest.raises(BlockPilotError, match="prefill again"):
        decoder.decode(prefill, 4)


@pytest.mark.parametrize("name", ["in place through .data", "hook on a linear", "a new layer"])
def test_a_stale_pass_records_nothing(pair, name):
    decoder = Decoder(pair)
    CHANGES[name](pair.target)
    with pytest.raises(BlockPilotError, match="changed since its pass was prepared"):
        continue_batch(decoder.target, [encode(pair, "abc")[0]], 4, ())
    decoder.refresh()
    assert continue_batch(decoder.target, [encode(pair, "abc")[0]], 4, ())


DRAFTER_EDITS = {
    "in place": lambda d: edit(d, "layers.0.mlp.up_proj.weight"),
    "in place in inference mode": lambda d: torch.inference_mode()(edit)(
        d, "layers.1.self_attn.k_proj.weight"
    ),
    ".data": lambda d: assign_data(d, "fc.weight"),
    "a norm": lambda d: edit(d, "hidden_norm.weight"),
    "state dict": lambda d: d.load_state_dict({k: v.flip(0) for k, v in d.state_dict().items()}),
    "rotary frequencies": lambda d: d.rotary_emb.inv_freq.mul_(0.3),
}


@pytest.mark.parametrize("name", DRAFTER_EDITS)
def test_a_changed_drafter_is_followed(pair, name):
    kept, ids = Decoder(pair), encode(pair, "a b c d")
    before = kept.generate(ids, 8, BUDGET)
    DRAFTER_EDITS[name](pair.drafter)
    after, expected = kept.generate(ids, 8, BUDGET), Decoder(pair).generate(ids, 8, BUDGET)
    assert after.tokens == before.tokens
    assert after.accepted == expected.accepted != before.accepted


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.layers[0].register_forward_hook(shrink), "a forward hook on layers.0"),
        (lambda d: d.fc.register_forward_pre_hook(shrink), "a forward pre-hook on fc"),
        (lambda d: patch_forward(d.layers[1].mlp), "a replaced forward on layers.1.mlp"),
        (lambda d: replace(d.layers[1].mlp, "up_proj", Adapter), "the module class Adapter on"),
    ],
)
def test_a_customized_drafter_is_refused_by_name(pair, change, named):
    kept = Decoder(pair)
    change(pair.drafter)
    for call in (lambda: Decoder(pair), lambda: kept.generate(encode(pair, "abc"), 5, 8)):
        with pytest.raises(BlockPilotError, match=named):
            call()


def test_a_target_without_changes_keeps_its_pass(pair):
    """Nothing is prepared again, also after transformers has registered its recording hooks."""
    decoder, ids = Decoder(pair), encode(pair, "a b c d")
    passes = decoder.target, decoder.drafter
    decoder.generate(ids, 5, 8)
    pair.target(ids, output_hidden_states=True)
    generate(pair, assistant_model=pair.drafter, speculation_type="dflash")
    decoder.generate(ids, 5, 8)
    assert (decoder.target, decoder.drafter) == passes
    assert type(decoder.target) is LeanForward


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (6, 6), (1, 9), (9, 1), (4, 2, 3), (12, 8)])
def test_a_snapshot_sees_every_row_and_column(shape):
    """Edits in inference mode change no version."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(shape))
    for dim in range(2):
        for index in range(module.weight.flatten(1).shape[dim]):
            snapshot = Snapshot(module)
            with torch.inference_mode():
                module.weight.data.flatten(1).select(dim, index).add_(1.0)
            assert not snapshot.is_current()
