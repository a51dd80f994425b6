#include "checkpoint/sealed_json.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/error.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

std::string first_line(std::string_view checksum) {
  return fmt::format("{{\"crc32c\":\"{}\",\n", checksum);
}

std::string checksum_of(std::string_view bytes) {
  return fmt::format("{:08x}", crc32c(bytes.data(), bytes.size()));
}

template <class T>
bool holds(const Json& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return value.is_number_unsigned();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX
                                      : value.is_number_integer();
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return value.is_array() && std::all_of(value.begin(), value.end(), holds<int64_t>);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return value.is_array() && std::all_of(value.begin(), value.end(), holds<std::string>);
  } else {
    return true;
  }
}

}  // namespace

std::string write_sealed_json(const std::filesystem::path& path, const Json& content,
                              bool is_indented) {
  const int indent = is_indented ? 2 : -1;
  const std::string text = content.dump(indent, ' ', false, Json::error_handler_t::replace);
  const std::string rest = text.substr(1) + "\n";  // the first line has the opening brace
  std::string checksum = checksum_of(rest);
  write_text(path, first_line(checksum) + rest);
  return checksum;
}

SealedJson read_sealed_json(const std::filesystem::path& path) {
  const std::string text = read_as_checkpoint([&] { return read_text(path); });
  const size_t line = first_line("00000000").size();
  const std::string_view rest = std::string_view(text).substr(std::min(line, text.size()));
  const std::string checksum = checksum_of(rest);
  check<DamagedCheckpoint>(text.starts_with(first_line(checksum)),
                           "{}: does not match its checksum: it was altered or cut short",
                           path.string());
  try {
    return {checksum, Json::parse("{" + std::string(rest))};
  } catch (const Json::exception& error) {
    throw DamagedCheckpoint(fmt::format("{}: is not JSON ({})", path.string(), error.what()));
  }
}

void check_format(const Json& content, std::string_view format, int64_t newest,
                  const std::string& source) {
  const auto found = json_field<std::string>(content, "format", source);
  check<DamagedCheckpoint>(found == format, "{}: is a \"{}\", a \"{}\" is expected", source, found,
                           format);
  const auto version = json_field<int64_t>(content, "version", source);
  check<CheckpointError>(version >= 1 && version <= newest,
                         "{}: is of version {}, this program knows versions up to {}: use the "
                         "version that wrote it or a newer one",
                         source, version, newest);
}

template <class T>
T json_field(const Json& object, const std::string& name, const std::string& source) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  check<CheckpointError>(found != object.end(), "{}: the field \"{}\" is missing", source, name);
  check<CheckpointError>(holds<T>(*found), "{}: the field \"{}\" is {}, which is not its type",
                         source, name, found->dump());
  return found->get<T>();
}

template int64_t json_field(const Json&, const std::string&, const std::string&);
template uint64_t json_field(const Json&, const std::string&, const std::string&);
template std::string json_field(const Json&, const std::string&, const std::string&);
template Json json_field(const Json&, const std::string&, const std::string&);
template std::vector<int64_t> json_field(const Json&, const std::string&, const std::string&);
template std::vector<std::string> json_field(const Json&, const std::string&, const std::string&);

}  // namespace switchyard
