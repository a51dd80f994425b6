#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "train/trainable_model.h"

namespace switchyard {

// What a model makes of given tokens, for comparison with other programs.
struct ForwardResult {
  at::Tensor logits;  // [batch, sequence, vocab] fp32
  at::Tensor loss;    // [1] mean over the labelled tokens; undefined without labels
  // By the names and in the shapes of the Hugging Face directory that the model came from or, for
  // one made from scratch, of the family that can express it; fp32. Empty unless asked for.
  std::map<std::string, at::Tensor> gradients;
};

// tokens [batch, sequence] int64; labels the same or undefined: labels[i] is the target of position
// i, -100 is none. Gradients are those of the loss, without the auxiliary terms of training, so the
// model must have been loaded without them (LoadModelOptions::auxiliary_losses). Throws ConfigError
// for tokens or labels outside the vocabulary. For one rank.
ForwardResult run_forward(LoadedModel& loaded, const at::Tensor& tokens, const at::Tensor& labels,
                          bool with_gradients);

// The same from a safetensors file with "tokens" and, if there are any, "labels", into one with
// "logits", "loss" and "grad.<name>". Throws FileError that names the file and the tensor.
void run_forward_on_file(LoadedModel& loaded, const std::filesystem::path& tokens,
                         const std::filesystem::path& out, bool with_gradients);

}  // namespace switchyard
