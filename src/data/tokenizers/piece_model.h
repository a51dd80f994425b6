#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace switchyard {

// Turns a piece of text, as it comes out of the pre-tokenizer, into ids. Const and thread-safe.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

}  // namespace switchyard
