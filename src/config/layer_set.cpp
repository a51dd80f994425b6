#include "config/layer_set.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "config/values.h"

namespace switchyard {
namespace {

struct LayerRange {
  int64_t first;
  int64_t last;  // included when the steps reach it
  int64_t step;
};

// Takes a number off the front of `rest`.
std::optional<int64_t> take_number(std::string_view& rest) {
  int64_t number = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (result.ec != std::errc() || rest.front() == '-') {
    return std::nullopt;
  }
  rest.remove_prefix(static_cast<size_t>(result.ptr - rest.data()));
  return number;
}

bool take_letter(std::string_view& rest, char letter) {
  const bool is_there = rest.starts_with(letter);
  rest.remove_prefix(is_there ? 1 : 0);
  return is_there;
}

std::optional<LayerRange> read_range(std::string_view rest) {
  const auto first = take_number(rest);
  if (!first.has_value()) {
    return std::nullopt;
  }
  LayerRange range{*first, *first, 1};
  if (take_letter(rest, '-')) {
    const auto last = take_number(rest);
    const auto step = take_letter(rest, '/') ? take_number(rest) : 1;
    if (!last.has_value() || !step.has_value()) {
      return std::nullopt;
    }
    range = {*first, *last, *step};
  }
  const bool is_range = rest.empty() && range.last >= range.first && range.step >= 1;
  return is_range ? std::optional(range) : std::nullopt;
}

std::string wrong_text(std::string_view setting, const std::string& text, int64_t num_layers) {
  const auto range = read_range(text);
  if (!range.has_value()) {
    return fmt::format(
        "{} holds {}, which names no layers: expected a layer (3), a range (0-7), or a range with "
        "a step (1-23/2)",
        setting, quoted({{text}, false}));
  }
  if (range->last >= num_layers) {
    return fmt::format("{} holds {}: the layers of this model are 0 to {} (model.num_layers is {})",
                       setting, quoted({{text}, false}), num_layers - 1, num_layers);
  }
  return "";
}

}  // namespace

std::string wrong_layer_set(std::string_view setting, const std::vector<std::string>& texts,
                            int64_t num_layers) {
  for (const std::string& text : texts) {
    if (std::string line = wrong_text(setting, text, num_layers); !line.empty()) {
      return line;
    }
  }
  return "";
}

std::vector<bool> layer_set(std::string_view setting, const std::vector<std::string>& texts,
                            int64_t num_layers) {
  const std::string line = wrong_layer_set(setting, texts, num_layers);
  check<ConfigError>(line.empty(), "{}", line);
  std::vector<bool> is_in_set(static_cast<size_t>(num_layers));
  for (const std::string& text : texts) {
    const LayerRange range = *read_range(text);
    for (int64_t layer = range.first; layer <= range.last; layer += range.step) {
      is_in_set[static_cast<size_t>(layer)] = true;
      if (range.step > range.last - layer) {
        break;
      }
    }
  }
  return is_in_set;
}

}  // namespace switchyard
