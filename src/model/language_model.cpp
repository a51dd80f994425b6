#include "model/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/shape.h"
#include "nn/recompute.h"

namespace switchyard {
namespace {

constexpr Site kLossDenominator{"loss.denominator"};

std::vector<std::unique_ptr<DecoderLayer>> make_layers(const Scope& scope, const Config& config) {
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  for (const LayerSpec& spec : describe_layers(config)) {
    layers.push_back(
        std::make_unique<DecoderLayer>(scope / std::to_string(layers.size()), config, spec));
  }
  return layers;
}

}  // namespace

LanguageModel::LanguageModel(Parameters& parameters, const Config& config)
    : config_(config),
      embedding_(Scope{parameters, "embedding"}, config.model),
      layers_(make_layers(Scope{parameters, "layers"}, config)),
      final_norm_(Scope{parameters, "final_norm"}, config.model, config.parallel.sequence_parallel),
      head_(Scope{parameters, "head"}, config.model, embedding_),
      ledger_(parameters.groups().ledger()),
      rotary_(config, parameters.dtypes().compute) {}

RoutingMemos LanguageModel::new_memos(const RoutingMemos& earlier) const {
  RoutingMemos memos;
  for (size_t i = 0; i < layers_.size(); ++i) {
    memos.push_back(std::make_shared<RoutingMemo>());
    if (!earlier.empty()) {
      memos.back()->loads = earlier[i]->loads;
    }
  }
  return memos;
}

Placement LanguageModel::residual_placement(int64_t num_tokens) const {
  return config_.parallel.sequence_parallel ? Placement::sharded(0, num_tokens)
                                            : Placement::invariant();
}

ForwardContext LanguageModel::context_for(const SequenceTable& table,
                                          const std::vector<int64_t>& first_positions,
                                          double num_batch_tokens) const {
  const auto first_of = [&](int64_t sequence) {
    return first_positions.empty() ? 0 : first_positions[static_cast<size_t>(sequence)];
  };
  int64_t longest = 1;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    longest = std::max(longest, first_of(i) + table.length(i));
  }
  ForwardContext context{table, rotary_.table(longest), num_batch_tokens};
  if (!first_positions.empty()) {
    context.table.positions = table.positions.clone();
    for (int64_t i = 0; i < table.num_sequences(); ++i) {
      context.table.positions.narrow(0, table.starts[static_cast<size_t>(i)], table.length(i))
          .add_(first_of(i));
    }
  }
  return context;
}

LayerOutput LanguageModel::forward_layer(size_t index, const Placed& hidden,
                                         const ForwardContext& context,
                                         const std::shared_ptr<RoutingMemo>& memo) const {
  const DecoderLayer& layer = *layers_[index];
  if (config_.train.recompute == Recompute::kNone) {
    return layer.forward(hidden, context, *memo);
  }
  // Statistics come from the first run only; the second reuses the expert ids of the first.
  const auto statistics = std::make_shared<MoeStatistics>();
  const auto run = [&layer, memo, statistics, context, placement = hidden.placement,
                    is_first = true](const std::vector<at::Tensor>& inputs) mutable {
    const LayerOutput output = layer.forward({inputs[0], placement}, context, *memo);
    if (std::exchange(is_first, false)) {
      *statistics = output.statistics;
    }
    return std::vector<at::Tensor>{output.hidden.tensor, output.objective};
  };
  const auto outputs = recompute(run, {hidden.tensor});
  return {{outputs[0], hidden.placement}, outputs[1], *statistics};
}

