#include "parallel/ledger.h"

#include <fmt/format.h>

namespace switchyard {

std::string_view to_string(Purpose purpose) {
  switch (purpose) {
    case Purpose::kTensorParallel:
      return "tensor parallel";
    case Purpose::kContextParallel:
      return "context parallel";
    case Purpose::kPipeline:
      return "pipeline";
    case Purpose::kDispatch:
      return "dispatch";
    case Purpose::kCombine:
      return "combine";
    case Purpose::kGradient:
      return "gradient";
    case Purpose::kParameters:
      return "parameters";
    case Purpose::kStatistics:
      return "statistics";
    case Purpose::kCheckpoint:
      return "checkpoint";
    case Purpose::kControl:
      return "control";
  }
  return "";
}

std::string Site::full_name() const {
  return std::string(name) + (is_backward ? "/backward" : "");
}

void Ledger::record(const Site& site, std::string_view collective, std::string_view group,
                    int64_t bytes, double seconds, double hidden_seconds) {
  LedgerEntry& entry = entries_[fmt::format("{} {} {}", site.full_name(), collective, group)];
  if (entry.calls == 0) {
    entry.site = site.full_name();
    entry.collective = collective;
    entry.group = group;
    entry.purpose = site.purpose;
  }
  ++entry.calls;
  entry.bytes += bytes;
  entry.seconds += seconds;
  entry.hidden_seconds += hidden_seconds;
  seconds_ += seconds;
}

std::vector<LedgerEntry> Ledger::entries() const {
  std::vector<LedgerEntry> all;
  for (const auto& [key, entry] : entries_) {
    all.push_back(entry);
  }
  return all;
}

int64_t Ledger::bytes(Purpose purpose) const {
  int64_t sum = 0;
  for (const auto& [key, entry] : entries_) {
    sum += entry.purpose == purpose ? entry.bytes : 0;
  }
  return sum;
}

double Ledger::seconds(Purpose purpose) const {
  double sum = 0;
  for (const auto& [key, entry] : entries_) {
    sum += entry.purpose == purpose ? entry.seconds : 0;
  }
  return sum;
}

double Ledger::hidden_seconds(Purpose purpose) const {
  double sum = 0;
  for (const auto& [key, entry] : entries_) {
    sum += entry.purpose == purpose ? entry.hidden_seconds : 0;
  }
  return sum;
}

void Ledger::clear() {
  entries_.clear();
  seconds_ = 0;
}

bool Ledger::is_removed(const Site& site) {
  return !removed_.empty() && site.full_name() == removed_;
}

double Ledger::scale(const Site& site, double value) {
  ++scale_sites_[site.full_name()];
  return is_removed(site) ? 1.0 : value;
}

}  // namespace switchyard
