#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace switchyard {

// How much was asked for in vain, in words: "12.3 GB"; empty where that is not known. Nothing for
// an exception that says something else.
std::optional<std::string> memory_asked_for(const std::exception& error);

// Throws OutOfMemoryError for an exception of that kind, else nothing: `what` could not be had, and
// `advice` says what to lower.
void throw_if_out_of_memory(const std::exception& error, const std::string& what,
                            const std::string& advice);

// Runs `work`, whose memory is for `what`: "the model and its optimizer".
template <class Work>
decltype(auto) with_memory_for(const std::string& what, const std::string& advice, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::exception& error) {
    throw_if_out_of_memory(error, what, advice);
    throw;
  }
}

}  // namespace switchyard
