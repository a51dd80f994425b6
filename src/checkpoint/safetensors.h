#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/files.h"
#include "base/mapped_file.h"
#include "base/streamed_file.h"

namespace switchyard {

// Safetensors files (github.com/huggingface/safetensors): 8 bytes little-endian length, a JSON
// header {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}, raw data.

// One tensor of such a file.
struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // offset of its bytes within the file
  int64_t end = 0;
  int64_t num_bytes() const { return end - begin; }
};

// "F32", "BF16", ... Throws FileError for a dtype that the format does not have.
std::string_view safetensors_dtype(at::ScalarType dtype);
// And back. Throws FileError that starts with `where` and lists the known ones.
at::ScalarType dtype_from_safetensors(const std::string& name, const std::string& where);

// Reads one file, which must be exactly as the format says: no overlap, no gap, nothing after the
// last tensor, no name twice, byte counts that follow from dtype and shape.
class SafetensorsFile {
 public:
  // Throws FileError, naming the file and the tensor, when anything is not as it should be.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const {
    return entries_;
  }  // as they lie in the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(const std::string& name) const;   // null when there is none
  uint32_t header_checksum() const { return header_checksum_; }  // CRC-32C of length and header

  // The tensor's bytes in memory, mapped from the file and read when touched; it must not be
  // written to. It may outlive this object. Throws FileError when there is no such tensor. [shape]
  at::Tensor tensor(const std::string& name) const;

  // Reads `size` bytes from `offset` within the tensor. Throws FileError when the disk fails.
  void read(const SafetensorsEntry& entry, int64_t offset, void* into, int64_t size) const;

 private:
  InputFile file_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
  uint32_t header_checksum_ = 0;
};

struct SafetensorsDeclaration {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

// Bytes of a tensor that share one checksum: what a partial read must read at least.
constexpr int64_t kChecksumBlockBytes = int64_t{4} << 20;

// Writes one file, tensor after tensor, so that memory does not grow with it. The file appears
// under its name when finish() returns; without finish() nothing is left behind.
class SafetensorsWriter {
 public:
  // Throws FileError when the file cannot be made, is longer than the disk has room for, a name
  // comes twice or a dtype is none of the format's.
  SafetensorsWriter(const std::filesystem::path& path,
                    std::vector<SafetensorsDeclaration> declarations,
                    const std::map<std::string, std::string>& metadata = {});

  // The next tensor as declared, on any device and of any strides. Returns the CRC-32C of each
  // kChecksumBlockBytes of its bytes. Throws ShapeError when it is not as declared.
  std::vector<uint32_t> write(const at::Tensor& values);

  // Syncs the file and gives it its name. Throws FileError, and ShapeError when tensors are
  // missing.
  void finish();

  int64_t num_bytes() const { return num_bytes_; }  // of the whole file
  uint32_t header_checksum() const { return header_checksum_; }

 private:
  std::vector<SafetensorsDeclaration> declarations_;
  size_t next_ = 0;
  int64_t num_bytes_ = 0;
  uint32_t header_checksum_ = 0;
  StreamedFile file_;
};

}  // namespace switchyard
