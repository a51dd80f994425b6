#include "selfcheck/shrink.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/layer_overrides.h"
#include "config/layer_pattern.h"
#include "config/layer_set.h"
#include "config/pipeline_layout.h"
#include "config/rules.h"
#include "config/rules/questions.h"
#include "config/settings.h"
#include "parallel/mesh.h"
#include "parallel/placement.h"

namespace switchyard {
namespace {

// Sizes per rank of the axis that cuts them. Unequal, so that a swapped pair shows.
constexpr int64_t kFfnPerRank = 12;
constexpr int64_t kExpertFfnPerRank = 6;
constexpr int64_t kOtherExpertFfnPerRank = 10;  // of layers whose experts have another width
constexpr int64_t kSharedFfnPerRank = 4;
constexpr int64_t kHiddenPerRank = 8;
constexpr int64_t kLatentPerRank = 5;
constexpr int64_t kVocabularyPerRank = 16;
constexpr int64_t kScanHeadDim = 4;
constexpr int64_t kScanState = 6;
constexpr int64_t kScanChunk = 3;  // shorter than most sequences of the check
constexpr int64_t kHeadDims[] = {4, 8, 16, 32, 64, 128, 256};

int64_t smallest_prime_factor(int64_t value) {
  for (int64_t factor = 2; factor * factor <= value; ++factor) {
    if (value % factor == 0) {
      return factor;
    }
  }
  return value;
}

int64_t fewest_ranks(const ParallelConfig& parallel) {
  return parallel.pipeline_size * std::lcm(parallel.tensor_size * parallel.context_size,
                                           parallel.expert_size * parallel.expert_tensor_size);
}

void shrink_axes(ParallelConfig& parallel, bool has_nodes) {
  const int64_t expert_size = parallel.expert_size;
  for (int64_t* size :
       {&parallel.tensor_size, &parallel.pipeline_size, &parallel.virtual_pipeline_size,
        &parallel.context_size, &parallel.expert_size, &parallel.expert_tensor_size}) {
    *size = smallest_prime_factor(*size);
  }
  // Enough for two nodes of two ranks.
  constexpr int64_t kRanksOfNodes = 4;
  ParallelConfig wider = parallel;
  wider.expert_size = kRanksOfNodes;
  if (has_nodes && expert_size % kRanksOfNodes == 0 && fewest_ranks(wider) <= kMostSelfcheckRanks) {
    parallel.expert_size = kRanksOfNodes;
  }
}

int64_t num_ranks_for(const ParallelConfig& parallel) {
  const int64_t fewest = fewest_ranks(parallel);
  check<ConfigError>(fewest <= kMostSelfcheckRanks,
                     "the parallel section needs {} ranks even when each axis is as small as it "
                     "can be; selfcheck runs up to {}: check fewer axes at once",
                     fewest, kMostSelfcheckRanks);
  return 2 * fewest <= kMostSelfcheckRanks ? 2 * fewest : fewest;
}

// Nodes such that the ranks which share a layer's experts are on two or three.
void shrink_nodes(Config& config, int64_t num_ranks) {
  if (config.moe.dispatcher != DispatcherKind::kFlex) {
    return;
  }
  const Mesh mesh(mesh_shape(config.parallel, num_ranks));
  const std::vector<int64_t> sharers = mesh.members(0, GroupName::kExpertExpertTensor);
  config.parallel.ranks_per_node = std::max(int64_t{1}, (sharers.back() + 1) / 2);
}

// --- Layers

// How the layers of a pipeline layout lie, made small: which stages have any.
struct PipelineEnds {
  int64_t num_stages = 1;
  bool is_embedding_alone = false;
  bool is_head_alone = false;

