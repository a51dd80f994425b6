#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "hub/hf_model.h"

namespace switchyard {

struct ConversionProgress {
  int64_t num_tensors = 0;
  int64_t num_bytes = 0;
  int64_t tensors_done = 0;
  int64_t bytes_done = 0;
};
using ReportProgress = std::function<void(const ConversionProgress&)>;

// Turns a Hugging Face directory into a checkpoint of step 0: the same bytes under logical names,
// one tensor at a time, with its configuration and what is needed to hand the directory back.
// `model` comes from open_hf_model(), so every tensor is consumed exactly once and every logical
// element is written exactly once. The checkpoint appears whole or not at all. Throws FileError.
void import_model(const HfModel& model, const std::filesystem::path& checkpoint,
                  const ReportProgress& report);

}  // namespace switchyard
