#include "train/tensorboard.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>

#include "base/crc32c.h"
#include "base/error.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNamePrefix = "events.out.tfevents.";

// Protocol buffers, as far as events need them: a message is its fields one after the other, a
// field a key (number and kind of coding) and a value.
class Message {
 public:
  Message& add_integer(uint32_t field, uint64_t value) {
    put_key(field, kVarint);
    put_varint(value);
    return *this;
  }
  Message& add_double(uint32_t field, double value) {
    put_key(field, kFixed64);
    put_fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& add_float(uint32_t field, float value) {
    put_key(field, kFixed32);
    put_fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& add_bytes(uint32_t field, std::string_view value) {
    put_key(field, kBytes);
    put_varint(value.size());
    bytes_ += value;
    return *this;
  }
  // Little-endian, `size` bytes.
  Message& put_fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes_ += static_cast<char>(value >> (8 * i));
    }
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  enum Coding : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  void put_key(uint32_t field, Coding coding) { put_varint((field << 3) | coding); }

  // Seven bits a byte, the lowest first; the high bit says that more follow.
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// TFRecord's mask, for checksums that are stored beside what they check.
uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string record_of(const Message& event) {
  const std::string length = Message().put_fixed(event.bytes().size(), 8).bytes();
  return length + Message().put_fixed(masked_crc(length), 4).bytes() + event.bytes() +
         Message().put_fixed(masked_crc(event.bytes()), 4).bytes();
}

// Field numbers of event.proto and summary.proto.
Message new_event(double wall_time_s) {
  return std::move(Message().add_double(1, wall_time_s));
}
Message file_version_event(double wall_time_s) {
  return std::move(new_event(wall_time_s).add_bytes(3, "brain.Event:2"));
}
Message session_start_event(double wall_time_s, int64_t step) {
  constexpr uint64_t kStart = 1;
  const Message session_log = std::move(Message().add_integer(1, kStart));
  return std::move(new_event(wall_time_s)
                       .add_integer(2, static_cast<uint64_t>(step))
                       .add_bytes(7, session_log.bytes()));
}
Message summary_event(double wall_time_s, int64_t step,
                      const std::vector<std::pair<std::string, double>>& scalars) {
  Message summary;
  for (const auto& [tag, value] : scalars) {
    const Message scalar =
        std::move(Message().add_bytes(1, tag).add_float(2, static_cast<float>(value)));
    summary.add_bytes(1, scalar.bytes());
  }
  return std::move(new_event(wall_time_s)
                       .add_integer(2, static_cast<uint64_t>(step))
                       .add_bytes(5, summary.bytes()));
}

// The latest TIME of the event files in `folder`; -1 when there are none.
int64_t latest_time(const fs::path& folder) {
  int64_t latest = -1;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kNamePrefix)) {
      int64_t time = -1;
      std::from_chars(name.data() + kNamePrefix.size(), name.data() + name.size(), time);
      latest = std::max(latest, time);
    }
  }
  return latest;
}

std::string new_event_path(const std::string& folder, double wall_time_s, std::string_view host) {
  try {
    fs::create_directories(folder);
    const int64_t time = std::max(static_cast<int64_t>(wall_time_s), latest_time(folder) + 1);
    std::string name = fmt::format("{}{:010}.{}", kNamePrefix, time, host);
    std::replace(name.begin(), name.end(), '/', '_');
    return (fs::path(folder) / name).string();
  } catch (const fs::filesystem_error& error) {
    throw FileError(fmt::format(
        "cannot make TensorBoard files in {}: {}; check that the folder can be made and written",
        folder, error.code().message()));
  }
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, double wall_time_s,
                                     std::string_view host, int64_t resume_step)
    : file_(new_event_path(folder, wall_time_s, host), AppendFile::Mode::kCreateNew) {
  file_.append(record_of(file_version_event(wall_time_s)) +
               record_of(session_start_event(wall_time_s, resume_step + 1)));
}

void TensorBoardWriter::write(int64_t step, double wall_time_s,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  file_.append(record_of(summary_event(wall_time_s, step, scalars)));
}

}  // namespace switchyard
