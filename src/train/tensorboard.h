#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/append_file.h"

namespace switchyard {

// Scalars as TensorBoard reads them: an event file per start of a run, of TFRecords (length and
// bytes, each with a masked CRC-32C) that hold tensorflow.Event messages. The two formats are those
// of tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
//
// The file begins with a session start at resume_step + 1, upon which TensorBoard forgets what
// earlier files say of this step and later ones. Every call writes through. Throws FileError. For
// one writer.
class TensorBoardWriter {
 public:
  // Makes `folder`/events.out.tfevents.TIME.HOST, where TIME is `wall_time_s` (seconds since 1970)
  // or, so that names are new and in order even when the clock went back, one more than the latest
  // there. Makes the folder where it is missing.
  TensorBoardWriter(const std::string& folder, double wall_time_s, std::string_view host,
                    int64_t resume_step);

  // Values are stored in fp32, as the format does.
  void write(int64_t step, double wall_time_s,
             const std::vector<std::pair<std::string, double>>& scalars);

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace switchyard
