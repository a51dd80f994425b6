#include "data/tokenize_files.h"

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/indexed_dataset_writer.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

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

// Size in bytes of a text file that can be one document.
int64_t check_text_file(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  check<FileError>(fs::exists(status), "{}: no such file", path);
  check<FileError>(fs::is_regular_file(status) && fs::path(path).extension() == ".txt",
                   "{} is not a .txt file, the only kind that is read; each becomes one document",
                   path);
  const auto size = fs::file_size(path, error);
  check<FileError>(!error, "cannot read {}: {}", path, error.message());
  check<FileError>(size > 0, "{} is empty, and a document needs text; leave the file out", path);
  return static_cast<int64_t>(size);
}

std::vector<int32_t> encode_document(const std::string& path, const Tokenizer& tokenizer) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  std::vector<int32_t> ids = tokenizer.encode(text);
  ids.push_back(tokenizer.end_of_document());
  return ids;
}

}  // namespace

DatasetSidecar tokenize_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                              const std::string& prefix, bool overwrite,
                              const std::function<void(const TokenizeProgress&)>& report) {
  check_prefix(prefix, overwrite);
  check<ConfigError>(!files.empty(), "no files to tokenize; name at least one .txt file");
  std::vector<int64_t> sizes;
  TokenizeProgress progress;
  progress.num_files = std::ssize(files);
  for (const std::string& path : files) {
    sizes.push_back(check_text_file(path));
    progress.num_bytes += sizes.back();
  }
  IndexedDatasetWriter writer(prefix, tokenizer);
  for (size_t i = 0; i < files.size(); ++i) {
    // Documents do not depend on each other: only the writer needs them in order.
    const std::vector<int32_t> ids = encode_document(files[i], tokenizer);
    writer.add_document(ids);
    progress.files_done += 1;
    progress.bytes_done += sizes[i];
    progress.tokens += std::ssize(ids);
    report(progress);
  }
  return writer.finish();
}

}  // namespace switchyard
