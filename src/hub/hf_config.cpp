#include "hub/hf_config.h"

#include <algorithm>
#include <array>
#include <string_view>

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

}  // namespace

HfConfig HfConfig::from_file(const std::filesystem::path& path) {
  const std::string text = read_text(path);
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
  try {
    return value->get<T>();
  } catch (const Json::exception&) {
    throw ConfigError(
        fmt::format("{}: {} is {}, which is of the wrong type: expected something "
                    "like {}",
                    source_, field, value->dump(), Json(standard).dump()));
  }
}
template bool HfConfig::get(const std::string&, const bool&);
template int64_t HfConfig::get(const std::string&, const int64_t&);
template double HfConfig::get(const std::string&, const double&);
template std::string HfConfig::get(const std::string&, const std::string&);
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
