#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <ATen/Parallel.h>

namespace switchyard {

// Calls `run_task(task)` for tasks 0 to num_tasks - 1 on libtorch's threads, each thread taking the
// next task when it is done with one, so that tasks of unequal length even out. Start with the
// longest. Which thread runs a task, and when, must not matter to the result.
template <class RunTask>
void run_tasks(int64_t num_tasks, RunTask run_task) {
  std::atomic<int64_t> next_task{0};
  const int64_t num_workers = std::min<int64_t>(num_tasks, at::get_num_threads());
  at::parallel_for(0, num_workers, 1, [&](int64_t, int64_t) {
    for (int64_t task = next_task++; task < num_tasks; task = next_task++) {
      run_task(task);
    }
  });
}

}  // namespace switchyard
