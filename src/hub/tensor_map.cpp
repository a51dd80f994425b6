#include "hub/tensor_map.h"

#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "model/language_model.h"
#include "parallel/groups.h"

namespace switchyard {
namespace {

std::string replaced(std::string text, const std::string& what, int64_t number) {
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), std::to_string(number));
}

// The shape in the file of the dims that the rule leaves, some of them taken together.
std::vector<int64_t> file_shape(const TensorRule& rule, const std::vector<int64_t>& dims) {
  if (rule.dims.empty()) {
    return dims;
  }
  std::vector<int64_t> shape;
  size_t next = 0;
  for (const int64_t count : rule.dims) {
    int64_t size = 1;
    const size_t end = count == kAllDims ? dims.size() : next + static_cast<size_t>(count);
    for (; next < end; ++next) {
      size *= dims.at(next);
    }
    shape.push_back(size);
  }
  check<ShapeError>(next == dims.size(), "the rule for {} leaves dims of {} [.., {}] over",
                    rule.tensor, rule.logical, fmt::join(dims, ", "));
  return shape;
}

// One tensor per expert when the rule speaks of one, else one.
void map_one(const TensorRule& rule, const std::string& logical, int64_t layer,
             const std::vector<int64_t>& logical_shape, std::vector<MappedTensor>& mapped) {
  const size_t num_fixed = rule.at.size();
  check<ShapeError>(num_fixed <= logical_shape.size(), "the rule for {} has more indices than {}",
                    rule.tensor, logical);
  const bool is_per_expert = num_fixed > 0 && rule.at.front() == kExpertIndex;
  const int64_t num_experts = is_per_expert ? logical_shape.front() : 1;
  const std::vector<int64_t> rest(logical_shape.begin() + static_cast<std::ptrdiff_t>(num_fixed),
                                  logical_shape.end());
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    Box box{std::vector<int64_t>(logical_shape.size(), 0), logical_shape};
    for (size_t dim = 0; dim < num_fixed; ++dim) {
      box.start[dim] = rule.at[dim] == kExpertIndex ? expert : rule.at[dim];
      box.shape[dim] = 1;
    }
    mapped.push_back({replaced(replaced(rule.tensor, "{layer}", layer), "{expert}", expert),
                      file_shape(rule, rest), logical, logical_shape, std::move(box),
                      rule.is_other_spelling});
  }
}

}  // namespace

LogicalShapes logical_shapes(const Parameters& parameters) {
  LogicalShapes shapes;
  for (const auto& storage : parameters.storages()) {
    for (const Parameter& piece : storage->pieces) {
      shapes[piece.name()] = piece.spec().shape;
    }
  }
  for (const Buffer& buffer : parameters.buffers()) {
    shapes[buffer.name] = buffer.tensor.sizes().vec();
  }
  return shapes;
}

LogicalShapes logical_shapes(const Config& config) {
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), 0, FirstValues::kNone);
  const LanguageModel model(parameters, config);
  return logical_shapes(parameters);
}

std::string name_pattern(const std::string& name, std::vector<int64_t>& numbers) {
  std::string pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    constexpr size_t kMaxDigits = 9;
    const bool is_number = !word.empty() && word.size() <= kMaxDigits &&
                           word.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) {
      numbers.push_back(std::stoll(word));
    }
    pattern += is_number ? (numbers.size() == 1 ? "{layer}" : "{expert}") : word;
    pattern += end < name.size() ? "." : "";
    begin = end + 1;
  }
  return pattern;
}

std::vector<MappedTensor> map_tensors(const ModelFamily& family, const LogicalShapes& shapes) {
  std::multimap<std::string, const TensorRule*> rules;
  for (const TensorRule& rule : family.tensors) {
    rules.emplace(rule.logical, &rule);
  }
  std::vector<MappedTensor> mapped;
  for (const auto& [name, shape] : shapes) {
    std::vector<int64_t> numbers;
    const auto [begin, end] = rules.equal_range(name_pattern(name, numbers));
    check<ConfigError>(begin != end,
                       "a model of type {} has no tensor for {}: the settings "
                       "describe another kind of model",
                       family.model_type, name);
    for (auto rule = begin; rule != end; ++rule) {
      map_one(*rule->second, name, numbers.empty() ? 0 : numbers.front(), shape, mapped);
    }
  }
  return mapped;
}

}  // namespace switchyard
