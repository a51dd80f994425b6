#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <set>
#include <tuple>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "base/crc32c.h"
#include "base/error.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr int64_t kDataAlignment = 64;            // where the data of files that we write starts

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};
constexpr DtypeName kDtypes[] = {
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
};

std::string known_dtypes() {
  std::vector<std::string_view> names;
  for (const DtypeName& known : kDtypes) {
    names.push_back(known.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Refuses what the JSON library would let pass: a name that comes twice (it keeps the last one) and
// nesting deeper than the format's.
class StrictHeader {
 public:
  explicit StrictHeader(std::string path) : path_(std::move(path)) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int kMaxDepth = 3;
    check<FileError>(depth <= kMaxDepth, "{}: the header is nested deeper than the format allows",
                     path_);
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      names_[level + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      check<FileError>(names_[level].insert(name).second, "{}: \"{}\" comes twice in the header",
                       path_, name);
    }
    return true;
  }

 private:
  std::string path_;
  std::set<std::string> names_[5];  // of the object that is open at each depth
};

Json parse_header(const std::string& header, const std::string& path) {
  // The JSON library takes a zero byte for the end of its input.
  check<FileError>(header.find('\0') == std::string::npos, "{}: the header holds a zero byte",
                   path);
  check<FileError>(header.starts_with('{'),
                   "{}: is not a safetensors file: its header does not start with {{", path);
  StrictHeader strict(path);
  try {
    return Json::parse(header, [&strict](int depth, Json::parse_event_t event, Json& parsed) {
      return strict(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: the header is not JSON ({})", path, error.what()));
  }
}

// A whole number from 0 to 2^63 - 1, and nothing else that JSON might hold.
int64_t size_from(const Json& json, const std::string& where) {
  check<FileError>(json.is_number_unsigned() && json.get<uint64_t>() <= INT64_MAX,
                   "{} is {}: a whole number from 0 up is expected", where, json.dump());
  return json.get<int64_t>();
}

std::vector<int64_t> sizes_from(const Json& json, const std::string& where) {
  check<FileError>(json.is_array(), "{} is {}: a list of numbers is expected", where, json.dump());
  std::vector<int64_t> sizes;
  for (const Json& one : json) {
    sizes.push_back(size_from(one, where));
  }
  return sizes;
}

at::ScalarType dtype_from(const Json& json, const std::string& where) {
  for (const DtypeName& known : kDtypes) {
    if (json.is_string() && json.get_ref<const std::string&>() == known.name) {
      return known.dtype;
    }
  }
  throw FileError(
      fmt::format("{} is {}: one of {} is expected", where, json.dump(), known_dtypes()));
}

int64_t bytes_of(at::ScalarType dtype, const std::vector<int64_t>& shape,
                 const std::string& where) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) {
    check<FileError>(!__builtin_mul_overflow(bytes, size, &bytes),
                     "{} of shape [{}] is larger than any file", where, fmt::join(shape, ", "));
  }
  return bytes;
}

SafetensorsEntry entry_from(const std::string& name, const Json& json, int64_t data_begin,
                            const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, name);
  check<FileError>(json.is_object() && json.size() == 3 && json.contains("dtype") &&
                       json.contains("shape") && json.contains("data_offsets"),
                   "{}: exactly dtype, shape and data_offsets are expected", where);
  const auto offsets = sizes_from(json["data_offsets"], where + ": data_offsets");
  check<FileError>(offsets.size() == 2 && offsets[0] <= offsets[1],
                   "{}: data_offsets are [{}]: begin and end are expected", where,
                   fmt::join(offsets, ", "));
  SafetensorsEntry entry{name, dtype_from(json["dtype"], where + ": dtype"),
                         sizes_from(json["shape"], where + ": shape")};
  const int64_t expected = bytes_of(entry.dtype, entry.shape, where);
  check<FileError>(offsets[1] - offsets[0] == expected,
                   "{} has {} bytes, its dtype and shape [{}] make {}", where,
                   offsets[1] - offsets[0], fmt::join(entry.shape, ", "), expected);
  check<FileError>(offsets[1] <= INT64_MAX - data_begin, "{} ends past any file", where);
  entry.begin = data_begin + offsets[0];
  entry.end = data_begin + offsets[1];
  return entry;
}

// The entries must follow each other without gap or overlap from the header to the end of the file.
void check_layout(const std::vector<SafetensorsEntry>& entries, int64_t data_begin,
                  int64_t file_size, const std::string& path) {
  int64_t end = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    check<FileError>(entry.end <= file_size,
                     "{}: tensor \"{}\" ends at byte {}, the file at {}: it is cut short", path,
                     entry.name, entry.end, file_size);
    check<FileError>(entry.begin == end,
                     "{}: tensor \"{}\" starts at byte {}, the one before it ends at {}: {}", path,
                     entry.name, entry.begin, end, entry.begin < end ? "they overlap" : "a gap");
    end = entry.end;
  }
  check<FileError>(end == file_size, "{}: {} bytes follow the last tensor", path, file_size - end);
}

std::map<std::string, std::string> metadata_from(const Json& json, const std::string& path) {
  check<FileError>(json.is_object(), "{}: __metadata__ is not an object of texts", path);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    check<FileError>(value.is_string(), "{}: __metadata__ \"{}\" is not a text", path, key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Checksums of bytes that pass by, one for each full block and one for the rest.
class BlockChecksums {
 public:
  int64_t room_in_block() const { return kChecksumBlockBytes - filled_; }

  void add(const void* bytes, int64_t size) {  // at most room_in_block()
    current_ = crc32c(bytes, static_cast<size_t>(size), current_);
    filled_ += size;
    if (filled_ == kChecksumBlockBytes) {
      close_block();
    }
  }

  std::vector<uint32_t> finish() {
    if (filled_ > 0) {
      close_block();
    }
    return std::move(done_);
  }

 private:
  void close_block() {
    done_.push_back(current_);
    current_ = 0;
    filled_ = 0;
  }

  std::vector<uint32_t> done_;
  uint32_t current_ = 0;
  int64_t filled_ = 0;
};

// Calls visit(part) for parts of `values` in order, contiguous and on the CPU. Copies a few MB at a
// time, and nothing where `values` is so already.
void for_each_contiguous_part(const at::Tensor& values,
                              const std::function<void(const at::Tensor&)>& visit) {
  constexpr auto kMaxCopyBytes = static_cast<size_t>(kChecksumBlockBytes);
  if (values.is_contiguous() && values.is_cpu()) {
    visit(values);
  } else if (values.nbytes() <= kMaxCopyBytes) {
    visit(values.cpu().contiguous());
  } else if (values.size(0) == 1) {
    for_each_contiguous_part(values.select(0, 0), visit);
  } else {
    const size_t row_bytes = values.nbytes() / static_cast<size_t>(values.size(0));
    const auto rows = static_cast<int64_t>(std::max<size_t>(1, kMaxCopyBytes / row_bytes));
    for (int64_t begin = 0; begin < values.size(0); begin += rows) {
      const int64_t count = std::min(rows, values.size(0) - begin);
      for_each_contiguous_part(values.narrow(0, begin, count), visit);
    }
  }
}

// `text` as JSON. Throws FileError when it is not UTF-8.
std::string quoted(const std::string& text, const std::filesystem::path& path) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw FileError(fmt::format("{}: a name is not UTF-8 text", path.string()));
  }
}

}  // namespace

