#pragma once

#include <cstdint>
#include <string_view>

namespace switchyard {

// Where each field of an .idx file lies (IndexedDataset describes the format). Offsets in bytes.
struct IndexLayout {
  static constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
  static constexpr uint64_t kVersion = 1;
  static constexpr int64_t kVersionOffset = 9;
  static constexpr int64_t kTypeOffset = 17;
  static constexpr int64_t kSequencesOffset = 18;
  static constexpr int64_t kBoundsOffset = 26;
  static constexpr int64_t kHeaderBytes = 34;

  int64_t num_sequences = 0;
  int64_t num_documents = 0;

  int64_t length_offset(int64_t sequence) const { return kHeaderBytes + 4 * sequence; }
  int64_t pointer_offset(int64_t sequence) const {
    return length_offset(num_sequences) + 8 * sequence;
  }
  int64_t bound_offset(int64_t document) const {
    return pointer_offset(num_sequences) + 8 * document;
  }
  int64_t size() const { return bound_offset(num_documents + 1); }
};

}  // namespace switchyard
