#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "data/tokenizer.h"
#include "model/language_model.h"
#include "optim/adamw.h"

namespace switchyard {

// What training changes: parameters and buffers, through the model that uses them and the optimizer
// that updates them.
struct TrainableModel {
  TrainableModel(const Config& config, const Groups& groups);

  Parameters parameters;
  LanguageModel model;
  AdamW optimizer;

  // Everything above as parts of a checkpoint. They share memory with this object.
  std::vector<TensorPart> parts() const;
  // After the parts were filled from a checkpoint of `num_steps` steps.
  void after_load(int64_t num_steps);
};

// A model to evaluate or to generate with, out of a checkpoint.
struct LoadedModel {
  Config config;
  CheckpointRecord record;
  std::filesystem::path path;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<LanguageModel> model;
};

// Loads the weights of `path`: a checkpoint, a folder of them, or a run directory, whose latest
// good one is taken. The model has the settings that the checkpoint was saved with, in the layout
// of `groups`. Throws CheckpointError when there is none. Collective over the world.
LoadedModel load_model(const std::filesystem::path& path, const Groups& groups);

}  // namespace switchyard