std::string_view safetensors_dtype(at::ScalarType dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) {
      return known.name;
    }
  }
  throw FileError(fmt::format("safetensors files cannot hold {}: one of {} is expected",
                              c10::toString(dtype), known_dtypes()));
}

at::ScalarType dtype_from_safetensors(const std::string& name, const std::string& where) {
  return dtype_from(Json(name), where);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string name = path.string();
  check<FileError>(file_.size() >= kLengthBytes,
                   "{}: is not a safetensors file: it has {} bytes, at least 8 are expected", name,
                   file_.size());
  uint64_t length = 0;
  file_.read(0, &length, kLengthBytes);
  check<FileError>(length <= kMaxHeaderBytes,
                   "{}: is not a safetensors file: its header would have {} bytes, at most {} are "
                   "allowed",
                   name, length, kMaxHeaderBytes);
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  check<FileError>(data_begin <= file_.size(),
                   "{}: its header ends at byte {}, the file at {}: it is cut short", name,
                   data_begin, file_.size());
  std::string header(length, '\0');
  file_.read(kLengthBytes, header.data(), static_cast<int64_t>(length));
  header_checksum_ = crc32c(header.data(), header.size(), crc32c(&length, kLengthBytes));

  const Json json = parse_header(header, name);
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      metadata_ = metadata_from(value, name);
    } else {
      entries_.push_back(entry_from(key, value, data_begin, name));
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  check_layout(entries_, data_begin, file_.size(), name);
  for (size_t i = 0; i < entries_.size(); ++i) {
    by_name_[entries_[i].name] = i;
  }
  mapping_ = std::make_shared<MappedFile>(name);
  check<FileError>(static_cast<int64_t>(mapping_->bytes().size()) == file_.size(),
                   "{}: changed while it was opened", name);
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  check<FileError>(entry != nullptr, "{}: has no tensor \"{}\" among its {}", path().string(), name,
                   entries_.size());
  const auto options = at::TensorOptions(entry->dtype);
  if (entry->num_bytes() == 0) {
    return at::empty(entry->shape, options);
  }
  const std::byte* bytes = mapping_->bytes().data() + entry->begin;
  // Files of others may lay tensors at any byte; reading those in place is undefined.
  if (reinterpret_cast<uintptr_t>(bytes) % c10::elementSize(entry->dtype) != 0) {
    at::Tensor copy = at::empty(entry->shape, options);
    std::memcpy(copy.mutable_data_ptr(), bytes, static_cast<size_t>(entry->num_bytes()));
    return copy;
  }
  const auto keep_mapping = [mapping = mapping_](void*) {};
  return at::from_blob(const_cast<std::byte*>(bytes), entry->shape, keep_mapping, options);
}

