#include "train/describe_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/settings.h"
#include "data/tokenizer.h"
#include "hub/origin.h"
#include "train/model_source.h"

namespace switchyard {
namespace {

std::string describe_family(const ModelSource& source) {
  if (!source.record.origin.empty()) {
    return source.record.origin.value("model_type", "unknown") + ", as it was imported";
  }
  try {
    const Origin origin = origin_from_scratch(source.config, "", at::kFloat);
    return origin.family->model_type + ", when it is exported";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::string describe_tokenizer(const ModelSource& source) {
  if (source.tokenizer.empty()) {
    return "none";
  }
  try {
    const auto tokenizer = make_tokenizer(source.tokenizer);
    return fmt::format("{}, {} tokens, {} ends a document, hash {:016x}", tokenizer->name(),
                       tokenizer->vocab_size(), tokenizer->end_of_document(),
                       tokenizer->fingerprint());
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string describe_model(const std::filesystem::path& checkpoint) {
  const ModelSource source = open_model_source(checkpoint);
  std::string text =
      fmt::format("  {:<18}{}\n  {:<18}{}\n  settings that are not the default\n", "family",
                  describe_family(source), "tokenizer", describe_tokenizer(source));
  for (const Setting& setting : settings()) {
    if (!setting.has_default_value(source.config)) {
      text += fmt::format("    {:<36} {}\n", setting.name, setting.print(source.config));
    }
  }
  return text;
}

}  // namespace switchyard
