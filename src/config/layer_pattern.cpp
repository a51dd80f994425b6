#include "config/layer_pattern.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/layer_set.h"

namespace switchyard {
namespace {

constexpr std::array kMixerLetters{
    std::pair{'*', MixerKind::kAttention}, std::pair{'S', MixerKind::kMamba1},
    std::pair{'M', MixerKind::kMamba2}, std::pair{'G', MixerKind::kDeltaNet}};
constexpr std::array kFeedForwardLetters{std::pair{'-', FeedForward::kDense},
                                         std::pair{'E', FeedForward::kMoe}};
constexpr size_t kMostMixers = 2;

template <class Letters>
auto find_letter(const Letters& letters, char letter) {
  return std::find_if(letters.begin(), letters.end(),
                      [letter](const auto& pair) { return pair.first == letter; });
}

template <class Letters, class Kind>
char letter_of(const Letters& letters, Kind kind) {
  return std::find_if(letters.begin(), letters.end(),
                      [kind](const auto& pair) { return pair.second == kind; })
      ->first;
}

// The layers that a pattern writes out, each a text of letters.
std::vector<std::string> words_of(const std::string& pattern) {
  std::vector<std::string> words;
  if (pattern.find(' ') == std::string::npos) {
    for (const char letter : pattern) {
      words.emplace_back(1, letter);
    }
    return words;
  }
  for (size_t begin = 0; begin < pattern.size();) {
    const size_t end = std::min(pattern.find(' ', begin), pattern.size());
    if (end > begin) {
      words.push_back(pattern.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return words;
}

// The kinds that a word means, or what is wrong with it.
struct ReadWord {
  LayerKinds kinds;
  std::string mistake;
};

ReadWord read_word(const std::string& word) {
  LayerKinds kinds;
  for (const char letter : word) {
    const auto mixer = find_letter(kMixerLetters, letter);
    const auto feed_forward = find_letter(kFeedForwardLetters, letter);
    if (mixer == kMixerLetters.end() && feed_forward == kFeedForwardLetters.end()) {
      return {{}, fmt::format("has \"{}\": the letters are * M S G - E", letter)};
    }
    if (kinds.feed_forward != FeedForward::kNone) {
      return {{}, fmt::format("has the layer \"{}\": - or E is one letter, and the last", word)};
    }
    if (feed_forward != kFeedForwardLetters.end()) {
      kinds.feed_forward = feed_forward->second;
      continue;
    }
    if (kinds.has(mixer->second) || kinds.mixers.size() == kMostMixers) {
      return {{},
              fmt::format("has the layer \"{}\": at most two of * M S G, different ones, stand "
                          "side by side",
                          word)};
    }
    kinds.mixers.push_back(mixer->second);
  }
  return {std::move(kinds), ""};
}

// moe.layers, or all when that is empty, from moe.first_dense_layers on.
std::vector<LayerKinds> attention_layers(const Config& config) {
  const auto num_layers = static_cast<size_t>(config.model.num_layers);
  const bool has_experts = config.moe.num_experts > 0;
  const std::vector<bool> is_moe =
      has_experts && !config.moe.layers.empty()
          ? layer_set("moe.layers", config.moe.layers, config.model.num_layers)
          : std::vector<bool>(num_layers, has_experts);
  std::vector<LayerKinds> layers;
  for (size_t i = 0; i < num_layers; ++i) {
    const bool is_first = static_cast<int64_t>(i) < config.moe.first_dense_layers;
    layers.push_back({{MixerKind::kAttention},
                      is_moe[i] && !is_first ? FeedForward::kMoe : FeedForward::kDense});
  }
  return layers;
}

}  // namespace

bool LayerKinds::has(MixerKind kind) const {
  return std::find(mixers.begin(), mixers.end(), kind) != mixers.end();
}

std::string wrong_layer_pattern(const Config& config) {
  if (config.model.layer_pattern.empty()) {
    return "";
  }
  const std::vector<std::string> words = words_of(config.model.layer_pattern);
  for (const std::string& word : words) {
    if (const std::string mistake = read_word(word).mistake; !mistake.empty()) {
      return "model.layer_pattern " + mistake;
    }
  }
  const auto length = std::ssize(words);
  if (length > 0 && config.model.num_layers % length == 0) {
    return "";
  }
  return fmt::format("model.layer_pattern has {} layers: model.num_layers ({}) must be a multiple",
                     length, config.model.num_layers);
}

std::vector<LayerKinds> layer_kinds(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.layer_pattern.empty()) {
    return attention_layers(config);
  }
  const std::string mistake = wrong_layer_pattern(config);
  check<ConfigError>(mistake.empty(), "{}", mistake);
  const std::vector<std::string> words = words_of(model.layer_pattern);
  std::vector<LayerKinds> layers;
  for (size_t i = 0; i < static_cast<size_t>(model.num_layers); ++i) {
    layers.push_back(read_word(words[i % words.size()]).kinds);
  }
  return layers;
}

std::string layer_pattern_of(const std::vector<LayerKinds>& layers) {
  std::vector<std::string> words;
  for (const LayerKinds& layer : layers) {
    std::string& word = words.emplace_back();
    for (const MixerKind mixer : layer.mixers) {
      word += letter_of(kMixerLetters, mixer);
    }
    if (layer.feed_forward != FeedForward::kNone) {
      word += letter_of(kFeedForwardLetters, layer.feed_forward);
    }
  }
  // Without a blank, each letter would be a layer of its own.
  return words.size() == 1 && words[0].size() > 1 ? words[0] + " "
                                                  : fmt::format("{}", fmt::join(words, " "));
}

}  // namespace switchyard
