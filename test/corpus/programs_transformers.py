"""Programs of transformers: tiny configurations, eager and fused attention.

The models return records of many fields; a wrapper calls each one by keyword
and picks the tensors, since a trace can hold tensors, tuples and dicts only.
"""

from registry import program

TOKENS = "int64[B,12]{0:100}"
MASK = "int64[B,12]{0:2}"
# The names that most configurations share.
SIZES = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    vocab_size=100,
    max_position_embeddings=32,
)


def wrap(model, names, *fields, **options):
    """`model(name=argument, ...)`, and of what it returns these fields."""
    import torch.nn as nn

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            result = self.model(**dict(zip(names, inputs)), **options)
            picked = tuple(getattr(result, field) for field in fields)
            return picked[0] if len(picked) == 1 else picked

    return Wrapped()


def use(config, attention):
    config._attn_implementation = attention
    return config


@program
def hf_bert_eager():
    from transformers import BertConfig, BertModel

    model = BertModel(use(BertConfig(**SIZES), "eager"))
    return wrap(model, ["input_ids", "attention_mask"], "last_hidden_state", "pooler_output"), [
        TOKENS,
        MASK,
    ]


@program
def hf_bert_sdpa():
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(use(BertConfig(**SIZES), "sdpa"))
    return wrap(model, ["input_ids", "attention_mask"], "logits"), [TOKENS, MASK]


@program
def hf_distilbert():
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=100, max_position_embeddings=32, n_layers=2, n_heads=4, dim=32, hidden_dim=64
    )
    model = DistilBertModel(use(config, "sdpa"))
    return wrap(model, ["input_ids"], "last_hidden_state"), [TOKENS]


@program
def hf_roberta():
    from transformers import RobertaConfig, RobertaForTokenClassification

    config = RobertaConfig(**SIZES, pad_token_id=1)
    model = RobertaForTokenClassification(use(config, "eager"))
    return wrap(model, ["input_ids", "attention_mask"], "logits"), [TOKENS, MASK]


@program
def hf_electra():
    from transformers import ElectraConfig, ElectraModel

    config = ElectraConfig(**SIZES, embedding_size=16)
    model = ElectraModel(use(config, "eager"))
    return wrap(model, ["input_ids"], "last_hidden_state"), [TOKENS]


@program
def hf_albert():
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(**SIZES, embedding_size=16)
    model = AlbertModel(use(config, "sdpa"))
    return wrap(model, ["input_ids"], "last_hidden_state", "pooler_output"), [TOKENS]


@program
def hf_deberta_v2():
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        **SIZES, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"]
    )
    return wrap(DebertaV2Model(config), ["input_ids", "attention_mask"], "last_hidden_state"), [
        TOKENS,
        MASK,
    ]


def gpt2(attention):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return GPT2LMHeadModel(use(config, attention))


@program
def hf_gpt2_eager():
    return wrap(gpt2("eager"), ["input_ids"], "logits", use_cache=False), [TOKENS]


@program
def hf_gpt2_sdpa():
    return wrap(gpt2("sdpa"), ["input_ids", "attention_mask"], "logits", use_cache=False), [
        TOKENS,
        "int64[B,12]{1:2}",
    ]


@program
def hf_gpt_neo():
    from transformers import GPTNeoConfig, GPTNeoModel

    config = GPTNeoConfig(
        vocab_size=100,
        max_position_embeddings=32,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
    )
    model = GPTNeoModel(use(config, "eager"))
    return wrap(model, ["input_ids"], "last_hidden_state", use_cache=False), [TOKENS]


def t5_config():
    from transformers import T5Config

    return T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )


@program
def hf_t5_encoder():
    from transformers import T5EncoderModel

    return wrap(T5EncoderModel(t5_config()), ["input_ids"], "last_hidden_state"), [TOKENS]


@program
def hf_t5():
    from transformers import T5ForConditionalGeneration

    model = T5ForConditionalGeneration(t5_config())
    return wrap(model, ["input_ids", "decoder_input_ids"], "logits", use_cache=False), [
        TOKENS,
        "int64[B,5]{0:100}",
    ]


@program
def hf_bart():
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=100,
        max_position_embeddings=32,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    model = BartModel(use(config, "sdpa"))
    return wrap(model, ["input_ids", "decoder_input_ids"], "last_hidden_state", use_cache=False), [
        TOKENS,
        "int64[B,5]{3:100}",
    ]


@program
def hf_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**SIZES, num_key_value_heads=2)
    model = LlamaForCausalLM(use(config, "sdpa"))
    return wrap(model, ["input_ids"], "logits", use_cache=False), [TOKENS]


@program
def hf_mistral():
    from transformers import MistralConfig, MistralModel

    config = MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=4)
    model = MistralModel(use(config, "eager"))
    return wrap(model, ["input_ids", "attention_mask"], "last_hidden_state", use_cache=False), [
        TOKENS,
        "int64[B,12]{1:2}",
    ]


@program
def hf_qwen2():
    from transformers import Qwen2Config, Qwen2Model

    config = Qwen2Config(**SIZES, num_key_value_heads=2)
    model = Qwen2Model(use(config, "sdpa")).bfloat16()
    return wrap(model, ["input_ids"], "last_hidden_state", use_cache=False), [TOKENS]


@program
def hf_mixtral():
    """Experts: which tokens an expert sees is decided by data."""
    from transformers import MixtralConfig, MixtralModel

    config = MixtralConfig(
        **SIZES, num_key_value_heads=2, num_local_experts=3, num_experts_per_tok=2
    )
    config._experts_implementation = "eager"
    model = MixtralModel(use(config, "eager"))
    return wrap(model, ["input_ids"], "last_hidden_state", use_cache=False), [TOKENS]


@program
def hf_mamba():
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=100, hidden_size=32, state_size=4, num_hidden_layers=1)
    return wrap(MambaModel(config), ["input_ids"], "last_hidden_state", use_cache=False), [
        "int64[B,4]{0:100}"
    ]


@program
def hf_clip():
    from transformers import CLIPConfig, CLIPModel

    text = dict(SIZES, eos_token_id=99)
    vision = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = CLIPModel(use(config, "sdpa"))
    return wrap(model, ["input_ids", "pixel_values"], "image_embeds", "text_embeds"), [
        TOKENS,
        "float32[B,3,32,32]",
    ]


@program
def hf_whisper_encoder():
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=20,
    )
    model = WhisperEncoder(use(config, "sdpa"))
    return wrap(model, ["input_features"], "last_hidden_state"), ["float32[B,16,40]"]


VISION = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
)


@program
def hf_vit():
    from transformers import ViTConfig, ViTModel

    model = ViTModel(use(ViTConfig(**VISION), "sdpa"))
    return wrap(model, ["pixel_values"], "last_hidden_state", "pooler_output"), [
        "float32[B,3,32,32]"
    ]


@program
def hf_dinov2():
    """An image of another size: the position embedding is resampled."""
    from transformers import Dinov2Config, Dinov2Model

    model = Dinov2Model(use(Dinov2Config(**VISION), "eager"))
    return wrap(model, ["pixel_values"], "last_hidden_state"), ["float32[B,3,40,48]"]


@program
def hf_segformer():
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], decoder_hidden_size=16, num_labels=5
    )
    model = SegformerForSemanticSegmentation(config)
    return wrap(model, ["pixel_values"], "logits"), ["float32[B,3,64,64]"]


@program
def hf_wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    )
    model = Wav2Vec2Model(use(config, "eager"))
    return wrap(model, ["input_values"], "last_hidden_state"), ["float32[B,800]"]
