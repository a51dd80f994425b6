#include "data/dataset_identity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace switchyard {

DatasetIdentity identity_of(const IndexedDataset& set) {
  return {.num_documents = set.num_documents(),
          .num_tokens = set.num_tokens(),
          .checksum = set.sidecar() ? set.sidecar()->bin_crc32c : set.checksum_of_beginning()};
}

std::string describe(const DatasetIdentity& identity) {
  return fmt::format("{} documents, {} tokens, checksum {:08x}", identity.num_documents,
                     identity.num_tokens, identity.checksum);
}

nlohmann::json to_json(const DatasetIdentity& identity) {
  return {{"documents", identity.num_documents},
          {"tokens", identity.num_tokens},
          {"crc32c", identity.checksum}};
}

DatasetIdentity dataset_identity_from_json(const nlohmann::json& json, const std::string& source) {
  const auto number = [&](const char* name) {
    check<FileError>(json.is_object() && json.contains(name) && json[name].is_number_integer(),
                     "{}: the data set {} has no number \"{}\"", source, json.dump(), name);
    return json[name].get<int64_t>();
  };
  return {.num_documents = number("documents"),
          .num_tokens = number("tokens"),
          .checksum = static_cast<uint32_t>(number("crc32c"))};
}

}  // namespace switchyard
