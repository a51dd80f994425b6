#include "checkpoint/part_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/crc32c.h"
#include "checkpoint/convert.h"
#include "checkpoint/error.h"
#include "checkpoint/rank_file.h"

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
    if (entry_.checksums.empty()) {
      const auto element = static_cast<int64_t>(c10::elementSize(entry_.dtype));
      file_.read(stored_, entry_.first_in_file * element + offset, into, size);
      return;
    }
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

// `scales` is empty where the entry has none.
void read_overlap(BlockReader& reader, const IndexEntry& entry, const std::vector<float>& scales,
                  const Box& overlap, const Target& target) {
  const auto from_size = static_cast<int64_t>(c10::elementSize(entry.dtype));
  const auto to_size = static_cast<int64_t>(target.values.element_size());
  const at::ScalarType to_dtype = target.values.scalar_type();
  auto* into = static_cast<std::byte*>(target.values.mutable_data_ptr());
  constexpr int64_t kConvertedAtOnce = 1 << 16;
  std::vector<std::byte> unconverted;
  std::vector<float> decoded;
  for_each_run(overlap, entry.box, target.box,
               [&](int64_t in_stored, int64_t in_target, int64_t count) {
                 if (entry.dtype == to_dtype) {
                   reader.copy(in_stored * from_size, into + in_target * to_size, count * to_size);
                   return;
                 }
                 for (int64_t done = 0; done < count; done += kConvertedAtOnce) {
                   const int64_t now = std::min(kConvertedAtOnce, count - done);
                   unconverted.resize(static_cast<size_t>(now * from_size));
                   reader.copy((in_stored + done) * from_size, unconverted.data(), now * from_size);
                   std::byte* const converted = into + (in_target + done) * to_size;
                   if (!entry.scales) {
                     convert_values(entry.dtype, unconverted.data(), to_dtype, converted, now);
                     continue;
                   }
                   decoded.resize(static_cast<size_t>(now));
                   decode_blocks(*entry.scales, scales, entry.scales->first + in_stored + done, now,
                                 unconverted.data(), decoded.data());
                   convert_values(at::kFloat, decoded.data(), to_dtype, converted, now);
                 }
               });
}

// Of an entry that is not row-major. `stored`: the file's tensor, mapped.
void read_through_view(const at::Tensor& stored, const IndexEntry& entry, const Box& overlap,
                       const Target& target) {
  constexpr int64_t kElementsAtOnce = int64_t{1} << 22;
  const at::NoGradGuard no_grad;
  const FileView plain = FileView::plain(target.box.shape);
  for (const Box& part : slices_of(overlap, kElementsAtOnce)) {
    plain.in(target.values, part.shape, plain.first_of(part, target.box.start))
        .copy_(entry.view.in(stored, part.shape, entry.view.first_of(part, entry.box.start)));
  }
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
        stored != nullptr && stored->dtype == entry.dtype && stored->shape == entry.shape_in_file(),
        "{}: does not hold \"{}\" as its index says", name, entry.key);
  }
  return file;
}

}  // namespace

PartReader::PartReader(std::filesystem::path folder, const CheckpointIndex& index)
    : folder_(std::move(folder)), index_(index), files_(index.files.size()) {}
PartReader::~PartReader() = default;

const SafetensorsFile& PartReader::file(size_t i) {
  if (files_[i] == nullptr) {
    files_[i] = std::make_unique<SafetensorsFile>(open_data_file(folder_, index_.files[i]));
  }
  return *files_[i];
}

// Verified like any other entry, where the index has it as one.
std::vector<float> PartReader::scales_of(const IndexEntry& entry) {
  const BlockScales& blocks = *entry.scales;
  const auto found = std::find_if(index_.files.begin(), index_.files.end(),
                                  [&](const FileIndex& one) { return one.file == blocks.file; });
  check<DamagedCheckpoint>(found != index_.files.end(),
                           "\"{}\": its scales are in {}, which is not there", entry.key,
                           blocks.file);
  const SafetensorsFile& in = file(static_cast<size_t>(found - index_.files.begin()));
  const SafetensorsEntry* stored = in.find(blocks.key);
  check<DamagedCheckpoint>(stored != nullptr, "{}: does not hold the scales \"{}\" of \"{}\"",
                           in.path().string(), blocks.key, entry.key);
  IndexEntry scales{blocks.key, blocks.key, stored->dtype, stored->shape, {}, {}, {}, 0, {}};
  for (const IndexEntry& one : found->entries) {
    if (one.key == blocks.key) {
      scales.checksums = one.checksums;
    }
  }
  std::vector<std::byte> bytes(static_cast<size_t>(stored->num_bytes()));
  BlockReader(in, *found, scales).copy(0, bytes.data(), stored->num_bytes());
  const auto num_scales =
      stored->num_bytes() / static_cast<int64_t>(c10::elementSize(stored->dtype));
  const int64_t per_matrix = blocks.num_block_rows() * blocks.num_block_columns();
  check<DamagedCheckpoint>(blocks.first >= 0 && num_scales % per_matrix == 0 &&
                               blocks.first + entry.box.numel() <=
                                   num_scales / per_matrix * blocks.rows * blocks.columns,
                           "{}: the {} scales \"{}\" are not those of the blocks of \"{}\"",
                           in.path().string(), num_scales, blocks.key, entry.key);
  std::vector<float> values(static_cast<size_t>(num_scales));
  convert_values(stored->dtype, bytes.data(), at::kFloat, values.data(), num_scales);
  return values;
}

void PartReader::read(const TensorPart& part) {
  const Target target = target_of(part);
  read_as_checkpoint([&] {
    for (const StoredBox& stored : index_.tensors.at(part.name).boxes) {
      const IndexEntry& entry = index_.entry(stored);
      if (const auto overlap = intersect(entry.box, target.box)) {
        if (!entry.is_row_major()) {
          read_through_view(file(stored.file).tensor(entry.key), entry, *overlap, target);
          continue;
        }
        const bool is_decoded = entry.scales && target.values.scalar_type() != entry.dtype;
        const std::vector<float> scales = is_decoded ? scales_of(entry) : std::vector<float>();
        BlockReader reader(file(stored.file), index_.files[stored.file], entry);
        read_overlap(reader, entry, scales, *overlap, target);
      }
    }
  });
  if (!target.values.is_same(part.values)) {
    const at::NoGradGuard no_grad;
    part.values.copy_(target.values);
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
