#include "data/text_source.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "base/files.h"

namespace switchyard {
namespace {

constexpr size_t kBlock = size_t{1} << 18;

class PlainSource : public TextSource {
 public:
  explicit PlainSource(const std::string& path) : file_(path) {}

  size_t read(char* into, size_t size) override {
    const auto count = std::min(static_cast<int64_t>(size), file_.size() - offset_);
    file_.read(offset_, into, count);
    offset_ += count;
    return static_cast<size_t>(count);
  }
  int64_t consumed() const override { return offset_; }

 private:
  InputFile file_;
  int64_t offset_ = 0;
};

// What both kinds of compressed files share: a block of compressed bytes at a time.
class CompressedSource : public TextSource {
 public:
  explicit CompressedSource(const std::string& path) : file_(path), block_(kBlock) {}
  int64_t consumed() const override { return file_.consumed() - static_cast<int64_t>(left_); }

 protected:
  // Makes sure that there are compressed bytes to go on with. False at the end of the file.
  bool refill() {
    if (left_ == 0) {
      next_ = 0;
      left_ = file_.read(block_.data(), block_.size());
    }
    return left_ > 0;
  }
  char* next() { return block_.data() + next_; }
  size_t left() const { return left_; }
  void use(size_t count) {
    next_ += count;
    left_ -= count;
  }

 private:
  PlainSource file_;
  std::vector<char> block_;
  size_t next_ = 0;
  size_t left_ = 0;
};

// RFC 1952: one or more members one after the other.
class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(const std::string& path) : CompressedSource(path), path_(path) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(char* into, size_t size) override {
    size_t filled = 0;
    while (filled < size) {
      if (!refill()) {
        check<FileError>(!is_inside_,
                         "{} is cut short: its last gzip member has no end; fetch the file again",
                         path_);
        break;
      }
      if (!std::exchange(is_inside_, true)) {
        inflateReset(&stream_);
      }
      filled += inflate_some(into + filled, size - filled);
    }
    return filled;
  }

 private:
  size_t inflate_some(char* into, size_t size) {
    const size_t given = left();
    stream_.next_in = reinterpret_cast<Bytef*>(next());
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    const auto room = static_cast<uInt>(std::min<size_t>(size, 1U << 30U));
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    use(given - stream_.avail_in);
    check<FileError>(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR,
                     "{} is no gzip file or is damaged near byte {}: {}; fetch the file again",
                     path_, consumed(), stream_.msg == nullptr ? "broken data" : stream_.msg);
    is_inside_ = code != Z_STREAM_END;
    return room - stream_.avail_out;
  }

  std::string path_;
  z_stream stream_{};
  bool is_inside_ = false;  // of a member
};

// RFC 8878: one or more frames one after the other.
class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(const std::string& path)
      : CompressedSource(path), path_(path), stream_(ZSTD_createDStream()) {
    // Windows of up to 2 GB, as `zstd --ultra --long=31` makes them.
    constexpr int kLargestWindow = 31;
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kLargestWindow);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  size_t read(char* into, size_t size) override {
    ZSTD_outBuffer output{into, size, 0};
    while (output.pos < size) {
      // Without more input there may still be decoded bytes that had no room the last time.
      const bool has_input = refill();
      if (!has_input && !was_full_) {
        check<FileError>(!is_inside_,
                         "{} is cut short: its last zstd frame has no end; fetch the file again",
                         path_);
        break;
      }
      ZSTD_inBuffer input{next(), left(), 0};
      const size_t code = ZSTD_decompressStream(stream_, &output, &input);
      use(input.pos);
      check<FileError>(ZSTD_isError(code) == 0U,
                       "{} is no zstd file or is damaged near byte {}: {}; fetch the file again",
                       path_, consumed(), ZSTD_getErrorName(code));
      is_inside_ = code != 0;
      was_full_ = is_inside_ && output.pos == size;
    }
    return output.pos;
  }

 private:
  std::string path_;
  ZSTD_DStream* stream_;
  bool is_inside_ = false;  // of a frame
  bool was_full_ = false;   // so that the decoder may hold more
};

}  // namespace

std::unique_ptr<TextSource> open_text(const std::string& path) {
  if (path.ends_with(".gz")) {
    return std::make_unique<GzipSource>(path);
  }
  if (path.ends_with(".zst")) {
    return std::make_unique<ZstdSource>(path);
  }
  return std::make_unique<PlainSource>(path);
}

std::string uncompressed_name(const std::string& path) {
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (path.ends_with(suffix)) {
      return path.substr(0, path.size() - suffix.size());
    }
  }
  return path;
}

}  // namespace switchyard
