#include "model/language_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/shape.h"
#include "nn/recompute.h"

namespace switchyard {
namespace {

constexpr Site kLossDenominator{"loss.denominator"};

std::vector<StageLayers> stages_over(const Group& pipeline, const Config& config) {
  if (pipeline.size() == 1) {
    return {{0, config.model.num_layers, true, true}};
  }
  check<ConfigError>(config.parallel.pipeline_size == pipeline.size(),
                     "parallel.pipeline_size is {}, the pipeline has {} ranks",
                     config.parallel.pipeline_size, pipeline.size());
  return pipeline_layout(config);
}

constexpr const char* kEmbeddingPart = "embedding";
constexpr const char* kHeadPart = "head";

void add_objective(at::Tensor& sum, const at::Tensor& term) {
  if (term.defined()) {
    sum = sum.defined() ? sum + term : term;
  }
}

// sum / weight, in a graph even where no token has a weight.
at::Tensor mean_loss(const at::Tensor& sum, double weight, Ledger& ledger) {
  return weight > 0 ? sum * ledger.scale(kLossDenominator, 1 / weight) : sum * 0;
}

}  // namespace

LanguageModel::LanguageModel(Parameters& parameters, const Config& config)
    : config_(config),
      parameters_(parameters),
      pipeline_(parameters.groups()[GroupName::kPipeline]),
      tensor_group_(parameters.groups().tensor()),
      num_context_ranks_(parameters.groups()[GroupName::kContext].size()),
      dtype_(parameters.dtypes().compute),
      ledger_(parameters.groups().ledger()),
      stages_(stages_over(pipeline_, config)),
      rotary_(config, dtype_) {
  if (config.attention.window > 0 && config.rope.window_base > 0) {
    window_rotary_.emplace(with_window_rope(config), dtype_);
  }
  std::vector<LayerSpec> specs = describe_layers(config);
  specs.insert(specs.end(), static_cast<size_t>(config.mtp.num_layers), LayerSpec(specs.back()));
  layers_.resize(specs.size());
  for (const LayerSpec& spec : specs) {
    moe_index_.push_back(spec.has_experts() ? std::ssize(num_experts_) : -1);
    if (spec.has_experts()) {
      num_experts_.push_back(spec.moe.num_experts);
    }
  }
  for (int64_t stage = pipeline_.rank(); stage < num_stages(); stage += pipeline_.size()) {
    make_stage(parameters, stages_[static_cast<size_t>(stage)], specs);
  }
}

void LanguageModel::make_stage(Parameters& parameters, const StageLayers& stage,
                               const std::vector<LayerSpec>& specs) {
  const bool is_shared = uses_embedding_at_the_end() && pipeline_.size() > 1;
  const bool uses_embedding =
      stage.has_embedding || (stage.has_head && uses_embedding_at_the_end());
  if (uses_embedding && embedding_ == nullptr) {
    embedding_ = std::make_unique<Embedding>(Scope{parameters, "embedding"}, config_,
                                             is_shared ? 2 : 1, stage.has_embedding ? 0 : 1);
  }
  for (int64_t i = stage.first; i < stage.end; ++i) {
    const auto layer = static_cast<size_t>(i);
    layers_[layer] = std::make_unique<DecoderLayer>(Scope{parameters, "layers"} / std::to_string(i),
                                                    config_, specs[layer]);
  }
  if (stage.has_head) {
    final_norm_ = std::make_unique<Norm>(Scope{parameters, "final_norm"}, config_.model,
                                         config_.parallel.sequence_parallel);
    head_ = std::make_unique<OutputHead>(Scope{parameters, "head"}, config_, embedding_.get());
    make_predictions(parameters, specs.back());
  }
}

void LanguageModel::make_predictions(Parameters& parameters, const LayerSpec& spec) {
  for (int64_t i = 0; i < config_.mtp.num_layers; ++i) {
    const Scope scope = Scope{parameters, "mtp"} / std::to_string(i);
    predictions_.push_back(std::make_unique<PredictionModule>(scope, config_));
    layers_[static_cast<size_t>(num_layers() + i)] =
        std::make_unique<DecoderLayer>(scope / "layer", config_, spec);
  }
}

bool LanguageModel::uses_embedding_at_the_end() const {
  return config_.model.tie_embeddings || config_.mtp.num_layers > 0;
}

int64_t LanguageModel::num_predictions() const {
  return config_.mtp.loss_coeff > 0 ? config_.mtp.num_layers : 0;
}

std::string LanguageModel::layer_part(size_t layer) const {
  return static_cast<int64_t>(layer) < num_layers() ? "layers." + std::to_string(layer) : kHeadPart;
}

void LanguageModel::check_is_whole() const {
  check<ConfigError>(pipeline_.size() == 1,
                     "this needs the whole model on every rank: parallel.pipeline_size must be 1");
}

void LanguageModel::check_is_in_memory() const {
  check_is_whole();
  check<ConfigError>(!parameters_.shards_parameters(),
                     "this needs the whole model on every rank: parallel.data_sharding must not be "
                     "parameters");
}

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
  if (window_rotary_.has_value()) {
    context.window_rotary = window_rotary_->table(longest);
  }
  if (!first_positions.empty()) {
    context.table.positions = table.positions.clone();
    for (int64_t i = 0; i < table.num_sequences(); ++i) {
      context.table.positions.narrow(0, table.starts[static_cast<size_t>(i)], table.length(i))
          .add_(first_of(i));
    }
  }
  return context;
}

