#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/token_batch.h"
#include "config/config.h"
#include "nn/parameters.h"
#include "parallel/mesh.h"
#include "selfcheck/expert_choices.h"
#include "selfcheck/logical_tensors.h"

namespace switchyard {

// A few optimizer steps of a small model on random text, all ranks threads of this process: what is
// run in one layout and on one rank, and must agree.

constexpr int64_t kLayoutRunSteps = 3;

struct LayoutRun {
  Config config;  // of a small model; its parallel section is the layout
  int64_t num_ranks = 1;
  // Of each step, over all ranks; a multiple of the data-parallel ranks.
  int64_t num_micro_batches = 4;
  std::string removed_site = {};  // for mutation tests: see Ledger
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

// The same run on one rank.
LayoutRun on_one_rank(LayoutRun run);

// The collectives that the ranks made and the scales that they asked for, each name once.
struct LayoutRunSites {
  std::vector<std::string> collectives;
  std::vector<std::string> scales;
};

// The first step's gradients alone, in fp32, with the choices of experts that `choices` has: a run
// on one rank records them, another replays them. Adds to `result` "grad.NAME", "loss.first" and
// "grad_norm.first". `count_flips`: runs a pass with free choices before, and counts how many
// differ.
void run_first_step_in_fp32(LayoutRun run, ExpertChoices& choices, LogicalTensors& result,
                            bool count_flips = false);

// Runs it and adds to `result` everything that must not depend on the layout: "grad.NAME" of the
// first step; "weight.NAME" and "buffer.NAME" after the last; per step "loss.N", "grad_norm.N" and
// each auxiliary term, "load.N.LAYER" and "dropped.N". Throws the first error of a rank.
LayoutRunSites run_layout(const LayoutRun& run, LogicalTensors& result);

// Sequences of the given lengths with random tokens, as one micro-batch, padded at the end; some
// labels are ignored, weights differ. The same for the same seed.
TokenBatch random_batch(const Config& config, const std::vector<int64_t>& lengths, int64_t padding,
                        uint64_t seed);

// Gives parameters that start as zeros or ones values of their own, so that one that is dropped
// shows; the same in every layout.
void randomize_constant_parameters(Parameters& parameters);

}  // namespace switchyard
