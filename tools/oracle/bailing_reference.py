"""Ling 2.0 (BailingMoeV2), which transformers has no class of: what modeling_bailing_moe_v2.py of inclusionAI's Ling-V2
computes, written anew and plainly, with the names that its directories have on disk. Only rotary frequencies are
transformers' own, as there. Modules of multi-token prediction are held and not run: logits do not hang on them."""

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeRotaryEmbedding


class BailingMoeV2Config(PreTrainedConfig):
    model_type = "bailing_moe_v2"

    vocab_size: int = 157184
    hidden_size: int = 2048
    intermediate_size: int = 5120
    num_hidden_layers: int = 20
    num_attention_heads: int = 16
    num_key_value_heads: int = 4
    hidden_act: str = "silu"
    use_qkv_bias: bool = False
    use_bias: bool = False
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    max_position_embeddings: int = 32768
    rope_parameters: dict | None = None
    num_experts: int = 256
    num_shared_experts: int | None = 1
    num_experts_per_tok: int = 8
    n_group: int = 8
    topk_group: int = 4
    moe_intermediate_size: int = 512
    first_k_dense_replace: int = 1
    head_dim: int = 128
    use_qk_norm: bool = True
    num_nextn_predict_layers: int = 0
    mtp_loss_scaling_factor: float = 0.0
    routed_scaling_factor: float = 1.0


class Norm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, values):
        return self.weight * values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + self.epsilon)


class Mlp(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden):
        return self.down_proj(self.activation(self.gate_proj(hidden)) * self.up_proj(hidden))


class Gate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.register_buffer("expert_bias", torch.zeros(config.num_experts))

    def forward(self, hidden):  # [tokens, hidden] -> weights and ids [tokens, top_k]
        config = self.config
        scores = torch.sigmoid(functional.linear(hidden, self.weight))
        biased = (scores + self.expert_bias).unflatten(-1, (config.n_group, -1))
        group_scores = biased.topk(2, dim=-1).values.sum(-1)
        kept = torch.zeros_like(group_scores, dtype=torch.bool)
        kept.scatter_(-1, group_scores.topk(config.topk_group, dim=-1).indices, True)
        biased = biased.masked_fill(~kept[..., None], float("-inf")).flatten(-2)
        ids = biased.topk(config.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(-1, ids)
        if config.num_experts_per_tok > 1:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * config.routed_scaling_factor, ids


class SparseMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = Gate(config)
        self.experts = nn.ModuleList(Mlp(config, config.moe_intermediate_size) for _ in range(config.num_experts))
        self.shared_experts = None
        if config.num_shared_experts is not None:
            self.shared_experts = Mlp(config, config.num_shared_experts * config.moe_intermediate_size)

    def forward(self, hidden):
        tokens = hidden.flatten(0, 1)
        weights, ids = self.gate(tokens)
        output = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            token, slot = (ids == index).nonzero(as_tuple=True)
            if len(token) > 0:
                output = output.index_add(0, token, expert(tokens[token]) * weights[token, slot, None])
        output = output.view_as(hidden)
        return output if self.shared_experts is None else output + self.shared_experts(hidden)


def rotated(heads, cosines, sines):  # [batch, heads, tokens, head_dim]; [batch, tokens, rotated features]
    cosines, sines = cosines[:, None], sines[:, None]
    turned, rest = heads.split([cosines.shape[-1], heads.shape[-1] - cosines.shape[-1]], dim=-1)
    first, second = turned.chunk(2, dim=-1)
    return torch.cat([turned * cosines + torch.cat([-second, first], dim=-1) * sines, rest], dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        heads = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        self.heads = heads
        self.query_key_value = nn.Linear(config.hidden_size, sum(heads) * config.head_dim, bias=config.use_qkv_bias)
        self.dense = nn.Linear(heads[0] * config.head_dim, config.hidden_size, bias=config.use_bias)
        if config.use_qk_norm:
            self.query_layernorm = Norm(config.head_dim, config.rms_norm_eps)
            self.key_layernorm = Norm(config.head_dim, config.rms_norm_eps)

    def forward(self, hidden, rotation, cache):
        joined = self.query_key_value(hidden).unflatten(-1, (sum(self.heads), -1)).transpose(1, 2)
        query, key, value = joined.split(self.heads, dim=1)
        if self.config.use_qk_norm:
            query, key = self.query_layernorm(query), self.key_layernorm(key)
        query, key = rotated(query, *rotation), rotated(key, *rotation)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
            cache[:] = key, value
        repeats = self.heads[0] // self.heads[1]
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        scores = query @ key.transpose(2, 3) / self.config.head_dim ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.dense((weights @ value).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        is_dense = index < config.first_k_dense_replace
        self.mlp = Mlp(config, config.intermediate_size) if is_dense else SparseMlp(config)

    def forward(self, hidden, rotation, cache=None):
        hidden = hidden + self.attention(self.input_layernorm(hidden), rotation, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class PredictionModule(Layer):
    def __init__(self, config, index):
        super().__init__(config, index)
        self.enorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.hnorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.final_layernorm = Norm(config.hidden_size, config.rms_norm_eps)


class BailingMoeV2Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_layers = config.num_hidden_layers
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            [*(Layer(config, index) for index in range(self.num_layers)),
             *(PredictionModule(config, self.num_layers + index) for index in range(config.num_nextn_predict_layers))])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Glm4MoeRotaryEmbedding(config)

    def forward(self, input_ids, caches=None):
        hidden = self.word_embeddings(input_ids)
        past = caches[0][0].shape[2] if caches and caches[0] else 0
        positions = past + torch.arange(input_ids.shape[1])[None]
        rotation = self.rotary_emb(hidden, positions)
        for index in range(self.num_layers):
            hidden = self.layers[index](hidden, rotation, None if caches is None else caches[index])
        return self.norm(hidden)


class BailingMoeV2ForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = BailingMoeV2Config
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.word_embeddings.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = BailingMoeV2Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.word_embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, use_cache=False, caches=None):
        return CausalLMOutputWithPast(logits=self.lm_head(self.model(input_ids, caches)))

    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens, eos_token_id, **_):
        """Greedily. Keys stay rotated as they were when they came."""
        caches = [[] for _ in range(self.model.num_layers)]
        new = input_ids
        for _ in range(max_new_tokens):
            new = self(new, caches=caches).logits[:, -1].argmax(-1, keepdim=True)
            input_ids = torch.cat([input_ids, new], dim=1)
            if (new == eos_token_id).all():
                break
        return input_ids
