#include "data/describe_dataset.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/with_commas.h"
#include "data/indexed_dataset.h"

namespace switchyard {
namespace {

constexpr int64_t kDocumentsShown = 3;
constexpr int64_t kTokensShown = 32;
constexpr int64_t kEndsChecked = 10'000;  // a page of .bin is read for each

void add_row(std::string& out, const char* name, const std::string& value) {
  fmt::format_to(std::back_inserter(out), "  {:<18}{}\n", name, value);
}

int64_t length_of(const IndexedDataset& set, int64_t document) {
  return set.document_start(document + 1) - set.document_start(document);
}

std::vector<int64_t> beginning_of(const IndexedDataset& set, int64_t document) {
  std::vector<int64_t> tokens(
      static_cast<size_t>(std::min(kTokensShown, length_of(set, document))));
  set.read(set.document_start(document), tokens);
  return tokens;
}

// "3 of 3 documents end with it"; a document without runs into the next one.
std::string count_ends(const IndexedDataset& set, int64_t end_of_document) {
  const int64_t checked = std::min(set.num_documents(), kEndsChecked);
  int64_t ended = 0;
  for (int64_t document = 0; document < checked; ++document) {
    if (length_of(set, document) > 0) {
      std::vector<int64_t> last(1);
      set.read(set.document_start(document + 1) - 1, last);
      ended += last[0] == end_of_document ? 1 : 0;
    }
  }
  return fmt::format("{} of {}{} documents end with it{}", with_commas(ended),
                     checked < set.num_documents() ? "the first " : "", with_commas(checked),
                     ended < checked ? ": the others run into the next one" : "");
}

std::string document_lengths(const IndexedDataset& set) {
  int64_t shortest = length_of(set, 0);
  int64_t longest = shortest;
  for (int64_t document = 1; document < set.num_documents(); ++document) {
    shortest = std::min(shortest, length_of(set, document));
    longest = std::max(longest, length_of(set, document));
  }
  return fmt::format("{} to {} tokens, {} on average", with_commas(shortest), with_commas(longest),
                     with_commas(set.num_tokens() / set.num_documents()));
}

// Is it whole characters? Tokens may hold a part of one.
bool is_utf8(const std::string& text) {
  size_t missing = 0;  // bytes of the character begun
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xc0) == 0x80;
    if (continues != (missing > 0) || byte >= 0xf8) {
      return false;
    }
    if (continues) {
      --missing;
    } else if (byte >= 0xc0) {
      missing = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    }
  }
  return missing == 0;
}

// Printable text stays as it is; line ends, other control bytes and parts of characters are spelled
// out.
std::string visible(const std::string& text) {
  const unsigned char first_spelled_out = is_utf8(text) ? 0xff : 0x7f;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f || byte >= first_spelled_out) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Tokens separated by bars: decoded when the tokenizer is known, else their ids.
std::string show_tokens(const std::vector<int64_t>& tokens, const Tokenizer* tokenizer) {
  std::string out = "|";
  for (const int64_t token : tokens) {
    const auto id = static_cast<int32_t>(token);
    if (tokenizer == nullptr) {
      out += std::to_string(token);
    } else if (id == tokenizer->end_of_document()) {
      out += "<end of document>";
    } else {
      out += visible(tokenizer->decode({&id, 1}));
    }
    out += "|";
  }
  return out;
}

// The tokenizer that made the data, when it can be made from its name alone and is the same.
std::unique_ptr<Tokenizer> tokenizer_of(const IndexedDataset& set) {
  if (!set.sidecar()) {
    return nullptr;
  }
  try {
    auto tokenizer = make_tokenizer(set.sidecar()->tokenizer);
    return tokenizer->fingerprint() == set.sidecar()->tokenizer_hash ? std::move(tokenizer)
                                                                     : nullptr;
  } catch (const Error&) {  // it was a file, which is gone or has changed
    return nullptr;
  }
}

void add_table(std::string& out, const IndexedDataset& set, bool is_verified) {
  add_row(out, "documents", with_commas(set.num_documents()));
  if (set.num_documents() > 0) {
    add_row(out, "their lengths", document_lengths(set));
  }
  add_row(out, "tokens", with_commas(set.num_tokens()));
  add_row(out, "stored as",
          fmt::format("{}, {} bytes in all", name_of(set.token_type()),
                      with_commas(set.num_tokens() * bytes_of(set.token_type()))));
  if (!set.sidecar()) {
    add_row(out, "tokenizer", fmt::format("not known: {}.json is missing", set.prefix()));
    return;
  }
  const DatasetSidecar& sidecar = *set.sidecar();
  add_row(out, "tokenizer", fmt::format("{} ({:016x})", sidecar.tokenizer, sidecar.tokenizer_hash));
  add_row(out, "vocabulary", with_commas(sidecar.vocab_size));
  add_row(out, "end of document",
          sidecar.end_of_document < 0 ? "none: documents are told apart by the index only"
                                      : fmt::format("{}; {}", sidecar.end_of_document,
                                                    count_ends(set, sidecar.end_of_document)));
  add_row(out, "checksum",
          fmt::format("{:08x}, {}", sidecar.bin_crc32c,
                      is_verified ? "verified" : "not verified (--verify reads the whole file)"));
}

}  // namespace

bool is_dataset(const std::string& prefix) {
  return std::filesystem::exists(prefix + ".idx");
}

std::string describe_dataset(const std::string& prefix, bool verify) {
  const IndexedDataset set(prefix);
  if (verify) {
    set.verify_checksum();
  }
  std::string out = fmt::format("{}: tokenized documents (Megatron's .bin and .idx)\n", prefix);
  add_table(out, set, verify);
  const auto tokenizer = tokenizer_of(set);
  for (int64_t document = 0; document < std::min(set.num_documents(), kDocumentsShown);
       ++document) {
    const auto tokens = beginning_of(set, document);
    fmt::format_to(std::back_inserter(out), "document {}, {} of {} tokens:\n  {}\n", document,
                   tokens.size(), with_commas(length_of(set, document)),
                   show_tokens(tokens, tokenizer.get()));
  }
  return out;
}

}  // namespace switchyard
