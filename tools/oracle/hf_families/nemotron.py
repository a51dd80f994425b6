import torch

from . import draws

CLASS = "Nemotron"
GOLDEN = dict(
    dtype=torch.float32, whole=True,
    config=dict(vocab_size=48, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, norm_eps=1e-5, attention_bias=True, mlp_bias=True,
                bos_token_id=0, eos_token_id=1))


def randomise(name, tensor, noise):
    return 0.25 * noise if "norm" in name and name.endswith("weight") else None  # kept as w - 1


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="sometimes"), "attention_bias": draws.flag(rng),
              "mlp_bias": draws.flag(rng)}
    fields["norm_eps"] = fields.pop("rms_norm_eps")
    fields["hidden_act"] = rng.choice(["relu2", "relu2", "silu"])
    head_dim = fields.get("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if draws.flag(rng) or head_dim == 10:  # the half of 10, which is the standard, is odd
        fields["rope_parameters"]["partial_rotary_factor"] = draws.rotated_share(rng, head_dim)
    return fields
