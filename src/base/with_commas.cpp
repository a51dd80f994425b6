#include "base/with_commas.h"

namespace switchyard {

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t i = std::ssize(text) - 3; i > 0; i -= 3) {
    text.insert(static_cast<size_t>(i), 1, ',');
  }
  return text;
}

}  // namespace switchyard
