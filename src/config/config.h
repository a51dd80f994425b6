#pragma once

#include <string_view>
#include <tuple>

#include "config/sections.h"

namespace switchyard {

struct Config;

// A section of the file: its YAML key, the member of Config that holds it, what it is about.
template <class Section>
struct SectionEntry {
  std::string_view key;
  Section Config::*member;
  std::string_view help;
};
template <class Section>
SectionEntry(const char*, Section Config::*, const char*) -> SectionEntry<Section>;

// Every setting of a run. Read from YAML and the command line by config/load.h.
struct Config {
  RunConfig run;
  ModelConfig model;
  AttentionConfig attention;
  MlaConfig mla;
  RopeConfig rope;
  MoeConfig moe;
  RoutingConfig routing;
  MambaConfig mamba;
  DeltaNetConfig delta_net;
  MtpConfig mtp;
  MultipliersConfig multipliers;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;

  // Features of each head that rotary positions turn.
  int64_t rotary_dim() const {
    if (mla.is_used()) {
      return mla.qk_rope_head_dim;
    }
    return static_cast<int64_t>(static_cast<double>(model.head_size()) * rope.partial_factor);
  }

  static constexpr auto sections() {
    return std::tuple{
        SectionEntry{"run", &Config::run, "the run as a whole"},
        SectionEntry{"model", &Config::model, "shape of the decoder"},
        SectionEntry{"attention", &Config::attention, "attention of every layer"},
        SectionEntry{"mla", &Config::mla, "multi-head latent attention"},
        SectionEntry{"rope", &Config::rope, "rotary positions (RoPE)"},
        SectionEntry{"moe", &Config::moe, "experts and the router that chooses among them"},
        SectionEntry{"routing", &Config::routing,
                     "how training departs from sending each token to its best experts"},
        SectionEntry{"mamba", &Config::mamba, "Mamba-1 and Mamba-2 layers"},
        SectionEntry{"delta_net", &Config::delta_net, "gated delta net layers"},
        SectionEntry{"mtp", &Config::mtp, "multi-token prediction"},
        SectionEntry{"multipliers", &Config::multipliers,
                     "constant factors of activations, as in a maximal update parametrisation"},
        SectionEntry{"data", &Config::data, "text to train and evaluate on"},
        SectionEntry{"train", &Config::train, "length, batch and arithmetic of the training"},
        SectionEntry{"optimizer", &Config::optimizer, "AdamW and its learning rate"},
        SectionEntry{"parallel", &Config::parallel,
                     "how the work is divided over ranks; what is left over is data parallel"},
        SectionEntry{"checkpoint", &Config::checkpoint, "when the state is saved"},
        SectionEntry{"metrics", &Config::metrics, "what is written besides metrics.jsonl"},
    };
  }
};

}  // namespace switchyard