LanguageModel::LayersOutput LanguageModel::forward_layers(LayerRange layers, const Placed& hidden,
                                                          const ForwardContext& context,
                                                          const RoutingMemos& memos) const {
  LayersOutput output{hidden, {}, {}};
  for (size_t i = layers.begin; i < layers.end; ++i) {
    const LayerMark mark(ledger_, static_cast<int64_t>(i));
    PartUse use(parameters_.part_listener(), layer_part(i), output.hidden.tensor);
    LayerOutput layer = layers_[i]->forward(output.hidden, context, memos[i]);
    use.ends_with(layer.hidden.tensor);
    output.hidden = layer.hidden;
    add_objective(output.objective, layer.objective);
    output.statistics.push_back(std::move(layer.statistics));
  }
  return output;
}

LanguageModel::LayersOutput LanguageModel::recompute_layers(LayerRange layers, const Placed& hidden,
                                                            const ForwardContext& context,
                                                            const RoutingMemos& memos) const {
  // Statistics come from the first run only; the second reuses the expert ids of the first.
  const auto statistics = std::make_shared<std::vector<MoeStatistics>>();
  const auto run = [this, layers, memos, statistics, context, placement = hidden.placement,
                    is_first = true](const std::vector<at::Tensor>& inputs) mutable {
    LayersOutput output = forward_layers(layers, {inputs[0], placement}, context, memos);
    if (std::exchange(is_first, false)) {
      *statistics = std::move(output.statistics);
    }
    return std::vector<at::Tensor>{output.hidden.tensor, output.objective};
  };
  const auto outputs = recompute(run, {hidden.tensor});
  return {{outputs[0], hidden.placement}, outputs[1], *statistics};
}

std::vector<LanguageModel::LayerRange> LanguageModel::recomputed_together(
    const StageLayers& stage) const {
  const TrainConfig& train = config_.train;
  const bool is_uniform =
      train.recompute == Recompute::kFull && train.recompute_method == RecomputeMethod::kUniform;
  const bool is_block =
      train.recompute == Recompute::kFull && train.recompute_method == RecomputeMethod::kBlock;
  const auto end = static_cast<size_t>(stage.end);
  const auto num_layers = static_cast<size_t>(train.recompute_layers);
  std::vector<LayerRange> ranges;
  for (auto begin = static_cast<size_t>(stage.first); begin < end; begin = ranges.back().end) {
    const bool is_in_block = is_block && ranges.size() < num_layers;
    ranges.push_back({begin, is_uniform ? std::min(end, begin + num_layers) : begin + 1,
                      is_uniform || is_in_block});
  }
  return ranges;
}

void LanguageModel::check_batch(const TokenBatch& batch) const {
  const int64_t num_tokens = batch.table.held.size();
  check_shares(batch.table);
  check_shape("tokens", batch.tokens, {num_tokens});
  check_shape("labels", batch.labels, {num_tokens});
  check_shape("loss weights", batch.weights, {num_tokens});
  const auto num_further = std::ssize(batch.further);
  check<ShapeError>(num_further == num_predictions() || !at::GradMode::is_enabled(),
                    "a batch that looks {} tokens further does not fit {} modules of multi-token "
                    "prediction",
                    num_further, num_predictions());
}

void LanguageModel::check_shares(const SequenceTable& table) const {
  check<ShapeError>(table.num_shares == num_context_ranks_,
                    "a batch divided into {} shares does not fit {} context-parallel ranks",
                    table.num_shares, num_context_ranks_);
}