ModelOutput LanguageModel::forward(const TokenBatch& batch, const Denominators& denominators,
                                   const RoutingMemos& memos) const {
  const int64_t num_tokens = batch.table.num_tokens;
  check_shape("tokens", batch.tokens, {num_tokens});
  check_shape("labels", batch.labels, {num_tokens});
  check_shape("loss weights", batch.weights, {num_tokens});
  ForwardContext context = context_for(batch.table, {}, denominators.tokens);
  context.is_training = at::GradMode::is_enabled();
  context.first_token = batch.first_token;

  ModelOutput output;
  Placed hidden = embedding_.forward(batch.tokens, residual_placement(num_tokens));
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerOutput layer = forward_layer(i, hidden, context, memos[i]);
    hidden = layer.hidden;
    if (layer.objective.defined()) {
      output.objective =
          output.objective.defined() ? output.objective + layer.objective : layer.objective;
    }
    if (layer.statistics.tokens_per_expert.defined()) {
      output.moe.push_back(std::move(layer.statistics));
    }
  }
  const TokenLoss loss = head_.loss(final_norm_.forward(hidden), batch.labels, batch.weights);
  output.loss_sum = loss.weighted_sum.detach();
  output.token_losses = loss.per_token;
  const at::Tensor language_loss =
      denominators.loss_weight > 0
          ? loss.weighted_sum * ledger_.scale(kLossDenominator, 1 / denominators.loss_weight)
          : loss.weighted_sum * 0;
  output.objective = output.objective.defined() ? language_loss + output.objective : language_loss;
  return output;
}

DecodingCaches LanguageModel::new_caches(int64_t num_sequences) const {
  return DecodingCaches(layers_.size(),
                        std::vector<KeyValueCache>(static_cast<size_t>(num_sequences)));
}

at::Tensor LanguageModel::next_logits(const std::vector<std::vector<int64_t>>& tokens,
                                      DecodingCaches& caches) const {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> row;
  std::vector<int64_t> lengths;
  std::vector<int64_t> first_positions;
  std::vector<int64_t> last;
  for (size_t i = 0; i < tokens.size(); ++i) {
    row.insert(row.end(), tokens[i].begin(), tokens[i].end());
    lengths.push_back(std::ssize(tokens[i]));
    first_positions.push_back(caches.at(0).at(i).length);
    last.push_back(std::ssize(row) - 1);
  }
  const auto num_tokens = std::ssize(row);
  const ForwardContext context =
      context_for(SequenceTable::from_lengths(lengths), first_positions, 1);
  Placed hidden = embedding_.forward(at::tensor(row, at::kLong), residual_placement(num_tokens));
  for (size_t i = 0; i < layers_.size(); ++i) {
    RoutingMemo memo;
    hidden = layers_[i]->forward(hidden, context, memo, &caches[i]).hidden;
  }
  const Placed whole = convert(final_norm_.forward(hidden), Placement::invariant(),
                               embedding_.tensor_group(), {"generate.last_token"});
  return head_.logits({whole.tensor.index_select(0, at::tensor(last, at::kLong)), whole.placement});
}

at::Tensor LanguageModel::next_logits(const at::Tensor& tokens,
                                      std::vector<KeyValueCache>& caches) const {
  const auto* first = tokens.const_data_ptr<int64_t>();
  DecodingCaches of_one;
  for (KeyValueCache& cache : caches) {
    of_one.push_back({std::move(cache)});
  }
  const at::Tensor logits =
      next_logits({std::vector<int64_t>(first, first + tokens.numel())}, of_one);
  for (size_t i = 0; i < caches.size(); ++i) {
    caches[i] = std::move(of_one[i][0]);
  }
  return logits[0];
}

at::Tensor LanguageModel::logits(const TokenBatch& batch) const {
  const at::NoGradGuard no_grad;
  const ForwardContext context = context_for(batch.table, {}, 1);
  Placed hidden = embedding_.forward(batch.tokens, residual_placement(batch.table.num_tokens));
  for (const auto& layer : layers_) {
    RoutingMemo memo;
    hidden = layer->forward(hidden, context, memo).hidden;
  }
  return head_.logits(final_norm_.forward(hidden));
}

void LanguageModel::update_expert_biases(const std::vector<at::Tensor>& tokens_per_expert) {
  size_t index = 0;
  for (const auto& layer : layers_) {
    if (layer->moe() == nullptr) {
      continue;
    }
    if (layer->moe()->router().has_expert_bias()) {
      layer->moe()->router().update_expert_bias(tokens_per_expert.at(index));
    }
    ++index;
  }
}

}  // namespace switchyard