  int64_t num_stages_with_layers() const {
    return num_stages - (is_embedding_alone ? 1 : 0) - (is_head_alone ? 1 : 0);
  }
};

// `before`: the whole configuration; `config`: with its axes made small.
PipelineEnds pipeline_ends(const Config& before, const Config& config) {
  PipelineEnds ends;
  ends.num_stages = config.parallel.pipeline_size * config.parallel.virtual_pipeline_size;
  if (ends.num_stages == 1) {
    return ends;
  }
  const std::vector<StageLayers> stages = pipeline_layout(before);
  ends.is_embedding_alone = stages.front().first == stages.front().end;
  ends.is_head_alone = stages.back().first == stages.back().end && ends.num_stages > 2;
  return ends;
}

std::string layout_text(const PipelineEnds& ends, int64_t num_layers, int64_t num_predictions) {
  if (!ends.is_embedding_alone && !ends.is_head_alone) {
    return "";
  }
  std::string text = ends.is_embedding_alone ? "E|" : "E";
  const int64_t stages = ends.num_stages_with_layers();
  for (int64_t stage = 0; stage < stages; ++stage) {
    const ShardRange layers = shard_range(num_layers, stages, stage);
    text += (stage > 0 ? "|" : "") + std::string(static_cast<size_t>(layers.size()), 't');
  }
  return text + (ends.is_head_alone ? "|" : "") +
         std::string(static_cast<size_t>(num_predictions), 'm') + "L";
}

// The text of moe.overrides that gives `layers`, as `0,2` or `4-7`, the settings of `settings`.
std::string override_text(const std::string& layers, const LayerOverride& settings) {
  std::string text = layers + ":";
  for (size_t i = 0; i < settings.names.size(); ++i) {
    const std::string& name = settings.names[i];
    text += fmt::format(" {}={}", name.substr(name.find('.') + 1), settings.values[i]);
  }
  return text;
}

std::vector<std::string> numbers_in(const std::vector<bool>& set, const std::vector<size_t>& kept) {
  std::vector<std::string> numbers;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (set[kept[i]]) {
      numbers.push_back(std::to_string(i));
    }
  }
  return numbers;
}

// The first layer of each kind; two where all are of one; and then others, so that there are
// `fewest`.
std::vector<size_t> layers_to_keep(const Config& config, const std::vector<LayerKinds>& kinds,
                                   const std::vector<bool>& has_window,
                                   const std::vector<LayerOverride>& overrides, int64_t fewest) {
  std::map<std::tuple<std::string, bool, std::vector<bool>>, size_t> first_of_kind;
  for (size_t layer = 0; layer < kinds.size(); ++layer) {
    std::vector<bool> texts;
    for (const LayerOverride& text : overrides) {
      texts.push_back(kinds[layer].feed_forward == FeedForward::kMoe && text.layers[layer]);
    }
    first_of_kind.try_emplace({layer_pattern_of({kinds[layer]}), has_window[layer], texts}, layer);
  }
  std::vector<size_t> kept;
  for (const auto& [kind, layer] : first_of_kind) {
    kept.push_back(layer);
  }
  std::sort(kept.begin(), kept.end());
  if (kept.size() == 1 && config.model.num_layers > 1) {
    kept.push_back(kept.front() + 1);
  }
  for (size_t layer = 0; layer < kinds.size() && std::ssize(kept) < fewest; ++layer) {
    if (std::find(kept.begin(), kept.end(), layer) == kept.end()) {
      kept.push_back(layer);
    }
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// As a pattern where there was one, else by moe.layers.
void keep_kinds(Config& config, const std::vector<LayerKinds>& kinds,
                const std::vector<size_t>& kept) {
  std::vector<LayerKinds> new_kinds;
  std::vector<std::string> with_experts;
  for (const size_t layer : kept) {
    if (kinds[layer].feed_forward == FeedForward::kMoe) {
      with_experts.push_back(std::to_string(new_kinds.size()));
    }
    new_kinds.push_back(kinds[layer]);
  }
  if (!config.model.layer_pattern.empty()) {
    config.model.layer_pattern = layer_pattern_of(new_kinds);
  }
  config.moe.layers =
      with_experts.size() == kept.size() ? std::vector<std::string>{} : with_experts;
  config.moe.first_dense_layers = 0;
}

void shrink_layers(Config& config, int64_t fewest) {
  const auto num_layers = static_cast<size_t>(config.model.num_layers);
  const std::vector<LayerKinds> kinds = layer_kinds(config);
  const bool is_everywhere = config.attention.window_layers.empty();
  const std::vector<bool> has_window =
      is_everywhere ? std::vector<bool>(num_layers, true)
                    : layer_set("attention.window_layers", config.attention.window_layers,
                                config.model.num_layers);
  const std::vector<LayerOverride> overrides = layer_overrides(config);
  const std::vector<size_t> kept = layers_to_keep(config, kinds, has_window, overrides, fewest);
  if (kept.size() == num_layers) {
    return;
  }
  config.model.num_layers = static_cast<int64_t>(kept.size());
  if (!is_everywhere) {
    config.attention.window_layers = numbers_in(has_window, kept);
  }
  keep_kinds(config, kinds, kept);
  config.moe.overrides.clear();
  for (const LayerOverride& text : overrides) {
    const std::vector<std::string> layers = numbers_in(text.layers, kept);
    if (!layers.empty()) {
      config.moe.overrides.push_back(
          override_text(fmt::format("{}", fmt::join(layers, ",")), text));
    }
  }
}

// --- Widths

// Ranks that each take some of the heads.
int64_t ranks_of_heads(const ParallelConfig& parallel) {
  return parallel.context_exchange == ContextExchange::kAllToAll
             ? parallel.tensor_size * parallel.context_size
             : parallel.tensor_size;
}

void shrink_heads(const Config& before, Config& config) {
  ModelConfig& model = config.model;
  const int64_t ranks = ranks_of_heads(config.parallel);
  const bool has_groups = model.num_query_groups > 0;
  const int64_t groups = model.query_groups();
  const bool is_shared = model.num_attention_heads > groups;  // a key head serves several
  const bool is_replicated = groups % ranks_of_heads(before.parallel) != 0;  // ranks share one
  const bool is_cut_by_tensor = groups % before.parallel.tensor_size == 0;
  const int64_t fewest_groups = is_cut_by_tensor ? config.parallel.tensor_size : 1;
  const int64_t new_groups = is_replicated ? fewest_groups : std::min(groups, 2 * ranks);
  const int64_t per_group = is_replicated ? ranks / fewest_groups : (is_shared ? 2 : 1);
  if (model.head_dim == 0 && !config.mla.is_used()) {
    model.head_dim = before.model.head_size();
  }
  model.num_attention_heads = new_groups * per_group;
  model.num_query_groups = has_groups ? new_groups : 0;
  if (config.mla.is_used()) {
    return;  // shrink_latents gives its heads their widths
  }
  for (const int64_t dim : kHeadDims) {
    Config smaller = config;
    smaller.model.head_dim = dim;
    if (dim < model.head_dim && broken_rules(smaller, ConfigUse::kDescribe).empty()) {
      model.head_dim = dim;
      return;
    }
  }
}

void shrink_mamba1(Config& config) {
  if (!has_mixer(config, MixerKind::kMamba1)) {
    return;
  }
  MambaConfig& mamba = config.mamba;
  mamba.inner_size = 6 * config.parallel.tensor_size * config.parallel.context_size;
  mamba.dt_rank = 3;
  mamba.state_size = std::min(mamba.state_size, kScanState);
}

void shrink_mamba2(const Config& before, Config& config) {
  if (!has_mixer(config, MixerKind::kMamba2)) {
    return;
  }
  MambaConfig& mamba = config.mamba;
  const int64_t tensor_ranks = config.parallel.tensor_size;
  const int64_t context_ranks = config.parallel.context_size;
  // Groups of a tensor rank: none of its own, one, or several, which context ranks divide.
  const bool is_replicated = mamba.num_groups % before.parallel.tensor_size != 0;
  const bool has_several = mamba.num_groups > before.parallel.tensor_size;
  const int64_t groups_here = has_several ? std::max<int64_t>(2, context_ranks) : 1;
  mamba.num_groups = is_replicated ? 1 : groups_here * tensor_ranks;
  mamba.num_heads = 2 * groups_here * tensor_ranks * context_ranks;
  mamba.head_dim = std::min(mamba.head_dim, kScanHeadDim);
  mamba.state_size = std::min(mamba.state_size, kScanState);
  mamba.chunk_size = std::min(mamba.chunk_size, kScanChunk);
}

void shrink_delta_net(Config& config) {
  if (!has_mixer(config, MixerKind::kDeltaNet)) {
    return;
  }
  DeltaNetConfig& sizes = config.delta_net;
  const bool is_shared = sizes.num_value_heads > sizes.num_key_heads;
  sizes.num_key_heads = 2 * config.parallel.tensor_size * config.parallel.context_size;
  sizes.num_value_heads = sizes.num_key_heads * (is_shared ? 2 : 1);
  sizes.key_head_dim = std::min(sizes.key_head_dim, kScanState);
  sizes.value_head_dim = std::min(sizes.value_head_dim, kScanHeadDim);
  sizes.chunk_size = std::min(sizes.chunk_size, kScanChunk);
}

// Widths of latent attention, no two alike.
void shrink_latents(Config& config) {
  MlaConfig& mla = config.mla;
  if (!mla.is_used()) {
    return;
  }
  mla.kv_lora_rank = std::min(mla.kv_lora_rank, int64_t{10});
  mla.q_lora_rank = std::min(mla.q_lora_rank, int64_t{12});
  mla.qk_nope_head_dim = std::min(mla.qk_nope_head_dim, int64_t{8});
  mla.qk_rope_head_dim = std::min(mla.qk_rope_head_dim, int64_t{4});
  mla.v_head_dim = std::min(mla.v_head_dim, int64_t{6});
}

// The fewest experts that leave a choice, for the settings of one layer.
int64_t fewest_experts(const MoeConfig& moe, int64_t expert_ranks) {
  const int64_t unit = std::lcm(expert_ranks, moe.num_groups);
  for (int64_t experts = unit; experts < moe.num_experts; experts += unit) {
    const int64_t group_size = experts / moe.num_groups;
    const bool groups_can_choose =
        !moe.has_groups() ||
        (moe.top_k <= moe.group_top_k * group_size && moe.scores_per_group() <= group_size);
    if (experts > moe.top_k && groups_can_choose) {
      return experts;
    }
  }
  return moe.num_experts;
}

// Gives the sizes that it gives other values.
void resize(LayerOverride& settings, int64_t num_experts, int64_t expert_ffn, int64_t shared_ffn) {
  for (size_t i = 0; i < settings.names.size(); ++i) {
    std::string& value = settings.values[i];
    if (settings.names[i] == "moe.num_experts") {
      value = std::to_string(num_experts);
    } else if (settings.names[i] == "moe.ffn_hidden_size") {
      value = std::to_string(expert_ffn);
    } else if (settings.names[i] == "moe.shared_expert_ffn_hidden_size" && value != "0") {
      value = std::to_string(shared_ffn);
    }
  }
}

void shrink_experts(Config& config) {
  MoeConfig& moe = config.moe;
  if (moe.num_experts == 0) {
    return;
  }
  const ParallelConfig& parallel = config.parallel;
  const int64_t other_ffn = kOtherExpertFfnPerRank * parallel.expert_tensor_size;
  const int64_t shared_ffn = kSharedFfnPerRank * parallel.tensor_size;
  // Of a layer of each text, before anything is changed.
  std::vector<LayerOverride> overrides = layer_overrides(config);
  int64_t experts = fewest_experts(moe, parallel.expert_size);
  std::vector<std::string> texts;
  for (LayerOverride& text : overrides) {
    const auto layer = std::find(text.layers.begin(), text.layers.end(), true);
    const MoeConfig of_layer = moe_of_layer(config, layer - text.layers.begin());
    const int64_t needed = fewest_experts(of_layer, parallel.expert_size);
    const bool has_own =
        std::find(text.names.begin(), text.names.end(), "moe.num_experts") != text.names.end();
    if (!has_own) {
      experts = std::max(experts, needed);
    }
    resize(text, needed, other_ffn, 2 * shared_ffn);
    texts.push_back(override_text(text.text.substr(0, text.text.find(':')), text));
  }
  moe.num_experts = experts;
  moe.ffn_hidden_size = kExpertFfnPerRank * parallel.expert_tensor_size;
  if (moe.latent_size > 0) {
    moe.latent_size = kLatentPerRank * parallel.expert_tensor_size;
  }
  if (moe.shared_expert_ffn_hidden_size > 0) {
    moe.shared_expert_ffn_hidden_size = shared_ffn;
  }
  moe.overrides = texts;
}

void shrink_widths(const Config& before, Config& config) {
  ModelConfig& model = config.model;
  const ParallelConfig& parallel = config.parallel;
  model.hidden_size = kHiddenPerRank * std::lcm(parallel.tensor_size, parallel.expert_tensor_size) *
                      (parallel.tensor_size == 1 ? 2 : 1);
  const bool is_uneven = before.model.vocab_size % parallel.tensor_size != 0;
  model.vocab_size =
      kVocabularyPerRank * std::max(parallel.tensor_size, int64_t{2}) + (is_uneven ? 1 : 0);
  if (model.ffn_hidden_size > 0) {
    model.ffn_hidden_size = kFfnPerRank * parallel.tensor_size;
  }
  // Sizes that are derived from the hidden size are given before anything asks the rules.
  shrink_mamba1(config);
  shrink_mamba2(before, config);
  shrink_delta_net(config);
  shrink_heads(before, config);
  shrink_latents(config);
  shrink_experts(config);
}

// --- Lengths and arithmetic

void shorten(Config& config) {
  constexpr int64_t kWindow = 3;       // shorter than most sequences of the check
  constexpr int64_t kMaxPosition = 4;  // dynamic positions: some sequences are longer
  if (config.attention.window > 0) {
    config.attention.window = std::min(config.attention.window, kWindow);
  }
  if (config.rope.type == RopeType::kDynamic) {
    config.model.max_position = std::min(config.model.max_position, kMaxPosition);
  }
  config.data.sequence_length = 8 * config.parallel.tensor_size * config.parallel.context_size;
}

// `config`: `before` with its axes made small.
void shrink_model(const Config& before, Config& config) {
  const PipelineEnds ends = pipeline_ends(before, config);
  config.mtp.num_layers = std::min(config.mtp.num_layers, int64_t{2});
  shrink_layers(config, ends.num_stages_with_layers());
  config.parallel.pipeline_layout =
      layout_text(ends, config.model.num_layers, config.mtp.num_layers);
  shrink_widths(before, config);
  shorten(config);
}

// Of two accumulation steps each where there were several, with an evaluation and a checkpoint.
void train_two_steps(Config& config) {
  constexpr int64_t kSteps = 2;
  TrainConfig& train = config.train;
  const bool accumulates = train.global_batch_size > train.micro_batch_size;
  train.steps = kSteps;
  train.minutes = 0;
  train.micro_batch_size = std::min(train.micro_batch_size, int64_t{2});
  train.global_batch_size = train.micro_batch_size * (accumulates ? 2 : 1);
  train.eval_every = 1;
  train.eval_batches = 1;
  train.log_every = 1;
  config.optimizer.warmup_steps = std::min(config.optimizer.warmup_steps, int64_t{1});
  config.optimizer.decay_steps = std::min(config.optimizer.decay_steps, int64_t{1});
  config.checkpoint.every = 1;
}

void compute_exactly(Config& config) {
  config.model.from.clear();
  config.model.init_std = 0.3;
  config.train.precision = Precision::kFp64;
  config.optimizer.lr = 1e-2;
  config.optimizer.min_lr = 0;
  config.optimizer.initial_lr = 0;
  if (config.optimizer.clip_grad_norm > 0) {
    config.optimizer.clip_grad_norm = 0.5;  // acts at every step
  }
  if (config.moe.bias_update_rate > 0) {
    config.moe.bias_update_rate = 0.05;
  }
}

std::vector<SettingChange> changes_between(const Config& before, const Config& after) {
  std::vector<SettingChange> changes;
  for (const Setting& setting : settings()) {
    if (setting.print(before) != setting.print(after)) {
      changes.push_back({setting.name, setting.print(before), setting.print(after)});
    }
  }
  return changes;
}

}  // namespace

ShrunkConfig shrink(const Config& config) {
  check_rules(config, ConfigUse::kDescribe);
  ShrunkConfig shrunk{.config = config};
  shrink_axes(shrunk.config.parallel, config.moe.dispatcher == DispatcherKind::kFlex);
  shrunk.num_ranks = num_ranks_for(shrunk.config.parallel);
  shrink_nodes(shrunk.config, shrunk.num_ranks);
  shrink_model(config, shrunk.config);
  compute_exactly(shrunk.config);
  check_rules(shrunk.config, ConfigUse::kDescribe);
  shrunk.changes = changes_between(config, shrunk.config);
  return shrunk;
}

ShrunkConfig shrink_training(const Config& config) {
  check_rules(config, ConfigUse::kDescribe);
  Config before = config;
  before.parallel = {};
  before.parallel.data_sharding = config.parallel.data_sharding;
  ShrunkConfig shrunk{.config = before};
  shrink_model(before, shrunk.config);
  shrunk.config.model.from.clear();
  shrunk.config.model.vocab_size = kShrunkVocabulary;
  shrunk.config.data.tokenizer = "bytes";
  train_two_steps(shrunk.config);
  check_rules(shrunk.config, ConfigUse::kDescribe);
  shrunk.changes = changes_between(config, shrunk.config);
  return shrunk;
}

}  // namespace switchyard
