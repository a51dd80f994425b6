import torch

from . import draws

CLASS = "Llama"
GOLDEN = dict(
    dtype=torch.float16,
    config=dict(head_dim=8, attention_bias=True, mlp_bias=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=256)))


def draw(rng):
    fields = draws.decoder(rng, head_dim="sometimes")
    if "head_dim" in fields and fields["hidden_size"] % fields["num_attention_heads"]:
        fields["hidden_size"] = 4 * fields["num_attention_heads"]
    return {**fields, "attention_bias": draws.flag(rng), "mlp_bias": draws.flag(rng)}
