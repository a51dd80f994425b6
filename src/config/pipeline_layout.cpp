#include "config/pipeline_layout.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr char kName[] = "parallel.pipeline_layout";
constexpr size_t kMostLetters = 1 << 20;  // of a layout written out

// Writes out a layout: every x*n and (...)*n as often as it says.
class Expansion {
 public:
  explicit Expansion(std::string_view text) {
    for (const char letter : text) {
      if (letter != ',' && std::isspace(static_cast<unsigned char>(letter)) == 0) {
        text_.push_back(letter);
      }
    }
  }

  // Nothing where the text is malformed; fault() then says why.
  std::optional<std::string> run() {
    std::string all;
    while (fault_.empty() && next_ < text_.size()) {
      if (text_[next_] == ')') {
        fault_ = "a \")\" closes nothing";
      } else {
        all += item(0);
      }
    }
    return fault_.empty() ? std::optional(all) : std::nullopt;
  }
  const std::string& fault() const { return fault_; }

 private:
  std::string item(int depth) {
    constexpr int kMostDepth = 32;
    std::string one;
    if (text_[next_] != '(') {
      one = text_[next_++];
      return repeated(one);
    }
    ++next_;
    while (fault_.empty() && next_ < text_.size() && text_[next_] != ')') {
      if (depth == kMostDepth) {
        fault_ = "too many \"(\" within each other";
        return "";
      }
      one += item(depth + 1);
    }
    if (fault_.empty() && next_ == text_.size()) {
      fault_ = "a \"(\" is not closed";
    }
    ++next_;
    return repeated(one);
  }

  std::string repeated(const std::string& one) {
    if (next_ >= text_.size() || text_[next_] != '*') {
      return one;
    }
    const size_t begin = ++next_;
    while (next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_])) != 0) {
      ++next_;
    }
    constexpr size_t kMostDigits = 6;
    if (next_ == begin || next_ - begin > kMostDigits) {
      fault_ = "after \"*\" a number of at most 6 digits is expected";
      return "";
    }
    const auto times = static_cast<size_t>(std::stol(text_.substr(begin, next_ - begin)));
    if (one.size() * times > kMostLetters) {
      fault_ = "it is too long when written out";
      return "";
    }
    std::string all;
    for (size_t i = 0; i < times; ++i) {
      all += one;
    }
    return all;
  }

  std::string text_;
  size_t next_ = 0;
  std::string fault_;
};

std::vector<std::string> split_stages(const std::string& written_out) {
  std::vector<std::string> stages(1);
  for (const char letter : written_out) {
    if (letter == '|') {
      stages.emplace_back();
    } else {
      stages.back().push_back(letter);
    }
  }
  return stages;
}

int64_t num_stages(const Config& config) {
  return config.parallel.pipeline_size * config.parallel.virtual_pipeline_size;
}

std::string wrong_numbers(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pipeline_size == 1 && parallel.virtual_pipeline_size > 1) {
    return fmt::format(
        "parallel.virtual_pipeline_size ({}) must be 1 where parallel.pipeline_size is 1: one rank "
        "has all layers",
        parallel.virtual_pipeline_size);
  }
  if (parallel.pipeline_layout.empty() && num_stages(config) > config.model.num_layers) {
    return fmt::format(
        "model.num_layers ({}) must be at least parallel.pipeline_size x "
        "parallel.virtual_pipeline_size ({} x {} = {} stages); a stage without layers needs "
        "parallel.pipeline_layout",
        config.model.num_layers, parallel.pipeline_size, parallel.virtual_pipeline_size,
        num_stages(config));
  }
  return "";
}

// What is wrong with the letters of the stages, without the name of the setting.
std::string wrong_stages(const Config& config, const std::vector<std::string>& stages) {
  const ParallelConfig& parallel = config.parallel;
  if (std::ssize(stages) != num_stages(config)) {
    return fmt::format(
        "has {} stages, parallel.pipeline_size x parallel.virtual_pipeline_size ({} x {}) are {}",
        stages.size(), parallel.pipeline_size, parallel.virtual_pipeline_size, num_stages(config));
  }
  int64_t num_layers = 0;
  int64_t num_modules = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string& stage = stages[i];
    const bool is_last = i + 1 == stages.size();
    if (stage.empty()) {
      return fmt::format("leaves stage {} empty", i);
    }
    const size_t strange = stage.find_first_not_of("EtmL");
    if (strange != std::string::npos) {
      return fmt::format("has a \"{}\": stages are made of E, t, m and L", stage[strange]);
    }
    const auto begin = stage.begin() + (i == 0 && stage.front() == 'E' ? 1 : 0);
    auto end = stage.end() - (is_last && stage.back() == 'L' ? 1 : 0);
    const auto modules_end = end;
    while (end < stage.end() && end > begin && *(end - 1) == 'm') {
      --end;
    }
    if (std::count(begin, end, 'm') > 0) {
      return "must have every m right before L: modules of multi-token prediction are where the "
             "head is";
    }
    num_modules += modules_end - end;
    num_layers += std::count(begin, end, 't');
    if ((i == 0 && begin == stage.begin()) || (is_last && modules_end == stage.end()) ||
        std::count(begin, end, 't') != end - begin) {
      return "must have one E, at its very beginning, and one L, at its very end";
    }
  }
  if (num_modules != config.mtp.num_layers) {
    return fmt::format("has {} modules of multi-token prediction (m), mtp.num_layers is {}",
                       num_modules, config.mtp.num_layers);
  }
  return num_layers == config.model.num_layers
             ? ""
             : fmt::format("has {} layers (t), model.num_layers is {}", num_layers,
                           config.model.num_layers);
}

std::vector<StageLayers> divided_evenly(int64_t num_layers, int64_t stages) {
  std::vector<StageLayers> all;
  int64_t first = 0;
  for (int64_t i = 0; i < stages; ++i) {
    const int64_t count = num_layers / stages + (i < num_layers % stages ? 1 : 0);
    all.push_back({first, first + count, i == 0, i + 1 == stages});
    first += count;
  }
  return all;
}

}  // namespace

std::string wrong_pipeline_layout(const Config& config) {
  const std::string numbers = wrong_numbers(config);
  const std::string& text = config.parallel.pipeline_layout;
  if (!numbers.empty() || text.empty()) {
    return numbers;
  }
  Expansion expansion(text);
  const auto written_out = expansion.run();
  if (!written_out) {
    return fmt::format("{} (\"{}\"): {}", kName, text, expansion.fault());
  }
  const std::string fault = wrong_stages(config, split_stages(*written_out));
  return fault.empty() ? "" : fmt::format("{} (\"{}\") {}", kName, text, fault);
}

std::vector<StageLayers> pipeline_layout(const Config& config) {
  const std::string fault = wrong_pipeline_layout(config);
  check<ConfigError>(fault.empty(), "{}", fault);
  if (config.parallel.pipeline_layout.empty()) {
    return divided_evenly(config.model.num_layers, num_stages(config));
  }
  std::vector<StageLayers> stages;
  int64_t first = 0;
  for (const std::string& stage : split_stages(*Expansion(config.parallel.pipeline_layout).run())) {
    const int64_t end = first + std::count(stage.begin(), stage.end(), 't');
    stages.push_back({first, end, stage.front() == 'E', stage.back() == 'L'});
    first = end;
  }
  return stages;
}

}  // namespace switchyard
