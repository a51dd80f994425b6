#pragma once

#include "config/config.h"

namespace switchyard {

// Floating point operations of the matrix products of one training step's forward and backward,
// over all ranks: 2 per multiply-add, backward twice the forward, causal attention counted as the
// half that is needed, a scan as its recurrence (writing the state and reading it), each token
// through its top_k experts. Nothing recomputed counts: useful work only.
double training_flops(const Config& config, double num_tokens, double sequence_length);

}  // namespace switchyard
