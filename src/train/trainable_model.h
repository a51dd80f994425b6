#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "data/tokenizer.h"
#include "model/language_model.h"
#include "optim/adamw.h"
#include "optim/partition.h"
#include "train/model_source.h"

namespace switchyard {

// What training changes: parameters and buffers, through the model that uses them and the optimizer
// that updates them.
struct TrainableModel {
  TrainableModel(const Config& config, const Groups& groups,
                 FirstValues first_values = FirstValues::kInitial);

  Parameters parameters;
  LanguageModel model;
  std::unique_ptr<Partition> partition;  // null where ranks divide neither gradients nor parameters
  AdamW optimizer;

  // Everything above as parts of a checkpoint. They share memory with this object.
  std::vector<TensorPart> parts() const;
  // After the parts were filled from a checkpoint of `num_steps` steps. Collective over the world.
  void after_load(int64_t num_steps);
};

// A model to use, with the settings it has where it comes from.
struct LoadedModel {
  Config config;
  ModelSource source;
  std::filesystem::path path;  // what was read
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<LanguageModel> model;

  // The one called `name` or, when that is empty, the one the model comes with. Throws ConfigError
  // when it comes with none, and for one with more tokens than the model.
  std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name = "") const;
};

struct LoadModelOptions {
  std::optional<Precision> precision;  // by default the one it was trained in; fp32 for others
  bool auxiliary_losses = true;        // false: the objective is the token loss alone
};

// Loads the weights of a Hugging Face directory, a checkpoint, a folder of them, or a run
// directory, whose latest good one is taken; in the layout of `groups`. Throws FileError when there
// is none. Collective over the world.
LoadedModel load_model(const std::filesystem::path& path, const Groups& groups,
                       const LoadModelOptions& options = {});

}  // namespace switchyard
