#include "checkpoint/part_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/crc32c.h"
#include "checkpoint/error.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/safetensors.h"

namespace switchyard {
namespace {

// Bytes of one entry, read by whole blocks and never handed out unverified.
class BlockReader {
 public:
  BlockReader(const SafetensorsFile& file, const FileIndex& index, const IndexEntry& entry)
      : file_(file),
        stored_(*file.find(entry.key)),
        entry_(entry),
        block_bytes_(index.block_bytes) {}

  // Offsets within the entry; they must not fall from call to call, or blocks are read again.
  void copy(int64_t offset, std::byte* into, int64_t size) {
    while (size > 0) {
      const int64_t block = offset / block_bytes_;
      const int64_t begin = offset - block * block_bytes_;
      const int64_t count = std::min(size, block_size(block) - begin);
      if (count == block_size(block)) {
        read(block, into);  // all of it is wanted: straight to its place
      } else {
        hold(block);
        std::memcpy(into, buffer_.get() + begin, static_cast<size_t>(count));
      }
      offset += count;
      into += count;
      size -= count;
    }
  }

  void verify_all() {
    for (int64_t block = 0; block * block_bytes_ < stored_.num_bytes(); ++block) {
      hold(block);
    }
  }

 private:
  int64_t block_size(int64_t block) const {
    return std::min(block_bytes_, stored_.num_bytes() - block * block_bytes_);
  }

  void read(int64_t block, std::byte* into) const {
    file_.read(stored_, block * block_bytes_, into, block_size(block));
    const uint32_t found = crc32c(into, static_cast<size_t>(block_size(block)));
    check<DamagedCheckpoint>(found == entry_.checksums[static_cast<size_t>(block)],
                             "{}: block {} of \"{}\" does not match its checksum: the file was "
                             "altered or its disk is failing",
                             file_.path().string(), block, entry_.key);
  }

  void hold(int64_t block) {
    if (block != held_) {
      if (buffer_ == nullptr) {
        buffer_ = std::make_unique_for_overwrite<std::byte[]>(
            static_cast<size_t>(std::min(block_bytes_, stored_.num_bytes())));
      }
      held_ = -1;
      read(block, buffer_.get());
      held_ = block;
    }
  }

  const SafetensorsFile& file_;
  const SafetensorsEntry& stored_;
  const IndexEntry& entry_;
  int64_t block_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  int64_t held_ = -1;  // the block in buffer_
};

// A part and the memory to read it into: its own, or a copy where that is elsewhere or has gaps.
struct Target {
  Box box;
  at::Tensor values;  // contiguous, on the CPU
};

Target target_of(const TensorPart& part) {
  const bool is_in_place = part.values.is_cpu() && part.values.is_contiguous();
  return {box_of(part),
          is_in_place ? part.values
                      : at::empty(part.values.sizes(), part.values.options().device(at::kCPU))};
}

void read_overlap(BlockReader& reader, const Box& stored, const Box& overlap,
                  const Target& target) {
  const auto item = static_cast<int64_t>(target.values.element_size());
  auto* into = static_cast<std::byte*>(target.values.mutable_data_ptr());
  for_each_run(overlap, stored, target.box,
               [&](int64_t in_stored, int64_t in_target, int64_t count) {
                 reader.copy(in_stored * item, into + in_target * item, count * item);
               });
}

SafetensorsFile open_data_file(const std::filesystem::path& folder, const FileIndex& index) {
  SafetensorsFile file(folder / index.file);
  const std::string name = file.path().string();
  check<DamagedCheckpoint>(file.header_checksum() == index.header_checksum,
                           "{}: its header does not match its checksum: the file was altered",
                           name);
  for (const IndexEntry& entry : index.entries) {
    const SafetensorsEntry* stored = file.find(entry.key);
    check<DamagedCheckpoint>(
        stored != nullptr && stored->dtype == entry.dtype && stored->shape == entry.box.shape,
        "{}: does not hold \"{}\" as its index says", name, entry.key);
  }
  return file;
}

using Targets = std::multimap<std::string, Target>;

void read_file(const std::filesystem::path& folder, const FileIndex& index,
               const Targets& targets) {
  std::optional<SafetensorsFile> file;  // opened when needed: most ranks need few of many files
  for (const IndexEntry& entry : index.entries) {
    std::optional<BlockReader> reader;
    const auto [begin, end] = targets.equal_range(entry.tensor);
    for (auto target = begin; target != end; ++target) {
      const auto overlap = intersect(entry.box, target->second.box);
      if (!overlap) {
        continue;
      }
      if (!file) {
        file.emplace(open_data_file(folder, index));
      }
      if (!reader) {
        reader.emplace(*file, index, entry);
      }
      read_overlap(*reader, entry.box, *overlap, target->second);
    }
  }
}

}  // namespace

void read_parts(const std::filesystem::path& folder, const CheckpointIndex& index,
                const std::vector<TensorPart>& parts) {
  Targets targets;
  std::vector<at::Tensor> read;  // in the order of `parts`
  read.reserve(parts.size());
  for (const TensorPart& part : parts) {
    read.push_back(targets.emplace(part.name, target_of(part))->second.values);
  }
  read_as_checkpoint([&] {
    for (const FileIndex& file : index.files) {
      read_file(folder, file, targets);
    }
  });
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!read[i].is_same(parts[i].values)) {
      parts[i].values.copy_(read[i]);
    }
  }
}

void verify_blocks(const std::filesystem::path& folder, const CheckpointIndex& index) {
  read_as_checkpoint([&] {
    for (const FileIndex& file_index : index.files) {
      const SafetensorsFile file = open_data_file(folder, file_index);
      for (const IndexEntry& entry : file_index.entries) {
        BlockReader(file, file_index, entry).verify_all();
      }
    }
  });
}

}  // namespace switchyard
