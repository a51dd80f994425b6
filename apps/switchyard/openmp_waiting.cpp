#include "openmp_waiting.h"

#include <cstdlib>

#include <unistd.h>

namespace switchyard {

void give_waiting_cores_away(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) {
    return;
  }
  // Long enough for the gaps within a layer, short against a scheduler's time slice.
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv("/proc/self/exe", argv);  // returns only when it fails: then all is as before
}

}  // namespace switchyard
