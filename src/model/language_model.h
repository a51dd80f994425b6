#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/token_batch.h"
#include "config/pipeline_layout.h"
#include "model/decoder_layer.h"
#include "model/prediction_module.h"
#include "model/rotary.h"
#include "nn/embedding.h"
#include "nn/output_head.h"

namespace switchyard {

// Sums over the whole global batch, over all ranks and accumulation steps. The objective divides by
// them, so that neither the loss nor its gradient depends on how the batch is cut.
struct Denominators {
  double loss_weight = 1;  // sum of the tokens' loss weights
  double tokens = 1;       // real tokens
  // The first of these for what each module of multi-token prediction foretells: what has no label
  // that far behind it does not count.
  std::vector<double> further_weights = {};
};

struct ModelOutput {
  // [] to call backward() on: this micro-batch's part of the one objective,
  //   sum of weight x token loss / loss_weight + auxiliary terms,
  // among these mtp.loss_coeff x the mean over the modules of multi-token prediction of the same
  // quotient of each.
  // Equal over tp in its first term; each rank has its part of the auxiliary terms. Of a pipeline
  // stage, its own terms; undefined without any.
  at::Tensor objective;
  // Of all but the last pipeline stage: what the next one begins with, as hidden_shape() says; with
  // gradient.
  at::Tensor hidden;
  // Of the last stage, else undefined.
  at::Tensor loss_sum;      // [] sum of weight x token loss of this micro-batch, without gradient
  at::Tensor token_losses;  // [tokens] without gradient
  std::vector<at::Tensor> further_loss_sums;  // as loss_sum, of each module; none out of training
  std::vector<MoeStatistics> moe;  // one per MoE layer of the model; empty in other stages' layers
};

// One RoutingMemo per layer (unused by dense ones).
using RoutingMemos = std::vector<std::shared_ptr<RoutingMemo>>;

// What a model keeps of one sequence while it generates.
struct DecodingCache {
  int64_t length = 0;  // tokens met
  std::vector<LayerCache> layers;
};

// A decoder-only language model, built from a list of layer descriptions.
// Parameter names: embedding.weight, layers.N.…, final_norm.weight, head.weight; of multi-token
// prediction mtp.N.… and mtp.N.layer.…
//
// Over pipeline ranks, each makes the stages that pipeline_layout() gives it, under the same names.
// The last rank makes a copy of the embedding where it is tied, or modules of multi-token
// prediction, which are all there, use it.
class LanguageModel {
 public:
  // Declares its parameters in `parameters`, which must outlive the model. Throws ConfigError when
  // the pipeline has not parallel.pipeline_size ranks; one rank makes the whole model, whatever is
  // set.
  LanguageModel(Parameters& parameters, const Config& config);

  // Fresh memos, for a pass that routes by itself. `earlier`: those of an earlier accumulation step
  // of the same optimizer step, whose loads count for the global balance loss; or none.
  RoutingMemos new_memos(const RoutingMemos& earlier = {}) const;

  // While gradients are recorded this is training: router noise, capacity and auxiliary terms exist
  // in training only. Collective as its layers are, in training also over dp. `memos` replays
  // expert ids that are set, and receives the others. `batch` is this rank's share among the ranks
  // of cp, which all make this call (TokenBatch::share); another is refused with a ShapeError. For
  // a model that is not over pipeline ranks.
  ModelOutput forward(const TokenBatch& batch, const Denominators& denominators,
                      const RoutingMemos& memos) const;
  ModelOutput forward(const TokenBatch& batch, const Denominators& denominators) const {
    return forward(batch, denominators, new_memos());
  }

  // One stage of this rank, between 0 and num_stages(). `hidden`: what the stage before has made,
  // or undefined in the first.
  ModelOutput forward_stage(int64_t stage, const at::Tensor& hidden, const TokenBatch& batch,
                            const Denominators& denominators, const RoutingMemos& memos) const;
  int64_t num_stages() const { return std::ssize(stages_); }  // of all ranks
  // The parts whose parameters a stage of this rank uses: see PartListener.
  std::vector<std::string> parts_of_stage(int64_t stage) const;
  // Of what passes between stages: [tokens here, hidden], in hidden_dtype().
  std::vector<int64_t> hidden_shape(const TokenBatch& batch) const;
  at::ScalarType hidden_dtype() const { return dtype_; }
  const Group& pipeline() const { return pipeline_; }

