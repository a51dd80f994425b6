#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace switchyard {

// Tokens and their ids. Ids need not be dense: one that no token has is a hole.
class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  Vocabulary() = default;
  // Of several tokens with one text, and of several texts with one id, the last counts.
  explicit Vocabulary(std::vector<std::pair<std::string, int32_t>> tokens);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;  // the map refers to the texts
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? kNone : found->second;
  }

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }  // one more than the largest
  int32_t num_tokens() const { return static_cast<int32_t>(ids_.size()); }
  // Empty for a hole.
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

// Ids of the tokens <0x00> to <0xFF>, with which a model writes characters that it lacks; kNone for
// those that are not there.
std::vector<int32_t> byte_token_ids(const Vocabulary& vocabulary);

}  // namespace switchyard
