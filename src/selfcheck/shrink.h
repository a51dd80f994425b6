#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

struct SettingChange {
  std::string name;  // section.key
  std::string before;
  std::string after;
};

// A configuration made small enough for this machine, that still takes every branch of the one it
// came from.
struct ShrunkConfig {
  Config config;
  int64_t num_ranks = 1;
  std::vector<SettingChange> changes = {};
};

constexpr int64_t kMostSelfcheckRanks = 8;

// Keeps one layer of each kind (dense or experts, windowed or not, each mixture of moe.overrides),
// ties, norms, biases, groups, top_k, losses, dispatcher, recompute, and every parallel axis above
// 1, as its smallest prime factor, with as many layers as its pipeline stages need; of a pipeline
// layout, whether the first and the last stage have layers. Shrinks widths, heads, experts,
// repeated layers, vocabulary. Computes in fp64, with initial weights large enough that routing is
// far from uniform. The ranks are as few as the axes allow, twice that where it leaves room for
// data parallelism. Throws ConfigError when `config` breaks a rule, or its axes need more than
// kMostSelfcheckRanks.
ShrunkConfig shrink(const Config& config);

// A configuration whose model is made small in the same way and trained for two steps by one rank,
// in its own precision, with its own optimizer. A recipe is tried with it before there is data or a
// cluster. Throws ConfigError when `config` breaks a rule. data.train is left to the caller, whose
// tokens are below kShrunkVocabulary.
ShrunkConfig shrink_training(const Config& config);
constexpr int64_t kShrunkVocabulary = 320;  // bytes and their end of document, padded

}  // namespace switchyard
