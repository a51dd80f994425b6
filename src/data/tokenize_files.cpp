#include "data/tokenize_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "data/document_reader.h"
#include "data/indexed_dataset_writer.h"
#include "data/json_line.h"
#include "data/ordered_pipeline.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// Text under way, in bytes: enough that no thread waits for another, and little memory.
constexpr int64_t kBytesPerThread = int64_t{4} << 20;

void check_prefix(const std::string& prefix, bool overwrite) {
  check<ConfigError>(!fs::path(prefix).filename().empty() && !fs::is_directory(prefix),
                     "--out is \"{}\", expected a prefix for three files, as in data/train",
                     prefix);
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    check<FileError>(overwrite || !fs::exists(prefix + suffix),
                     "{}{} is there already; choose another --out, or pass --force to replace the "
                     "data set",
                     prefix, suffix);
  }
}

// Size in bytes of a file that can be read as text.
int64_t check_text_file(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  check<FileError>(fs::exists(status), "{}: no such file", path);
  check<FileError>(fs::is_regular_file(status) && text_kind(path, false).has_value(),
                   "{} is not a text file that can be read: .txt or .jsonl, or one of these with "
                   ".gz or .zst after it",
                   path);
  const auto size = fs::file_size(path, error);
  check<FileError>(!error, "cannot read {}: {}", path, error.message());
  check<FileError>(size > 0, "{} is empty, and a document needs text; leave the file out", path);
  return static_cast<int64_t>(size);
}

struct EncodedChunk {
  std::vector<int32_t> ids;
  std::vector<int64_t> document_ends;  // where in `ids` documents end; the rest goes on
  int64_t bad_lines = 0;
  int64_t empty_documents = 0;
  int64_t files_done = 0;
  int64_t bytes_done = 0;
};

class ChunkEncoder {
 public:
  ChunkEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options, int64_t end_of_document)
      : tokenizer_(tokenizer), options_(options), end_of_document_(end_of_document) {}

  EncodedChunk encode(const TextChunk& chunk) const {
    EncodedChunk encoded;
    encoded.files_done = chunk.files_done;
    encoded.bytes_done = chunk.bytes_done;
    if (chunk.kind == TextKind::kDocument) {
      encoded.ids = tokenizer_.encode(chunk.text);
      if (chunk.ends_document) {
        end_document(encoded);
      }
    } else {
      encode_lines(chunk, encoded);
    }
    return encoded;
  }

 private:
  void encode_lines(const TextChunk& chunk, EncodedChunk& encoded) const {
    const std::string_view text = chunk.text;
    int64_t number = chunk.first_line;
    for (size_t start = 0; start < text.size(); ++number) {
      const size_t end = std::min(text.find('\n', start), text.size());
      std::string_view line = text.substr(start, end - start);
      start = end + 1;
      if (line.ends_with('\r')) {
        line.remove_suffix(1);
      }
      if (chunk.kind == TextKind::kLines) {
        add(line, encoded);
      } else if (line.find_first_not_of(" \t") != std::string_view::npos) {
        add_json(line, *chunk.path, number, encoded);
      }
    }
  }

  void add_json(std::string_view line, const std::string& path, int64_t number,
                EncodedChunk& encoded) const {
    const JsonLine read = text_of_json_line(line, options_.key);
    if (read.mistake.empty()) {
      add(read.text, encoded);
      return;
    }
    check<FileError>(options_.skip_bad_lines,
                     "{}:{}: the line {}; mend it, name another --key, or pass --skip-bad-lines to "
                     "leave such lines out",
                     path, number, read.mistake);
    ++encoded.bad_lines;
  }

  void add(std::string_view text, EncodedChunk& encoded) const {
    if (text.empty()) {
      ++encoded.empty_documents;
      return;
    }
    const std::vector<int32_t> ids = tokenizer_.encode(text);
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    end_document(encoded);
  }

  void end_document(EncodedChunk& encoded) const {
    if (end_of_document_ != TokenizeOptions::kNoEnd) {
      encoded.ids.push_back(static_cast<int32_t>(end_of_document_));
    }
    encoded.document_ends.push_back(std::ssize(encoded.ids));
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  int64_t end_of_document_;
};

void write(const EncodedChunk& chunk, IndexedDatasetWriter& writer) {
  const std::span<const int32_t> ids(chunk.ids);
  int64_t start = 0;
  for (const int64_t end : chunk.document_ends) {
    writer.append(ids.subspan(static_cast<size_t>(start), static_cast<size_t>(end - start)));
    writer.end_document();
    start = end;
  }
  writer.append(ids.subspan(static_cast<size_t>(start)));
}

}  // namespace

TokenizeResult tokenize_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(const TokenizeProgress&)>& report) {
  check_prefix(options.prefix, options.overwrite);
  check<ConfigError>(!files.empty(), "no files to tokenize; name at least one .txt or .jsonl file");
  TokenizeProgress progress;
  progress.num_files = std::ssize(files);
  for (const std::string& path : files) {
    progress.num_bytes += check_text_file(path);
  }
  const int64_t end = options.end_of_document.value_or(tokenizer.end_of_document());
  IndexedDatasetWriter writer(options.prefix, tokenizer, options.token_type, end);
  const ChunkEncoder encoder(tokenizer, options, end);
  DocumentReader reader(files, options.split_lines, tokenizer);
  const int64_t num_threads = options.num_threads > 0
                                  ? options.num_threads
                                  : std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  OrderedPipeline<TextChunk, EncodedChunk>::run(
      {.produce = [&] { return reader.next(); },
       .weigh = [](const TextChunk& chunk) { return std::ssize(chunk.text); },
       .work = [&](const TextChunk& chunk) { return encoder.encode(chunk); },
       .consume =
           [&](const EncodedChunk& chunk) {
             write(chunk, writer);
             progress.files_done = chunk.files_done;
             progress.bytes_done = chunk.bytes_done;
             progress.tokens += std::ssize(chunk.ids);
             progress.bad_lines += chunk.bad_lines;
             progress.empty_documents += chunk.empty_documents;
             report(progress);
           }},
      num_threads, kBytesPerThread * num_threads);
  check<FileError>(
      writer.num_documents() > 0,
      "no document is in {}{}: {} lines without a text and {} empty ones were left out",
      files.front(), files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "",
      progress.bad_lines, progress.empty_documents);
  return {writer.finish(), progress};
}

}  // namespace switchyard