void SafetensorsFile::read(const SafetensorsEntry& entry, int64_t offset, void* into,
                           int64_t size) const {
  check<FileError>(offset >= 0 && size >= 0 && size <= entry.num_bytes() - offset,
                   "{}: tensor \"{}\" has {} bytes, byte {} was asked for", path().string(),
                   entry.name, entry.num_bytes(), offset + size);
  file_.read(entry.begin + offset, into, size);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<SafetensorsDeclaration> declarations,
                                     const std::map<std::string, std::string>& metadata)
    : declarations_(std::move(declarations)), file_(path.string()) {
  std::string header;
  std::set<std::string> names{"__metadata__"};
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      header += fmt::format("{}:{},", quoted(key, path), quoted(value, path));
    }
    header.back() = '}';
    header += ',';
  }
  int64_t end = 0;
  for (const auto& [name, dtype, shape] : declarations_) {
    const std::string where = fmt::format("{}: tensor \"{}\"", path.string(), name);
    check<FileError>(names.insert(name).second, "{} comes twice", where);
    const int64_t begin = end;
    end += bytes_of(dtype, shape, where);
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          quoted(name, path), safetensors_dtype(dtype), fmt::join(shape, ","),
                          begin, end);
  }
  if (!header.empty()) {
    header.pop_back();
  }
  header = "{" + header + "}";
  const auto unpadded = static_cast<int64_t>(header.size()) + kLengthBytes;
  header.append(static_cast<size_t>((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment),
                ' ');
  check<FileError>(static_cast<int64_t>(header.size()) <= kMaxHeaderBytes,
                   "{}: {} tensors make a header of {} bytes, the format allows {}: write several "
                   "files",
                   path.string(), declarations_.size(), header.size(), kMaxHeaderBytes);

  const uint64_t length = header.size();
  std::string start(reinterpret_cast<const char*>(&length), kLengthBytes);
  start += header;
  header_checksum_ = crc32c(start.data(), start.size());
  num_bytes_ = static_cast<int64_t>(start.size()) + end;
  file_.write(start);
}

std::vector<uint32_t> SafetensorsWriter::write(const at::Tensor& values) {
  check<ShapeError>(next_ < declarations_.size(), "more tensors are written than the {} declared",
                    declarations_.size());
  const auto& [name, dtype, shape] = declarations_[next_++];
  check<ShapeError>(values.scalar_type() == dtype && values.sizes() == shape,
                    "tensor \"{}\" is {} [{}], it was declared as {} [{}]", name,
                    c10::toString(values.scalar_type()), fmt::join(values.sizes(), ", "),
                    c10::toString(dtype), fmt::join(shape, ", "));
  BlockChecksums checksums;
  for_each_contiguous_part(values.detach(), [&](const at::Tensor& part) {
    const auto* next = static_cast<const std::byte*>(part.const_data_ptr());
    int64_t rest = static_cast<int64_t>(part.nbytes());
    while (rest > 0) {
      const int64_t size = std::min(rest, checksums.room_in_block());
      checksums.add(next, size);
      file_.write(next, static_cast<size_t>(size));
      next += size;
      rest -= size;
    }
  });
  return checksums.finish();
}

void SafetensorsWriter::finish() {
  check<ShapeError>(next_ == declarations_.size(), "{} tensors were declared, {} written",
                    declarations_.size(), next_);
  file_.finish();
  file_.publish();
}

}  // namespace switchyard
