// What the parity scripts need of a tokenizer, without going through a data set:
//   tokenizer_probe encode TOKENIZER            documents on standard input, ids on standard output
//   tokenizer_probe encode-with-special TOKENIZER
//   tokenizer_probe decode TOKENIZER keep|skip  the other way round
//   tokenizer_probe time TOKENIZER REPEATS      encodes documents in one thread, prints seconds
// A document is its number of bytes (64 bits) and its bytes; its ids are their number and 32 bits
// each, all little-endian.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "data/tokenizer.h"

namespace switchyard {
namespace {

template <class Element>
bool read_list(std::vector<Element>& list) {
  uint64_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) {
    return false;
  }
  list.resize(size);
  std::cin.read(reinterpret_cast<char*>(list.data()),
                static_cast<std::streamsize>(size * sizeof(Element)));
  return true;
}

template <class List>
void write_list(const List& list) {
  const uint64_t size = list.size();
  std::cout.write(reinterpret_cast<const char*>(&size), sizeof(size));
  std::cout.write(reinterpret_cast<const char*>(list.data()),
                  static_cast<std::streamsize>(size * sizeof(list[0])));
}

std::vector<std::vector<char>> read_documents() {
  std::vector<std::vector<char>> documents(1);
  while (read_list(documents.back())) {
    documents.emplace_back();
  }
  documents.pop_back();
  return documents;
}

void encode(const Tokenizer& tokenizer, bool with_special) {
  for (const auto& document : read_documents()) {
    const std::string_view text(document.data(), document.size());
    write_list(with_special ? tokenizer.encode_with_special_tokens(text) : tokenizer.encode(text));
  }
}

void decode(const Tokenizer& tokenizer, SpecialTokens special) {
  std::vector<int32_t> ids;
  while (read_list(ids)) {
    write_list(tokenizer.decode(ids, special));
  }
}

void time(const Tokenizer& tokenizer, int repeats) {
  const auto documents = read_documents();
  for (int i = 0; i < repeats; ++i) {
    size_t num_ids = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const auto& document : documents) {
      num_ids += tokenizer.encode({document.data(), document.size()}).size();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{} {}\n", seconds.count(), num_ids) << std::flush;
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string& command = arguments.at(0);
  const auto tokenizer = make_tokenizer(arguments.at(1));
  if (command == "encode" || command == "encode-with-special") {
    encode(*tokenizer, command != "encode");
  } else if (command == "decode") {
    decode(*tokenizer, arguments.at(2) == "keep" ? SpecialTokens::kKeep : SpecialTokens::kSkip);
  } else if (command == "time") {
    time(*tokenizer, std::stoi(arguments.at(2)));
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    return switchyard::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
