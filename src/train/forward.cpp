#include "train/forward.h"

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/safetensors.h"
#include "hub/origin.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

constexpr int64_t kNoLabel = -100;

void check_ids(const char* what, const at::Tensor& ids, int64_t smallest, int64_t vocab_size) {
  if (ids.numel() == 0) {
    return;
  }
  const auto low = ids.min().item<int64_t>();
  const auto high = ids.max().item<int64_t>();
  check<ConfigError>(low >= smallest && high < vocab_size,
                     "{} are from {} to {}: the model's vocabulary is from 0 to {}", what, low,
                     high, vocab_size - 1);
}

TokenBatch batch_of(const at::Tensor& tokens, const at::Tensor& labels) {
  TokenBatch batch;
  batch.tokens = tokens.reshape({-1});
  const at::Tensor targets = labels.defined() ? labels.reshape({-1}) : batch.tokens;
  const at::Tensor is_labelled = targets.ne(kNoLabel);
  batch.labels = targets.where(is_labelled, at::zeros({1}, at::kLong));
  batch.weights = is_labelled.to(at::kFloat);
  batch.table = SequenceTable::from_lengths(
      std::vector<int64_t>(static_cast<size_t>(tokens.size(0)), tokens.size(1)));
  return batch;
}

Origin naming_of(const LoadedModel& loaded) {
  if (loaded.source.record.origin.empty()) {
    return origin_from_scratch(loaded.config, "", at::kFloat);
  }
  return origin_from_json(loaded.source.record.origin, loaded.path.string());
}

// Logical gradients, one whole tensor per logical parameter.
std::map<std::string, at::Tensor> logical_gradients(const Parameters& parameters) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      const at::Tensor& whole = storage->gradient.defined()
                                    ? storage->gradient
                                    : at::zeros_like(storage->leaf, storage->master.options());
      gradients[storage->pieces[i].name()] = storage->piece(whole, i);
    }
  }
  return gradients;
}

std::map<std::string, at::Tensor> named_gradients(const LoadedModel& loaded) {
  const Origin origin = naming_of(loaded);
  std::map<std::string, MappedTensor> mapped;
  for (MappedTensor& tensor : map_tensors(*origin.family, logical_shapes(loaded.config))) {
    std::string name = tensor.name;
    mapped.emplace(std::move(name), std::move(tensor));
  }
  const auto logical = logical_gradients(*loaded.parameters);
  std::map<std::string, at::Tensor> named;
  for (const HfTensor& tensor : origin.tensors) {
    const auto found = mapped.find(tensor.name);
    if (found == mapped.end() || !logical.contains(found->second.parts.front().logical)) {
      continue;  // dropped, or a buffer
    }
    const at::Tensor values = at::empty(tensor.shape, at::kFloat);
    for (const MappedPart& part : found->second.parts) {
      at::Tensor gradient = logical.at(part.logical);
      for (size_t dim = 0; dim < part.box.start.size(); ++dim) {
        gradient =
            gradient.narrow(static_cast<int64_t>(dim), part.box.start[dim], part.box.shape[dim]);
      }
      part.in(values).copy_(gradient);
    }
    named[tensor.name] = values;
  }
  return named;
}

// `smallest`: the one that is not a token, if there is one, else 0.
at::Tensor read_ids(const SafetensorsFile& file, const std::string& name, int64_t smallest,
                    int64_t vocab_size) {
  at::Tensor ids = file.tensor(name);
  check<FileError>(ids.scalar_type() == at::kLong && ids.dim() == 2 && ids.numel() > 0,
                   "{}: \"{}\" is {} [{}]: expected I64 [batch, sequence], none of them 0",
                   file.path().string(), name, safetensors_dtype(ids.scalar_type()),
                   fmt::join(ids.sizes(), ", "));
  const at::Tensor is_wrong =
      ids.ge(vocab_size).logical_or(ids.lt(0).logical_and(ids.ne(smallest)));
  if (is_wrong.any().item<bool>()) {
    throw FileError(fmt::format("{}: \"{}\" holds {}: the model's vocabulary is from 0 to {}",
                                file.path().string(), name,
                                ids.masked_select(is_wrong)[0].item<int64_t>(), vocab_size - 1));
  }
  return ids;
}

struct TokensFile {
  at::Tensor tokens;  // [batch, sequence] int64
  at::Tensor labels;  // the same, or undefined
};

TokensFile read_tokens(const std::filesystem::path& path, int64_t vocab_size, bool with_gradients) {
  const SafetensorsFile file(path);
  TokensFile read;
  read.tokens = read_ids(file, "tokens", 0, vocab_size);
  if (file.find("labels") == nullptr) {
    check<FileError>(!with_gradients, "{}: has no \"labels\": gradients are those of a loss",
                     path.string());
    return read;
  }
  read.labels = read_ids(file, "labels", kNoLabel, vocab_size);
  check<FileError>(read.labels.sizes() == read.tokens.sizes(),
                   "{}: \"labels\" is [{}], \"tokens\" is [{}]: each token has a label",
                   path.string(), fmt::join(read.labels.sizes(), ", "),
                   fmt::join(read.tokens.sizes(), ", "));
  check<FileError>(read.labels.ne(kNoLabel).any().item<bool>(),
                   "{}: every one of \"labels\" is {}, which is no label: there is no loss",
                   path.string(), kNoLabel);
  return read;
}

}  // namespace

ForwardResult run_forward(LoadedModel& loaded, const at::Tensor& tokens, const at::Tensor& labels,
                          bool with_gradients) {
  check_shape("tokens", tokens, {kAnySize, kAnySize});
  const int64_t vocab_size = loaded.config.model.vocab_size;
  check_ids("tokens", tokens, 0, vocab_size);
  const TokenBatch batch = batch_of(tokens, labels);
  ForwardResult result;
  result.logits =
      loaded.model->logits(batch).to(at::kFloat).view({tokens.size(0), tokens.size(1), vocab_size});
  if (!labels.defined()) {
    check<ConfigError>(!with_gradients, "gradients need labels");
    return result;
  }
  check_shape("labels", labels, {tokens.size(0), tokens.size(1)});
  check_ids("labels", labels.masked_select(labels.ne(kNoLabel)), 0, vocab_size);
  const StepOutcome outcome = compute_gradients(*loaded.model, *loaded.parameters, {batch});
  result.loss = at::full({1}, outcome.loss(), at::kDouble).to(at::kFloat);
  if (with_gradients) {
    result.gradients = named_gradients(loaded);
  }
  return result;
}

void run_forward_on_file(LoadedModel& loaded, const std::filesystem::path& tokens,
                         const std::filesystem::path& out, bool with_gradients) {
  const TokensFile read = read_tokens(tokens, loaded.config.model.vocab_size, with_gradients);
  const ForwardResult result = run_forward(loaded, read.tokens, read.labels, with_gradients);
  std::map<std::string, at::Tensor> written{{"logits", result.logits}};
  if (result.loss.defined()) {
    written["loss"] = result.loss;
  }
  for (const auto& [name, gradient] : result.gradients) {
    written["grad." + name] = gradient;
  }
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [name, tensor] : written) {
    declarations.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(out, declarations);
  for (const auto& [name, tensor] : written) {
    writer.write(tensor.contiguous());
  }
  writer.finish();
}

}  // namespace switchyard
