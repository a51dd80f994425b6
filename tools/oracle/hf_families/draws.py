"""Parts of random configurations that families share. `rng` is a random.Random."""


def rope(rng, max_position):
    base = rng.choice([500.0, 10000.0, 1000000.0])
    kind = rng.choice(["default", "default", "linear", "dynamic", "llama3", "yarn"])
    parameters = {"rope_type": kind, "rope_theta": base}
    if kind != "default":
        parameters["factor"] = rng.choice([1.5, 2.0, 4.0, 8.0])
    if kind in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = rng.choice([16, 64, 256])
    if kind == "llama3":
        parameters.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "yarn" and rng.random() < 0.5:
        parameters.update(beta_fast=rng.choice([16.0, 32.0]), beta_slow=1.0, truncate=rng.random() < 0.5)
        if rng.random() < 0.5:
            parameters.update(mscale=0.8, mscale_all_dim=0.6)
    return parameters


def decoder(rng, head_dim=None):
    """Sizes, norm, ties and rotary positions. head_dim: "always" or "sometimes" a field of its own; else hidden size /
    heads."""
    kv_heads = rng.choice([1, 2, 4])
    heads = kv_heads * rng.choice([1, 2, 3])
    width = rng.choice([4, 8, 16, 10])
    has_own = head_dim == "always" or (head_dim == "sometimes" and rng.random() < 0.6)
    max_position = rng.choice([16, 64, 2048])
    fields = dict(
        vocab_size=257, hidden_size=rng.choice([16, 24, 40]) if has_own else heads * width,
        intermediate_size=rng.choice([12, 20, 36]), num_hidden_layers=rng.choice([1, 2, 3]),
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=max_position,
        rms_norm_eps=rng.choice([1e-6, 1e-5]), tie_word_embeddings=rng.random() < 0.4,
        rope_parameters=rope(rng, max_position),
        hidden_act=rng.choice(["silu", "silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"]),
        bos_token_id=0, eos_token_id=256, pad_token_id=None)  # the embedding of a pad token gets no gradient
    if has_own:
        fields["head_dim"] = width
    return fields


def rotated_share(rng, head_dim):
    """Of a head: an even number of its features."""
    return rng.choice(range(2, head_dim + 1, 2)) / head_dim


def experts(rng, number="num_experts", least_top_k=1):
    """least_top_k 2 where weights are divided by their sum: one expert of weight 1 gives the router no gradient, and
    there would be noise to compare."""
    count = rng.choice([2, 4, 7, 8])
    return {number: count, "num_experts_per_tok": rng.randint(least_top_k, min(count, 4))}


def window(rng):
    return rng.choice([2, 5, 9])


def flag(rng, share=0.5):
    return rng.random() < share
