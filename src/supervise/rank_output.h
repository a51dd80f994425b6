#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace switchyard {

enum class Stream { kOutput, kErrors };

// Cuts what comes in pieces into lines.
class LineCutter {
 public:
  using Sink = std::function<void(std::string_view line)>;  // without its end

  void add(std::string_view piece, const Sink& sink);
  void finish(const Sink& sink);  // what is left, without a line's end

 private:
  std::string rest_;
};

// Where the lines of all ranks go. Lines are whole: those of two ranks never mix.
class RankOutput {
 public:
  // Without a folder, every line goes to this process's own stream of the same kind, with "[3] "
  // in front for rank 3. With one, each rank has its file there, rank_3.log, which every attempt
  // adds to, and rank 0 is shown as well, as it is. Throws FileError.
  explicit RankOutput(std::string log_folder);

  void write(int64_t rank, Stream stream, std::string_view line);

  // Counted from 0; the files say where each begins.
  void begin_attempt(int64_t attempt);

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  FILE* file_of(int64_t rank);

  std::string folder_;
  int64_t attempt_ = 0;
  std::map<int64_t, std::unique_ptr<FILE, Close>> files_;
};

}  // namespace switchyard
