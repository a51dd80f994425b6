#pragma once

#include <optional>
#include <string>
#include <vector>

namespace switchyard {

// One entry of data.train: PREFIX, or WEIGHT:PREFIX as in 0.7:data/books.
struct WeightedPrefix {
  std::string prefix;
  std::optional<double> weight;
};

// Text before the first colon is a weight when it is a number, else part of the prefix. Throws
// ConfigError, naming `key` and the entry: no entries, an empty or repeated prefix, a weight that
// is not positive and finite, weights on some entries only.
std::vector<WeightedPrefix> parse_weighted_prefixes(const std::string& key,
                                                    const std::vector<std::string>& entries);

}  // namespace switchyard
