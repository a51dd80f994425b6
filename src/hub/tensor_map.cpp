#include "hub/tensor_map.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/ATen.h>

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

// The dims that the rule leaves, as the file has them.
std::vector<int64_t> in_order(const TensorRule& rule, const std::vector<int64_t>& dims) {
  if (rule.order.empty()) {
    return dims;
  }
  check<ShapeError>(rule.order.size() == dims.size(),
                    "the rule for {} puts {} dims in order, {} has {}", rule.tensor,
                    rule.order.size(), rule.logical, dims.size());
  std::vector<int64_t> ordered;
  for (const int64_t dim : rule.order) {
    ordered.push_back(dims.at(static_cast<size_t>(dim)));
  }
  return ordered;
}

// Of all dims of the logical tensor, of which the first `num_fixed` have one index.
FileView view_of(const TensorRule& rule, const std::vector<int64_t>& ordered, size_t num_fixed) {
  if (rule.order.empty()) {
    return {};
  }
  const FileView rows = FileView::plain(ordered);
  FileView view{std::vector<int64_t>(num_fixed + ordered.size(), 0), 0};
  for (size_t i = 0; i < ordered.size(); ++i) {
    view.strides[num_fixed + static_cast<size_t>(rule.order[i])] = rows.strides[i];
  }
  return view;
}

// What one rule says of one tensor of the files, before others of the same tensor join it.
struct RuledPart {
  const TensorRule* rule;
  std::string name;
  std::vector<int64_t> shape;  // of the tensor if it held this alone
  MappedPart part;
};

// One tensor per expert when the rule speaks of one, else one.
void add_parts(const TensorRule& rule, const std::string& logical, int64_t layer,
               const std::vector<int64_t>& logical_shape, std::vector<RuledPart>& parts) {
  const size_t num_fixed = rule.at.size();
  check<ShapeError>(num_fixed <= logical_shape.size(), "the rule for {} has more indices than {}",
                    rule.tensor, logical);
  const bool is_per_expert = num_fixed > 0 && rule.at.front() == kExpertIndex;
  const int64_t num_experts = is_per_expert ? logical_shape.front() : 1;
  const std::vector<int64_t> rest(logical_shape.begin() + static_cast<std::ptrdiff_t>(num_fixed),
                                  logical_shape.end());
  const std::vector<int64_t> ordered = in_order(rule, rest);
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    Box box{std::vector<int64_t>(logical_shape.size(), 0), logical_shape};
    for (size_t dim = 0; dim < num_fixed; ++dim) {
      box.start[dim] = rule.at[dim] == kExpertIndex ? expert : rule.at[dim];
      box.shape[dim] = 1;
    }
    parts.push_back(
        {&rule, replaced(replaced(rule.tensor, "{layer}", layer), "{expert}", expert),
         file_shape(rule, ordered),
         MappedPart{logical, logical_shape, std::move(box), 0, view_of(rule, ordered, num_fixed)}});
  }
}

// Interleaved ones cut by their first dim and dealt out in turn, else as they are.
std::vector<MappedPart> in_file_order(const std::vector<RuledPart>& parts) {
  std::vector<MappedPart> ordered;
  const bool is_interleaved = parts.front().rule->is_interleaved;
  const int64_t turns = is_interleaved ? parts.front().part.logical_shape.front() : 1;
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (const RuledPart& one : parts) {
      check<ShapeError>(one.rule->is_interleaved == is_interleaved &&
                            (!is_interleaved || one.part.logical_shape.front() == turns),
                        "the rules for {} do not say alike how its parts take turns", one.name);
      ordered.push_back(one.part);
      if (is_interleaved) {
        ordered.back().box.start.front() = turn;
        ordered.back().box.shape.front() = 1;
      }
    }
  }
  int64_t first = 0;
  for (MappedPart& part : ordered) {
    part.first = first;
    first += part.box.numel();
  }
  return ordered;
}

// `parts`: all of one tensor, in the order of their rules.
MappedTensor joined(const std::vector<RuledPart>& parts) {
  MappedTensor tensor{parts.front().name, parts.front().shape, in_file_order(parts),
                      parts.front().rule->is_other_spelling};
  if (parts.size() == 1) {
    return tensor;
  }
  for (const RuledPart& one : parts) {
    check<ShapeError>(one.rule->order.empty(), "the rule for {} with an order is not its only one",
                      one.name);
  }
  tensor.shape.front() = 0;
  for (const RuledPart& one : parts) {
    check<ShapeError>(std::equal(one.shape.begin() + 1, one.shape.end(), tensor.shape.begin() + 1,
                                 tensor.shape.end()),
                      "the rules for {} make its parts of different widths", one.name);
    tensor.shape.front() += one.shape.front();
  }
  return tensor;
}

}  // namespace

at::Tensor MappedPart::in(const at::Tensor& tensor) const {
  return view.strides.empty() ? tensor.view({-1}).narrow(0, first, box.numel()).view(box.shape)
                              : view.in(tensor, box.shape, first);
}

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

namespace {

// Of the decoder.
int64_t num_layers_in(const LogicalShapes& shapes) {
  int64_t num_layers = 0;
  for (const auto& [name, shape] : shapes) {
    std::vector<int64_t> numbers;
    if (name_pattern(name, numbers).starts_with("layers.{layer}.")) {
      num_layers = std::max(num_layers, numbers.front() + 1);
    }
  }
  return num_layers;
}

}  // namespace

std::vector<MappedTensor> map_tensors(const ModelFamily& family, const LogicalShapes& shapes) {
  std::multimap<std::string, const TensorRule*> rules;
  for (const TensorRule& rule : family.tensors) {
    rules.emplace(rule.logical, &rule);
  }
  const int64_t num_layers = num_layers_in(shapes);
  std::vector<RuledPart> parts;
  for (const auto& [name, shape] : shapes) {
    std::vector<int64_t> numbers;
    const auto [begin, end] = rules.equal_range(name_pattern(name, numbers));
    check<ConfigError>(begin != end,
                       "a model of type {} has no tensor for {}: the settings "
                       "describe another kind of model",
                       family.model_type, name);
    for (auto rule = begin; rule != end; ++rule) {
      const int64_t first = rule->second->is_behind_layers ? num_layers : 0;
      add_parts(*rule->second, name, numbers.empty() ? 0 : first + numbers.front(), shape, parts);
    }
  }
  std::map<std::string, std::vector<RuledPart>> by_name;
  std::vector<std::string> names;  // in the order of the logical tensors
  for (RuledPart& part : parts) {
    std::vector<RuledPart>& own = by_name[part.name];
    if (own.empty()) {
      names.push_back(part.name);
    }
    own.push_back(std::move(part));
  }
  std::vector<MappedTensor> mapped;
  for (const std::string& name : names) {
    std::vector<RuledPart>& own = by_name.at(name);
    std::sort(own.begin(), own.end(),
              [](const RuledPart& a, const RuledPart& b) { return a.rule < b.rule; });
    mapped.push_back(joined(own));
  }
  return mapped;
}

}  // namespace switchyard
