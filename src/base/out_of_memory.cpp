#include "base/out_of_memory.h"

#include <charconv>
#include <new>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"

namespace switchyard {
namespace {

// libtorch has no exception of its own for it on CPUs, only these texts.
constexpr std::string_view kNoMemory = "can't allocate memory";
constexpr std::string_view kTried = "you tried to allocate ";
constexpr std::string_view kOverflow = "Storage size calculation overflowed";

std::string bytes_in(std::string_view text) {
  const size_t at = text.find(kTried);
  if (at == std::string_view::npos) {
    return "";
  }
  double bytes = 0;
  const std::string_view number = text.substr(at + kTried.size());
  std::from_chars(number.data(), number.data() + number.size(), bytes);
  constexpr double kMany = 100e9;
  return bytes < kMany ? fmt::format("{:.3g} GB", bytes * 1e-9)
                       : fmt::format("{:.0f} GB", bytes * 1e-9);
}

}  // namespace

std::optional<std::string> memory_asked_for(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "";
  }
  const std::string_view text = error.what();
  if (text.find(kOverflow) != std::string_view::npos) {
    return "more bytes than can be counted";
  }
  return text.find(kNoMemory) == std::string_view::npos ? std::nullopt
                                                        : std::optional(bytes_in(text));
}

void throw_if_out_of_memory(const std::exception& error, const std::string& what,
                            const std::string& advice) {
  const auto asked = memory_asked_for(error);
  if (!asked || dynamic_cast<const Error*>(&error) != nullptr) {
    return;
  }
  throw OutOfMemoryError(fmt::format("out of memory for {}{}; {}", what,
                                     asked->empty() ? "" : fmt::format(" ({} at once)", *asked),
                                     advice));
}

}  // namespace switchyard
