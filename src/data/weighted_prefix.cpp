#include "data/weighted_prefix.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"

namespace switchyard {
namespace {

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end ? std::optional(value) : std::nullopt;
}

WeightedPrefix parse(const std::string& key, const std::string& entry) {
  const size_t colon = entry.find(':');
  WeightedPrefix parsed{entry, std::nullopt};
  if (colon != std::string::npos) {
    parsed.weight = number_of(entry.substr(0, colon));
  }
  if (parsed.weight) {
    parsed.prefix = entry.substr(colon + 1);
    check<ConfigError>(std::isfinite(*parsed.weight) && *parsed.weight > 0,
                       "{}: the weight of {} is {}, expected a number above 0; leave the entry out "
                       "to not use it",
                       key, parsed.prefix, *parsed.weight);
  }
  check<ConfigError>(!parsed.prefix.empty(),
                     "{} has the entry \"{}\", expected PREFIX or WEIGHT:PREFIX", key, entry);
  return parsed;
}

}  // namespace

std::vector<WeightedPrefix> parse_weighted_prefixes(const std::string& key,
                                                    const std::vector<std::string>& entries) {
  check<ConfigError>(!entries.empty(), "{} is empty, expected the prefix of a tokenized data set",
                     key);
  std::vector<WeightedPrefix> parsed;
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    parsed.push_back(parse(key, entry));
    check<ConfigError>(seen.insert(parsed.back().prefix).second,
                       "{} names {} twice; give it once, with the weight that both have together",
                       key, parsed.back().prefix);
  }
  const auto with = std::find_if(parsed.begin(), parsed.end(), [](const WeightedPrefix& entry) {
    return entry.weight.has_value();
  });
  const auto without = std::find_if(parsed.begin(), parsed.end(), [](const WeightedPrefix& entry) {
    return !entry.weight.has_value();
  });
  if (with != parsed.end() && without != parsed.end()) {
    throw ConfigError(fmt::format(
        "{}: {} has a weight and {} has none; give every entry one, as in 0.3:{}, or none to draw "
        "in proportion to size",
        key, with->prefix, without->prefix, without->prefix));
  }
  return parsed;
}

}  // namespace switchyard