  // Appends `tokens`, some for each sequence, to the sequences that `caches` hold, and returns the
  // logits that follow each. [sequences, vocab] fp32. For generation: no gradient. Nothing crosses
  // between sequences, so that one among others gives what it gives alone.
  at::Tensor next_logits(const std::vector<std::vector<int64_t>>& tokens,
                         std::vector<DecodingCache>& caches) const;
  DecodingCache new_cache() const;
  // Logits of every token of a batch, [tokens, vocab] fp32. No gradient.
  at::Tensor logits(const TokenBatch& batch) const;

  // Once per optimizer step: moves the selection biases by the step's loads. tokens_per_expert: one
  // [num_experts] int64 per MoE layer, summed over the global batch. Not collective.
  void update_expert_biases(const std::vector<at::Tensor>& tokens_per_expert);

  // Of the routed experts of all layers of this rank, since the last call.
  ExpertWork take_expert_work();

  int64_t num_layers() const { return config_.model.num_layers; }
  // Modules that foretell further tokens in training, whose batches must have looked so far.
  int64_t num_predictions() const;
  // Of each MoE layer of the model, of all stages.
  const std::vector<int64_t>& num_experts() const { return num_experts_; }

 private:
  void make_stage(Parameters& parameters, const StageLayers& stage,
                  const std::vector<LayerSpec>& specs);
  void make_predictions(Parameters& parameters, const LayerSpec& spec);
  bool uses_embedding_at_the_end() const;
  std::string layer_part(size_t layer) const;
  void check_batch(const TokenBatch& batch) const;
  void check_is_whole() const;
  void check_is_in_memory() const;
  Placed embed(const at::Tensor& tokens, const Placement& placement) const;
  void add_losses(const Placed& hidden, const TokenBatch& batch, const Denominators& denominators,
                  const ForwardContext& context, const RoutingMemos& memos,
                  ModelOutput& output) const;
  at::Tensor language_loss(const Placed& normed, const TokenBatch& batch,
                           const Denominators& denominators, ModelOutput& output) const;
  at::Tensor prediction_losses(Placed hidden, const TokenBatch& batch,
                               const Denominators& denominators, const ForwardContext& context,
                               const RoutingMemos& memos, ModelOutput& output) const;
  Placement residual_placement(int64_t num_tokens) const;
  void check_shares(const SequenceTable& table) const;
  // `first_positions`: of each sequence; empty for zeros.
  ForwardContext context_for(const SequenceTable& table,
                             const std::vector<int64_t>& first_positions,
                             double num_batch_tokens) const;
  struct LayerRange {
    size_t begin;
    size_t end;
    bool is_recomputed;  // as one
  };
  struct LayersOutput {
    Placed hidden;
    at::Tensor objective;                   // the sum over the layers; undefined without any
    std::vector<MoeStatistics> statistics;  // per layer
  };

  // A stage's layers in order, by what train.recompute says of them.
  std::vector<LayerRange> recomputed_together(const StageLayers& stage) const;
  LayersOutput forward_layers(LayerRange layers, const Placed& hidden,
                              const ForwardContext& context, const RoutingMemos& memos) const;
  LayersOutput recompute_layers(LayerRange layers, const Placed& hidden,
                                const ForwardContext& context, const RoutingMemos& memos) const;

  Config config_;
  const Parameters& parameters_;
  const Group& pipeline_;
  const Group& tensor_group_;
  int64_t num_context_ranks_;
  at::ScalarType dtype_;
  Ledger& ledger_;
  std::vector<StageLayers> stages_;   // of all ranks
  std::vector<int64_t> num_experts_;  // per MoE layer of all ranks
  std::vector<int64_t> moe_index_;    // of each layer among the MoE layers; -1 where dense
  // Null where they are on other pipeline ranks.
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;  // then those of multi-token prediction
  std::vector<std::unique_ptr<PredictionModule>> predictions_;  // none on other ranks
  std::unique_ptr<Norm> final_norm_;
  std::unique_ptr<OutputHead> head_;
  mutable Rotary rotary_;
  mutable std::optional<Rotary> window_rotary_;  // where layers with a window rotate otherwise
};

}  // namespace switchyard
