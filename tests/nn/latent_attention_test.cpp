#include "nn/latent_attention.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "model/rotary.h"
#include "nn/key_value_cache.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

Config latent_config(int64_t q_lora_rank, int64_t v_head_dim, bool is_interleaved) {
  Config config = small_config();
  config.model.num_query_groups = 0;
  config.mla = {.kv_lora_rank = 10,
                .q_lora_rank = q_lora_rank,
                .qk_nope_head_dim = 8,
                .qk_rope_head_dim = 4,
                .v_head_dim = v_head_dim};
  config.rope = {.type = RopeType::kYarn,
                 .interleaved = is_interleaved,
                 .factor = 4,
                 .original_max_position = 64,
                 .mscale = 0.8,
                 .mscale_all_dim = 0.6};
  return config;
}

ForwardContext context_of(const Config& config, const SequenceTable& table, at::ScalarType dtype) {
  Rotary rotary(config, dtype);
  return {table, rotary.table(32)};
}

const at::Tensor& leaf(const Parameters& parameters, const std::string& name, at::Tensor& holder) {
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      if (storage->pieces[i].name() == name) {
        holder = storage->piece(storage->leaf.detach(), i);
      }
    }
  }
  return holder;
}

// One head at a time, pairs of neighbours turned one by one.
at::Tensor reference(const Parameters& parameters, const Config& config, const at::Tensor& hidden,
                     const RotaryTable& rotary) {
  const auto weight = [&](const char* name) {
    at::Tensor found;
    return leaf(parameters, std::string("attention.") + name, found);
  };
  const MlaConfig& mla = config.mla;
  const auto normed = [&](const at::Tensor& x, const at::Tensor& gain) {
    return x * (x.square().mean(-1, true) + mla.norm_epsilon).rsqrt() * gain;
  };
  const int64_t half = mla.qk_rope_head_dim / 2;
  const at::Tensor cosine = rotary.cosine.narrow(0, 0, hidden.size(0));
  const at::Tensor sine = rotary.sine.narrow(0, 0, hidden.size(0));
  const auto turned = [&](const at::Tensor& x) {  // [tokens, qk_rope]
    at::Tensor out = at::empty_like(x);
    for (int64_t i = 0; i < half; ++i) {
      const int64_t a = config.rope.interleaved ? 2 * i : i;
      const int64_t b = config.rope.interleaved ? 2 * i + 1 : i + half;
      out.select(1, a).copy_(x.select(1, a) * cosine.select(1, i) -
                             x.select(1, b) * sine.select(1, i));
      out.select(1, b).copy_(x.select(1, b) * cosine.select(1, i) +
                             x.select(1, a) * sine.select(1, i));
    }
    return out;
  };
  const at::Tensor down = hidden.matmul(weight("kv_down").t());
  const at::Tensor latent = normed(down.narrow(1, 0, mla.kv_lora_rank), weight("kv_norm"));
  const at::Tensor k_rope = turned(down.narrow(1, mla.kv_lora_rank, mla.qk_rope_head_dim));
  const at::Tensor from =
      mla.q_lora_rank > 0 ? normed(hidden.matmul(weight("q_down").t()), weight("q_norm")) : hidden;
  const at::Tensor queries = weight(mla.q_lora_rank > 0 ? "q_up" : "q");
  const double magnitude = 0.1 * 0.6 * std::log(4.0) + 1;
  const at::Tensor unseen = at::ones({hidden.size(0), hidden.size(0)}, at::kBool).triu(1);
  at::Tensor sum = at::zeros_like(hidden);
  for (int64_t head = 0; head < config.model.num_attention_heads; ++head) {
    const at::Tensor q = from.matmul(queries[head].t());
    const at::Tensor kv = latent.matmul(weight("kv_up")[head].t());
    const at::Tensor scores = (q.narrow(1, 0, 8).matmul(kv.narrow(1, 0, 8).t()) +
                               turned(q.narrow(1, 8, 4)).matmul(k_rope.t())) *
                              (magnitude * magnitude / std::sqrt(12.0));
    const at::Tensor out = at::softmax(scores.masked_fill(unseen, -INFINITY), -1)
                               .matmul(kv.narrow(1, 8, mla.v_head_dim));
    sum = sum + out.matmul(weight("o").select(1, head).t());
  }
  return sum;
}

struct Made {
  std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters;
  LatentAttention layer;
  Made(const Config& config, Dtypes dtypes)
      : parameters(*groups, dtypes, 3), layer(Scope{parameters, "attention"}, config, 0) {}
};

TEST(LatentAttention, EqualsOneHeadAtATime) {
  for (const int64_t q_lora_rank : {0, 12}) {
    for (const int64_t v_head_dim : {6, 14}) {
      for (const bool is_interleaved : {false, true}) {
        const Config config = latent_config(q_lora_rank, v_head_dim, is_interleaved);
        const Made made(config, Dtypes::fp64());
        const at::NoGradGuard no_grad;
        at::manual_seed(5);
        const at::Tensor hidden = at::randn({7, 16}, at::kDouble);
        const ForwardContext context =
            context_of(config, SequenceTable::from_lengths({7}), at::kDouble);
        const at::Tensor got =
            made.layer.forward({hidden, Placement::invariant()}, context, nullptr).tensor;
        const at::Tensor expected = reference(made.parameters, config, hidden, context.rotary);
        EXPECT_LT((got - expected).abs().max().item<double>(), 1e-12);
        EXPECT_GT(expected.abs().max().item<double>(), 1e-2);
      }
    }
  }
}

// A prompt and then token by token, in the space of the latents.
void expect_decoding_equals_forward(Dtypes dtypes, double tolerance) {
  const Config config = latent_config(12, 6, true);
  const Made made(config, dtypes);
  const at::NoGradGuard no_grad;
  at::manual_seed(6);
  const at::Tensor hidden = at::randn({9, 16}, at::kDouble).to(dtypes.compute);
  ForwardContext context = context_of(config, SequenceTable::from_lengths({9}), dtypes.compute);
  const at::Tensor whole =
      made.layer.forward({hidden, Placement::invariant()}, context, nullptr).tensor;
  const std::unique_ptr<MixerCache> cache = made.layer.new_cache();
  const MixerCaches caches = {cache.get()};
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < 9;) {
    const int64_t length = begin == 0 ? 4 : 1;
    ForwardContext step = context_of(config, SequenceTable::from_lengths({length}), dtypes.compute);
    step.table.positions = step.table.positions + begin;
    parts.push_back(
        made.layer.forward({hidden.narrow(0, begin, length), Placement::invariant()}, step, &caches)
            .tensor);
    begin += length;
  }
  EXPECT_LT((at::cat(parts) - whole).abs().max().item<double>(), tolerance);
  const auto& kept = dynamic_cast<const KeyValueCache&>(*cache);
  EXPECT_EQ(kept.keys.size(2), 14);
  EXPECT_EQ(kept.values.numel(), 0);
}

TEST(LatentAttention, DecodingEqualsForward) {
  expect_decoding_equals_forward(Dtypes::fp64(), 1e-10);
  expect_decoding_equals_forward(Dtypes::fp32(), 1e-5);
}

}  // namespace
}  // namespace switchyard
