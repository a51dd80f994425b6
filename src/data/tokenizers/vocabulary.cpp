#include "data/tokenizers/vocabulary.h"

#include <algorithm>

#include <fmt/format.h>

namespace switchyard {

Vocabulary::Vocabulary(std::vector<std::pair<std::string, int32_t>> tokens) {
  int32_t size = 0;
  for (const auto& [text, id] : tokens) {
    size = std::max(size, id + 1);
  }
  texts_.resize(static_cast<size_t>(size));
  ids_.reserve(tokens.size());
  for (auto& [text, id] : tokens) {
    std::string& place = texts_[static_cast<size_t>(id)];
    if (!place.empty()) {
      ids_.erase(place);
    }
    place = std::move(text);
    ids_[place] = id;
  }
}

std::vector<int32_t> byte_token_ids(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    ids.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
  }
  return ids;
}

}  // namespace switchyard