std::vector<int64_t> LanguageModel::hidden_shape(const TokenBatch& batch) const {
  const int64_t num_tokens = batch.table.held.size();
  const bool is_cut = config_.parallel.sequence_parallel;
  const int64_t tokens_here =
      is_cut ? shard_range(num_tokens, tensor_group_.size(), tensor_group_.rank()).size()
             : num_tokens;
  return {tokens_here, config_.model.hidden_size};
}

ModelOutput LanguageModel::forward(const TokenBatch& batch, const Denominators& denominators,
                                   const RoutingMemos& memos) const {
  check_is_whole();
  return forward_stage(0, {}, batch, denominators, memos);
}

ModelOutput LanguageModel::forward_stage(int64_t stage, const at::Tensor& input,
                                         const TokenBatch& batch, const Denominators& denominators,
                                         const RoutingMemos& memos) const {
  const int64_t num_tokens = batch.table.held.size();
  check_batch(batch);
  ForwardContext context = context_for(batch.table, {}, denominators.tokens);
  context.is_training = at::GradMode::is_enabled();
  context.first_token = batch.first_token;

  const StageLayers& own = stages_.at(static_cast<size_t>(stage));
  const Placement placement = residual_placement(num_tokens);
  // A view: hooks of a leaf run before the gradients of parameters that were used with it are
  // there.
  Placed hidden =
      own.has_embedding ? embed(batch.tokens, placement) : Placed{input.view_as(input), placement};
  ModelOutput output;
  output.moe.resize(num_experts_.size());
  for (const LayerRange& layers : recomputed_together(own)) {
    LayersOutput part = layers.is_recomputed ? recompute_layers(layers, hidden, context, memos)
                                             : forward_layers(layers, hidden, context, memos);
    hidden = part.hidden;
    add_objective(output.objective, part.objective);
    for (size_t i = layers.begin; i < layers.end; ++i) {
      if (moe_index_[i] >= 0) {
        output.moe[static_cast<size_t>(moe_index_[i])] =
            std::move(part.statistics[i - layers.begin]);
      }
    }
  }
  if (own.has_head) {
    add_losses(hidden, batch, denominators, context, memos, output);
  } else {
    output.hidden = hidden.tensor;
  }
  return output;
}

Placed LanguageModel::embed(const at::Tensor& tokens, const Placement& placement) const {
  const PartUse use(parameters_.part_listener(), kEmbeddingPart, {});
  return embedding_->forward(tokens, placement);
}

std::vector<std::string> LanguageModel::parts_of_stage(int64_t stage) const {
  const StageLayers& own = stages_.at(static_cast<size_t>(stage));
  std::vector<std::string> parts;
  if (own.has_embedding || (own.has_head && uses_embedding_at_the_end())) {
    parts.emplace_back(kEmbeddingPart);
  }
  for (int64_t layer = own.first; layer < own.end; ++layer) {
    parts.push_back(layer_part(static_cast<size_t>(layer)));
  }
  if (own.has_head) {
    parts.emplace_back(kHeadPart);
  }
  return parts;
}

void LanguageModel::add_losses(const Placed& hidden, const TokenBatch& batch,
                               const Denominators& denominators, const ForwardContext& context,
                               const RoutingMemos& memos, ModelOutput& output) const {
  PartListener* const listener = parameters_.part_listener();
  PartUse use(listener, kHeadPart, hidden.tensor);
  std::optional<PartUse> use_of_embedding;
  if (uses_embedding_at_the_end()) {
    use_of_embedding.emplace(listener, kEmbeddingPart, hidden.tensor);
  }
  const Placed normed = final_norm_->forward(hidden);
  at::Tensor objective = language_loss(normed, batch, denominators, output);
  if (context.is_training && num_predictions() > 0) {
    objective = objective + prediction_losses(normed, batch, denominators, context, memos, output);
  }
  use.ends_with(objective);
  if (use_of_embedding) {
    use_of_embedding->ends_with(objective);
  }
  output.objective = output.objective.defined() ? objective + output.objective : objective;
}

at::Tensor LanguageModel::language_loss(const Placed& normed, const TokenBatch& batch,
                                        const Denominators& denominators,
                                        ModelOutput& output) const {
  const TokenLoss loss = head_->loss(normed, batch.labels, batch.weights);
  output.loss_sum = loss.weighted_sum.detach();
  output.token_losses = loss.per_token;
  return mean_loss(loss.weighted_sum, denominators.loss_weight, ledger_);
}

