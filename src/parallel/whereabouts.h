#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// Where a rank is in its run, for messages. -1: nowhere in particular.
struct RunPosition {
  int64_t step = -1;   // as the metrics count it, from 1
  int64_t layer = -1;  // of the model, from 0

  std::string text() const;  // "step 12, layer 3"; empty when nowhere
};

// What a rank says of itself while it lives, for those who wait for it in vain.
struct Note {
  std::string text;                // "in all_reduce ... since", "outside of calls, after ..."
  std::vector<int64_t> waits_for;  // ranks of the world that take part in the call it is in

  std::string encoded() const;
  static Note decoded(const std::string& text);
};

// Whether a rank is in a call, and in which or after which. The rank's thread writes it, another
// one reads it for the note.
class Whereabouts {
 public:
  struct Place {
    std::string_view collective = {};  // literals
    std::string_view site = {};
    const std::string* group = nullptr;  // both outlive the rank's calls
    const std::vector<int64_t>* ranks = nullptr;
    RunPosition position = {};
  };

  // Marks that the rank is in a call, while it lives.
  class InCall {
   public:
    InCall(Whereabouts& whereabouts, const Place& place);
    ~InCall();
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

   private:
    Whereabouts& whereabouts_;
  };

  Note note() const;

 private:
  mutable std::mutex mutex_;
  Place place_;  // of the call that it is in or was in last
  bool is_in_call_ = false;
};

}  // namespace switchyard
