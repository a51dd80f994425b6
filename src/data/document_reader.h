#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text_source.h"
#include "data/tokenizer.h"

namespace switchyard {

// What the files given to `tokenize` are made of.
enum class TextKind {
  kDocument,   // .txt: one document
  kLines,      // .txt, if asked: a document per line, without its end
  kJsonLines,  // .jsonl: an object per line
};

// A piece of one file, to be encoded by itself.
struct TextChunk {
  const std::string* path = nullptr;
  TextKind kind = TextKind::kDocument;
  std::string text;
  int64_t first_line = 1;     // kinds of lines: the number of the first
  bool ends_document = true;  // kDocument: false for a part that others follow
  int64_t files_done = 0;     // of all files, when this chunk is done
  int64_t bytes_done = 0;     // of all files, as they lie on disk
};

// Reads text files one after the other and cuts them into chunks of about a megabyte: whole lines,
// whole documents (however long), or parts of documents where the tokenizer knows a place.
class DocumentReader {
 public:
  // `files` and `tokenizer` must outlive the reader. Throws ConfigError for a file of another kind.
  DocumentReader(const std::vector<std::string>& files, bool split_lines,
                 const Tokenizer& tokenizer);

  // Nothing after the last chunk. Throws FileError, naming the file.
  std::optional<TextChunk> next();

 private:
  void open_next();
  std::optional<size_t> cut_place() const;
  TextChunk take(size_t size, bool is_end);

  const std::vector<std::string>& files_;
  bool split_lines_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<TextSource> source_;  // of file index_ - 1; null between files
  TextKind kind_ = TextKind::kDocument;
  size_t index_ = 0;
  int64_t bytes_before_ = 0;  // of the files that are done
  int64_t line_ = 1;
  std::string pending_;     // read and not handed out yet
  bool is_at_end_ = false;  // of the file
};

// What a text file is, by its name; nothing for what cannot be read.
std::optional<TextKind> text_kind(const std::string& path, bool split_lines);

}  // namespace switchyard
