#pragma once

#include "hub/import.h"
#include "train/progress.h"

namespace switchyard {

// Shows how far a conversion is: on a terminal one line, redrawn ten times a second; nothing
// elsewhere.
class ConversionLine {
 public:
  ConversionLine();

  void update(const ConversionProgress& progress);
  void finish();  // removes the line

 private:
  ProgressScreen screen_ = ProgressScreen::standard_error();
  double start_s_;
  double shown_s_;
};

}  // namespace switchyard