// Module after module, each from what the one before has made; with what their layers add to the
// objective.
at::Tensor LanguageModel::prediction_losses(Placed hidden, const TokenBatch& batch,
                                            const Denominators& denominators,
                                            const ForwardContext& context,
                                            const RoutingMemos& memos, ModelOutput& output) const {
  const double coefficient = config_.mtp.loss_coeff / static_cast<double>(num_predictions());
  at::Tensor objective;
  for (size_t i = 0; i < predictions_.size(); ++i) {
    const TokenBatch::Further& further = batch.further[i];
    const Placed input = predictions_[i]->join(embed(further.tokens, hidden.placement), hidden);
    const size_t layer = static_cast<size_t>(num_layers()) + i;
    const LayerRange range{layer, layer + 1, config_.train.recompute == Recompute::kFull};
    LayersOutput part = range.is_recomputed ? recompute_layers(range, input, context, memos)
                                            : forward_layers(range, input, context, memos);
    add_objective(objective, part.objective);
    if (moe_index_[layer] >= 0) {
      output.moe[static_cast<size_t>(moe_index_[layer])] = std::move(part.statistics.front());
    }
    hidden = predictions_[i]->finish(part.hidden);
    const TokenLoss loss = head_->loss(hidden, further.labels, further.weights);
    output.further_loss_sums.push_back(loss.weighted_sum.detach());
    add_objective(objective, coefficient * mean_loss(loss.weighted_sum,
                                                     denominators.further_weights.at(i), ledger_));
  }
  return objective;
}

DecodingCache LanguageModel::new_cache() const {
  DecodingCache cache;
  for (size_t i = 0; i < static_cast<size_t>(num_layers()); ++i) {
    cache.layers.push_back(layers_[i]->new_cache());
  }
  return cache;
}

at::Tensor LanguageModel::next_logits(const std::vector<std::vector<int64_t>>& tokens,
                                      std::vector<DecodingCache>& caches) const {
  check_is_in_memory();
  const at::NoGradGuard no_grad;
  std::vector<int64_t> row;
  std::vector<int64_t> lengths;
  std::vector<int64_t> first_positions;
  std::vector<int64_t> last;
  for (size_t i = 0; i < tokens.size(); ++i) {
    row.insert(row.end(), tokens[i].begin(), tokens[i].end());
    lengths.push_back(std::ssize(tokens[i]));
    first_positions.push_back(
        std::exchange(caches.at(i).length, caches[i].length + lengths.back()));
    last.push_back(std::ssize(row) - 1);
  }
  const auto num_tokens = std::ssize(row);
  const ForwardContext context =
      context_for(SequenceTable::from_lengths(lengths), first_positions, 1);
  Placed hidden = embedding_->forward(at::tensor(row, at::kLong), residual_placement(num_tokens));
  for (size_t i = 0; i < static_cast<size_t>(num_layers()); ++i) {
    std::vector<LayerCache*> of_layer;
    for (DecodingCache& cache : caches) {
      of_layer.push_back(&cache.layers.at(i));
    }
    hidden = layers_[i]->forward(hidden, context, std::make_shared<RoutingMemo>(), of_layer).hidden;
  }
  const Placed whole = convert(final_norm_->forward(hidden), Placement::invariant(), tensor_group_,
                               {"generate.last_token"});
  return head_->logits(
      {whole.tensor.index_select(0, at::tensor(last, at::kLong)), whole.placement});
}

at::Tensor LanguageModel::logits(const TokenBatch& batch) const {
  check_is_in_memory();
  const at::NoGradGuard no_grad;
  const ForwardContext context = context_for(batch.table, {}, 1);
  Placed hidden = embedding_->forward(batch.tokens, residual_placement(batch.table.held.size()));
  for (size_t i = 0; i < static_cast<size_t>(num_layers()); ++i) {
    hidden = layers_[i]->forward(hidden, context, std::make_shared<RoutingMemo>()).hidden;
  }
  return head_->logits(final_norm_->forward(hidden));
}

ExpertWork LanguageModel::take_expert_work() {
  ExpertWork work;
  for (const auto& layer : layers_) {
    if (layer != nullptr && layer->moe() != nullptr) {
      work.add(layer->moe()->take_expert_work());
    }
  }
  return work;
}

void LanguageModel::update_expert_biases(const std::vector<at::Tensor>& tokens_per_expert) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    MoeLayer* moe = layers_[i] == nullptr ? nullptr : layers_[i]->moe();
    if (moe != nullptr && moe->router().has_expert_bias()) {
      moe->router().update_expert_bias(tokens_per_expert.at(static_cast<size_t>(moe_index_[i])));
    }
  }
}

}  // namespace switchyard
