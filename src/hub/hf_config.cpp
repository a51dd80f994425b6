#include "hub/hf_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

// Names, habits of generation and of Python: nothing that changes what the model computes.
constexpr std::array<std::string_view, 24> kWithoutMeaning = {"_name_or_path",
                                                              "_attn_implementation_autoset",
                                                              "add_cross_attention",
                                                              "architectures",
                                                              "auto_map",
                                                              "bos_token_id",
                                                              "chunk_size_feed_forward",
                                                              "dtype",
                                                              "eos_token_id",
                                                              "finetuning_task",
                                                              "id2label",
                                                              "is_decoder",
                                                              "is_encoder_decoder",
                                                              "label2id",
                                                              "model_type",
                                                              "output_attentions",
                                                              "output_hidden_states",
                                                              "output_router_logits",
                                                              "pad_token_id",
                                                              "pretraining_tp",
                                                              "return_dict",
                                                              "torch_dtype",
                                                              "transformers_version",
                                                              "use_cache"};

// Stricter than the library, which takes 2.7 and true for whole numbers.
template <class T>
bool is_of_type(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return value.is_number_integer();
  } else if constexpr (std::is_same_v<T, double>) {
    return value.is_number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) {
             return is_of_type<typename T::value_type>(one);
           });
  }
}

bool is_id(const Json& value) {
  return value.is_null() || value.is_number_integer();
}

bool is_dtype(const Json& value) {
  constexpr std::array<std::string_view, 7> kKnown = {"float64", "double", "float32", "float",
                                                      "float16", "half",   "bfloat16"};
  return value.is_null() ||
         (value.is_string() &&
          std::find(kKnown.begin(), kKnown.end(), value.get<std::string>()) != kKnown.end());
}

}  // namespace

void HfConfig::check_unread_types() const {
  using IsRight = bool (*)(const Json&);
  const IsRight is_flag = [](const Json& value) { return value.is_boolean() || value.is_null(); };
  const IsRight is_ids = [](const Json& value) {
    return is_id(value) || is_of_type<std::vector<int64_t>>(value);
  };
  struct Rule {
    const char* field;
    IsRight is_right;
    const char* expected;
  };
  const std::array<Rule, 9> rules = {{
      {"dtype", is_dtype, "float32, float16, bfloat16, float64 or null"},
      {"torch_dtype", is_dtype, "float32, float16, bfloat16, float64 or null"},
      {"bos_token_id", is_id, "an id or null"},
      {"eos_token_id", is_ids, "an id, a list of ids or null"},
      {"pad_token_id", is_id, "an id or null"},
      {"use_cache", is_flag, "true or false"},
      {"output_router_logits", is_flag, "true or false"},
      {"output_attentions", is_flag, "true or false"},
      {"output_hidden_states", is_flag, "true or false"},
  }};
  for (const Rule& rule : rules) {
    const auto at = fields_.find(rule.field);
    check<ConfigError>(at == fields_.end() || rule.is_right(*at), "{}: {} is {}: expected {}",
                       source_, rule.field, at == fields_.end() ? "" : at->dump(), rule.expected);
  }
}

namespace {

// Python writes Infinity and NaN, which JSON does not have, where newer files have an object.
std::string with_tagged_numbers(const std::string& text) {
  constexpr std::array<std::string_view, 3> kNumbers = {"-Infinity", "Infinity", "NaN"};
  std::string tagged;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    const auto number = std::find_if(kNumbers.begin(), kNumbers.end(), [&](std::string_view one) {
      return !is_in_string && rest.starts_with(one);
    });
    if (number != kNumbers.end()) {
      tagged += fmt::format(R"({{"__float__": "{}"}})", *number);
      i += number->size();
      continue;
    }
    const bool is_escaped = is_in_string && text[i] == '\\' && i + 1 < text.size();
    is_in_string = (text[i] == '"') != is_in_string;
    tagged.append(text, i, is_escaped ? 2 : 1);
    i += is_escaped ? 2 : 1;
  }
  return tagged;
}

}  // namespace

HfConfig HfConfig::from_file(const std::filesystem::path& path) {
  const std::string text = with_tagged_numbers(read_text(path));
  Json fields = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check<FileError>(fields.is_object(), "{}: is not a JSON object; is it cut short?", path.string());
  return {std::move(fields), path.string()};
}

HfConfig::HfConfig(Json fields, std::string source)
    : fields_(std::move(fields)), source_(std::move(source)) {}

const Json* HfConfig::find(const std::string& field, const std::vector<std::string>& old_names) {
  const Json* found = nullptr;
  std::string found_name;
  std::vector<std::string> names = {field};
  names.insert(names.end(), old_names.begin(), old_names.end());
  for (const std::string& name : names) {
    read_.insert(name);
    const auto at = fields_.find(name);
    if (at == fields_.end()) {
      continue;
    }
    check<ConfigError>(found == nullptr || *found == *at,
                       "{}: {} is {} and {} is {}: they mean the same, keep one of them", source_,
                       found_name, found == nullptr ? "" : found->dump(), name, at->dump());
    found = &*at;
    found_name = name;
  }
  return found;
}

template <class T>
T HfConfig::get(const std::string& field, const T& standard) {
  const Json* value = find(field);
  if (value == nullptr || value->is_null()) {
    return standard;
  }
  check<ConfigError>(is_of_type<T>(*value),
                     "{}: {} is {}, which is of the wrong type: expected something like {}",
                     source_, field, value->dump(), Json(standard).dump());
  return value->get<T>();
}
template bool HfConfig::get(const std::string&, const bool&);
template int64_t HfConfig::get(const std::string&, const int64_t&);
template double HfConfig::get(const std::string&, const double&);
template std::string HfConfig::get(const std::string&, const std::string&);
template std::vector<double> HfConfig::get(const std::string&, const std::vector<double>&);
template std::vector<int64_t> HfConfig::get(const std::string&, const std::vector<int64_t>&);
template std::vector<std::string> HfConfig::get(const std::string&,
                                                const std::vector<std::string>&);

std::vector<std::string> HfConfig::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : fields_.items()) {
    const bool is_harmless =
        std::find(kWithoutMeaning.begin(), kWithoutMeaning.end(), name) != kWithoutMeaning.end();
    if (!read_.contains(name) && !is_harmless) {
      names.push_back(name);
    }
  }
  return names;
}

RawValue raw_from_json(const Json& value, const std::string& where) {
  const auto word = [&](const Json& one) {
    check<ConfigError>(one.is_string() || one.is_number() || one.is_boolean(),
                       "{} is {}: expected a number, a word or true or false", where, value.dump());
    return one.is_string() ? one.get<std::string>() : one.dump();
  };
  if (!value.is_array()) {
    return {{word(value)}, false};
  }
  RawValue raw{{}, true};
  for (const Json& one : value) {
    raw.items.push_back(word(one));
  }
  return raw;
}

}  // namespace switchyard
