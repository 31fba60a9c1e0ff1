"""What `train_step.py` compares with: Transformers' models on torch, with ready inputs and labels."""

from collections.abc import Callable

import torch
import transformers as hf
from torch import nn

MASKED = 19
"""Of the 128 tokens of a row of BERT or ELECTRA."""


def masked(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(text, which tokens are masked, the text with them masked), each [rows, 128]."""
    text = torch.randint(1000, 30_000, (rows, 128))
    places = torch.rand(rows, 128).topk(MASKED).indices
    mask = torch.zeros(rows, 128, dtype=torch.bool).scatter(1, places, True)
    return text, mask, text.masked_fill(mask, 103)


def models_and_loss(work: str, attention: str) -> tuple[list[nn.Module], Callable[[], torch.Tensor]]:
    """(models, what computes their loss) of a work of `train_step.py`.

    Args:
      work: t5, bert, electra, gpt2, bart or vit.
      attention: eager or sdpa.
    """
    build = {"attn_implementation": attention}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    match work:
        case "t5":
            config = hf.T5Config(num_layers=6, dropout_rate=0.0, decoder_start_token_id=0, use_cache=False)
            model = hf.AutoModelForSeq2SeqLM.from_config(config, **build)
            x, y = torch.randint(5, 32_000, (8, 512)), torch.randint(5, 32_000, (8, 114))
            return [model], lambda: model(input_ids=x, labels=y).loss
        case "bert":
            sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
            model = hf.AutoModelForMaskedLM.from_config(hf.BertConfig(**sizes, **off), **build)
            text, mask, x = masked(8)
            y, valid = text.masked_fill(~mask, -100), torch.ones_like(x)
            return [model], lambda: model(input_ids=x, attention_mask=valid, labels=y).loss
        case "electra":
            return electra(build, off)
        case "gpt2":
            rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
            model = hf.AutoModelForCausalLM.from_config(hf.GPT2Config(**rates, use_cache=False), **build)
            x = torch.randint(5, 50_000, (2, 256))
            return [model], lambda: model(input_ids=x, labels=x).loss
        case "bart":
            sizes = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
            depths = {"encoder_layers": 6, "decoder_layers": 6}
            heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
            config = hf.BartConfig(**sizes, **depths, **heads, vocab_size=50_265, dropout=0.0, use_cache=False)
            model = hf.AutoModelForSeq2SeqLM.from_config(config, **build)
            x, y = torch.randint(5, 50_000, (4, 256)), torch.randint(5, 50_000, (4, 256))
            valid = torch.ones_like(x)
            return [model], lambda: model(input_ids=x, attention_mask=valid, labels=y).loss
        case "vit":
            sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000}
            model = hf.AutoModelForImageClassification.from_config(hf.ViTConfig(**sizes, **off), **build)
            x, y = torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))
            return [model], lambda: model(pixel_values=x, labels=y).loss
    raise ValueError(work)


def electra(build: dict[str, str], off: dict[str, float]) -> tuple[list[nn.Module], Callable[[], torch.Tensor]]:
    """The two networks, which share their embeddings, and the sum of their losses."""
    small = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 1}
    generator = hf.AutoModelForMaskedLM.from_config(hf.ElectraConfig(**small, **off), **build)
    discriminator = hf.AutoModelForPreTraining.from_config(hf.ElectraConfig(**off), **build)
    discriminator.electra.embeddings = generator.electra.embeddings
    text, mask, x = masked(16)
    y, valid, places = text.masked_fill(~mask, -100), torch.ones_like(x), mask.nonzero(as_tuple=True)

    def loss() -> torch.Tensor:
        filled = generator(input_ids=x, attention_mask=valid, labels=y)
        with torch.no_grad():
            logits = filled.logits[places]
            noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_(1e-9, 1 - 1e-7)))
            read = x.index_put(places, (logits + noise).argmax(-1))
        detection = discriminator(input_ids=read, attention_mask=valid, labels=(read != text).float())
        return filled.loss + 50.0 * detection.loss

    return [generator, discriminator], loss
