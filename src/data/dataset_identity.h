#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "data/indexed_dataset.h"

namespace switchyard {

// Which data set it is, wherever it lies.
struct DatasetIdentity {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  uint32_t checksum = 0;  // CRC-32C of .bin as the sidecar states it; see identity_of()

  bool operator==(const DatasetIdentity&) const = default;
};

// Reads no tokens of a data set with a sidecar. Without one the checksum is that of .idx followed
// by the first megabyte of .bin, so that a change behind that is not seen.
DatasetIdentity identity_of(const IndexedDataset& set);

// "600 documents, 12345 tokens, checksum 0123abcd"
std::string describe(const DatasetIdentity& identity);

nlohmann::json to_json(const DatasetIdentity& identity);
// Throws FileError, naming `source`, for what to_json() does not write.
DatasetIdentity dataset_identity_from_json(const nlohmann::json& json, const std::string& source);

}  // namespace switchyard
