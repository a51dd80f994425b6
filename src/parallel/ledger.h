#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/whereabouts.h"

namespace switchyard {

// What a transfer is for; the metrics add up bytes and time by purpose.
enum class Purpose {
  kTensorParallel,
  kContextParallel,
  kPipeline,
  kDispatch,
  kCombine,
  kGradient,
  kParameters,
  kStatistics,
  kCheckpoint,
  kControl
};
std::string_view to_string(Purpose purpose);

// A place in the program that communicates or scales: a fixed name and what the transfer is for.
struct Site {
  std::string_view name;  // a string literal: graphs and pending collectives keep it
  Purpose purpose = Purpose::kControl;
  bool is_backward = false;  // the transfer that the gradient makes at the same place
  int64_t layer = -1;        // of a gradient: that of the forward pass; else the ledger knows it

  std::string full_name() const;  // "attention.output" or "attention.output/backward"
};

struct LedgerEntry {
  std::string site;
  std::string collective;
  std::string group;
  Purpose purpose = Purpose::kControl;
  int64_t calls = 0;
  int64_t bytes = 0;          // payload that this rank sends to other ranks
  double seconds = 0;         // time this rank spent in or waiting for the call
  double hidden_seconds = 0;  // time the call took beside, while the rank waited for none
};

// Every byte that leaves a rank is written here. One ledger per rank; not thread-safe.
//
// It also carries the test-only switch of the mutation tests: a site that is removed keeps the
// shapes of its results but does not communicate (or does not scale), so that a test can prove that
// it would notice. Nothing but tests sets it.
class Ledger {
 public:
  // `hidden_seconds` is known of collectives that went on in the background, and 0 of others.
  void record(const Site& site, std::string_view collective, std::string_view group, int64_t bytes,
              double seconds, double hidden_seconds = 0);

  std::vector<LedgerEntry> entries() const;  // by site, collective and group
  int64_t bytes(Purpose purpose) const;
  double seconds(Purpose purpose) const;
  double hidden_seconds(Purpose purpose) const;
  double seconds() const { return seconds_; }  // of all calls
  void clear();

  // Kept up to date by who trains and by the model; clear() leaves it.
  RunPosition& position() { return position_; }
  Whereabouts& whereabouts() { return whereabouts_; }

  // Test-only: called before each transfer, in the thread that makes it; it may sleep, throw or end
  // the process, to prove that the others notice.
  using CallHook = std::function<void(const Site& site, std::string_view collective)>;
  void set_call_hook_for_test(CallHook hook) { call_hook_ = std::move(hook); }
  void before_call(const Site& site, std::string_view collective) const {
    if (call_hook_) {
      call_hook_(site, collective);
    }
  }

  void remove_site_for_test(std::string_view name) { removed_ = name; }
  bool is_removed(const Site& site);

  // `value`, or 1 where the site is removed for a test.
  double scale(const Site& site, double value);

  const std::map<std::string, int64_t>& scale_sites() const { return scale_sites_; }

 private:
  std::map<std::string, LedgerEntry> entries_;
  double seconds_ = 0;
  std::map<std::string, int64_t> scale_sites_;  // name -> how often it was asked
  std::string removed_;
  RunPosition position_;
  Whereabouts whereabouts_;
  CallHook call_hook_;
};

// Marks that a layer runs, while it lives.
class LayerMark {
 public:
  LayerMark(Ledger& ledger, int64_t layer) : ledger_(ledger) { ledger_.position().layer = layer; }
  ~LayerMark() { ledger_.position().layer = -1; }
  LayerMark(const LayerMark&) = delete;
  LayerMark& operator=(const LayerMark&) = delete;

 private:
  Ledger& ledger_;
};

}  // namespace switchyard
