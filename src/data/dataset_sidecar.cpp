#include "data/dataset_sidecar.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kNumFields = 9;

constexpr const char* kAdvice = "write the data set again with `switchyard tokenize`";

// Hashes are hexadecimal strings: JSON readers round large numbers.
template <class Unsigned>
std::string hex(Unsigned value) {
  return fmt::format("{:0{}x}", value, 2 * sizeof(Unsigned));
}

class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, const std::string& path)
      : object_(object), path_(path) {}

  int64_t number(const char* name, int64_t least) const {
    const nlohmann::json& value = field(name);
    check<FileError>(value.is_number_integer() && value.get<int64_t>() >= least,
                     "{}: {} is {}, expected a whole number from {} on; {}", path_, name,
                     value.dump(), least, kAdvice);
    return value.get<int64_t>();
  }

  std::string text(const char* name) const {
    const nlohmann::json& value = field(name);
    check<FileError>(value.is_string(), "{}: {} is {}, expected a string; {}", path_, name,
                     value.dump(), kAdvice);
    return value.get<std::string>();
  }

  template <class Unsigned>
  Unsigned hash(const char* name) const {
    const std::string digits = text(name);
    Unsigned value = 0;
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, value, 16);
    check<FileError>(
        result.ec == std::errc() && result.ptr == end && digits.size() == 2 * sizeof(Unsigned),
        "{}: {} is \"{}\", expected {} hexadecimal digits; {}", path_, name, digits,
        2 * sizeof(Unsigned), kAdvice);
    return value;
  }

 private:
  const nlohmann::json& field(const char* name) const {
    const auto found = object_.find(name);
    check<FileError>(found != object_.end(), "{}: {} is missing; {}", path_, name, kAdvice);
    return *found;
  }

  const nlohmann::json& object_;
  const std::string& path_;
};

}  // namespace

std::string to_json(const DatasetSidecar& sidecar) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["tokenizer"] = sidecar.tokenizer;
  json["tokenizer_hash"] = hex(sidecar.tokenizer_hash);
  json["vocab_size"] = sidecar.vocab_size;
  json["end_of_document"] = sidecar.end_of_document;
  json["num_documents"] = sidecar.num_documents;
  json["num_tokens"] = sidecar.num_tokens;
  json["bin_crc32c"] = hex(sidecar.bin_crc32c);
  json["idx_crc32c"] = hex(sidecar.idx_crc32c);
  return json.dump(2) + "\n";
}

DatasetSidecar sidecar_from_json(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  check<FileError>(json.is_object(), "{} is not a JSON object; {}", path, kAdvice);
  const FieldReader read(json, path);
  const int64_t version = read.number("version", 1);
  check<FileError>(version == kVersion,
                   "{} has version {}, this program reads version {}; use the program that wrote "
                   "it or tokenize again",
                   path, version, kVersion);
  DatasetSidecar sidecar;
  sidecar.tokenizer = read.text("tokenizer");
  sidecar.tokenizer_hash = read.hash<uint64_t>("tokenizer_hash");
  sidecar.vocab_size = read.number("vocab_size", 1);
  sidecar.end_of_document = read.number("end_of_document", -1);
  sidecar.num_documents = read.number("num_documents", 0);
  sidecar.num_tokens = read.number("num_tokens", 0);
  sidecar.bin_crc32c = read.hash<uint32_t>("bin_crc32c");
  sidecar.idx_crc32c = read.hash<uint32_t>("idx_crc32c");
  check<FileError>(sidecar.end_of_document < sidecar.vocab_size,
                   "{}: end_of_document is {}, outside the vocabulary of {}; {}", path,
                   sidecar.end_of_document, sidecar.vocab_size, kAdvice);
  check<FileError>(std::ssize(json) == kNumFields, "{} has fields that are not known; {}", path,
                   kAdvice);
  return sidecar;
}

}  // namespace switchyard
