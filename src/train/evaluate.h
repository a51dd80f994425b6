#pragma once

#include <cstdint>

#include "data/evaluation_data.h"
#include "model/language_model.h"
#include "train/train_step.h"

namespace switchyard {

// Mean loss over held-out data, weighted by tokens, every label once: sums over all ranks. At most
// `max_sequences` of it (0: all). Independent of the layout and of `micro_batch_size` but for
// rounding. Collective over the world.
EvalOutcome evaluate(const LanguageModel& model, const EvaluationData& data,
                     int64_t micro_batch_size, int64_t max_sequences, const Groups& groups);

}  // namespace switchyard
