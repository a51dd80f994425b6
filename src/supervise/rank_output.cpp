#include "supervise/rank_output.h"

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace switchyard {
namespace {

// A line longer than this is cut: something prints without end.
constexpr size_t kLongestLine = 1 << 20;

void show(Stream stream, const std::string& text) {
  FILE* file = stream == Stream::kOutput ? stdout : stderr;
  std::fputs(text.c_str(), file);
  std::fflush(file);
}

}  // namespace

void LineCutter::add(std::string_view piece, const Sink& sink) {
  for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
    rest_ += piece.substr(0, end);
    sink(rest_);
    rest_.clear();
    piece.remove_prefix(end + 1);
  }
  rest_ += piece;
  if (rest_.size() > kLongestLine) {
    finish(sink);
  }
}

void LineCutter::finish(const Sink& sink) {
  if (!rest_.empty()) {
    sink(rest_);
    rest_.clear();
  }
}

RankOutput::RankOutput(std::string log_folder) : folder_(std::move(log_folder)) {
  if (!folder_.empty()) {
    make_directories(folder_);
  }
}

void RankOutput::begin_attempt(int64_t attempt) {
  attempt_ = attempt;
  files_.clear();
}

FILE* RankOutput::file_of(int64_t rank) {
  auto& file = files_[rank];
  if (file == nullptr) {
    const std::string path = fmt::format("{}/rank_{}.log", folder_, rank);
    file.reset(std::fopen(path.c_str(), "ae"));
    check<FileError>(file != nullptr, "{}", describe_file_error(path, "write", errno));
    fmt::print(file.get(), "--- attempt {}\n", attempt_);
  }
  return file.get();
}

void RankOutput::write(int64_t rank, Stream stream, std::string_view line) {
  if (folder_.empty()) {
    show(stream, fmt::format("[{}] {}\n", rank, line));
    return;
  }
  FILE* file = file_of(rank);
  fmt::print(file, "{}\n", line);
  std::fflush(file);
  if (rank == 0) {
    show(stream, fmt::format("{}\n", line));
  }
}

}  // namespace switchyard
