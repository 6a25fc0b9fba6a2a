"""The architectures of transformers, from configuration, nothing downloaded; whole and with LoRA."""

from __future__ import annotations

import warnings

import pytest
import torch
from clipping.worlds import norms, per_record
from torch import nn

import engram

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'engram[text]'")
WORDS, WIDTH, LENGTH = 19, 16, 7
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Answers(nn.Module):
    """The logits alone, as the reference loop wants them."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return self.inner(input_ids=ids).logits


def gpt2(tied):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=16, tie_word_embeddings=tied,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=16,
        )
    )  # fmt: skip


def encoder(name):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
    )  # fmt: skip
    return getattr(transformers, f"{name}ForSequenceClassification")(config)


ARCHITECTURES = {
    "GPT-2, tied": lambda: gpt2(True),
    "GPT-2, untied": lambda: gpt2(False),
    "Llama": llama,
    "BERT": lambda: encoder("Bert"),
    "RoBERTa": lambda: encoder("Roberta"),
}


def with_lora(model):
    peft = pytest.importorskip("peft", reason="needs peft: pip install 'engram[text]'")
    sought = ["c_attn"] if "GPT2" in type(model).__name__ else ["q_proj", "v_proj", "query", "value"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft tells which way round GPT-2 stores its matrices
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=sought, init_lora_weights=False))
    return model


def made(name, lora):
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = ARCHITECTURES[name]()
        return Answers(with_lora(model) if lora else model).train()


def loss(out, _=None):
    return out.tanh().flatten(1).square().sum(1)


def ids(records=4):
    return torch.randint(3, WORDS, (records, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "LoRA"])
@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_norms_of_transformers_models(name, mode, lora):
    model, x = made(name, lora), ids()
    true = norms(per_record(model, x, loss))
    trainable = [p for p in model.parameters() if p.requires_grad]
    private = engram.private(
        model, torch.optim.AdamW(trainable, 1e-3), noise_multiplier=1.0, clip_norm=0.1, expected_batch=4, mode=mode
    )
    for n in (4, 3):
        private.backward(loss(model(x[:n])))
        torch.testing.assert_close(private.norms[:, 0], true[:n], rtol=2e-5, atol=0)
    private.step()


def test_no_layer_of_these_architectures_needs_the_slow_way():
    """Every layer is known by name, so that a new version of transformers cannot slow training down unseen."""
    from engram.clipping.replay import replayed

    for name in ARCHITECTURES:
        model = made(name, False)
        private = engram.private(
            model, torch.optim.SGD(model.parameters(), 1.0), noise_multiplier=0, clip_norm=1.0, expected_batch=4
        )
        assert [layer.name for layer in private.layers if layer.play is replayed] == []
